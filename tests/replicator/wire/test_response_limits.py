"""What a response may claim: kio would allocate it, and end the process where that is too much."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replicator.wire.protocol import SPOKEN, exchange
from replicator.wire.response_limits import ITEMS_MAX, BadResponse
from tests.budget import budget
from tests.replicator.wire.fake_broker import Leader, response
from tests.replicator.wire.logs import batch

VERSIONS = [(api, version) for api, (_, lowest, highest) in SPOKEN.items() for version in range(lowest, highest + 1)]
MANY = b"\xff\xff\xff\xff\x07"  # 2^31 - 1, and one for what isn't null


def sample(api: str, version: int) -> bytes:
    """A response as brokers give it, with its header."""
    leader, one = Leader(), {"partition_index": 0, "error_code": 0}
    group = {"topics": [{"name": "t", "partitions": [one | {"committed_offset": 3, "metadata": "m"}]}]}
    share = {"partition_index": 0, "start_offset": 3, "leader_epoch": 1, "error_code": 0, "error_message": None}
    share |= {"lag": 4} if version >= 1 else {}
    found = {"error_code": 0, "error_message": None, "node_id": 1, "host": "h", "port": 9092}
    answers: dict[str, Any] = {
        "sasl_handshake": {"error_code": 0, "mechanisms": ("PLAIN", "SCRAM-SHA-256")},
        "sasl_authenticate": {"error_code": 58, "error_message": "no", "auth_bytes": b"x", "session_lifetime": 5},
        "list_offsets": leader.listed(offset=7),
        "fetch": leader.fetched(records=batch(0, 9, {4})),
        "metadata": leader.metadata(replica_nodes=(1, 2), isr_nodes=(1,)),
        "describe_configs": {
            "results": [
                {
                    "error_code": 0,
                    "error_message": None,
                    "resource_type": 2,
                    "resource_name": "t",
                    "configs": [{"name": "a", "value": None, "synonyms": [], "documentation": None}],
                }
            ]
        },
        "api_versions": leader.answer_api_versions(None),
        "offset_fetch": group if version < 8 else {"groups": [group | {"group_id": "g", "error_code": 0}]},
        "offset_commit": {"topics": [{"name": "t", "partitions": [one]}]},
        "find_coordinator": found if version < 4 else {"coordinators": [found | {"key": "g"}]},
        "list_groups": {
            "groups": [{"group_id": "g", "protocol_type": "", "group_state": "Empty", "group_type": "classic"}]
        },
        "consumer_group_describe": {
            "groups": [
                {
                    "error_code": 0,
                    "error_message": None,
                    "group_id": "g",
                    "group_state": "Stable",
                    "assignor_name": "uniform",
                    "members": [
                        {
                            "member_id": "m",
                            "client_id": "c",
                            "client_host": "/h",
                            "subscribed_topic_names": ("t",),
                            "assignment": {"topic_partitions": []},
                            "target_assignment": {"topic_partitions": []},
                        }
                    ],
                }
            ]
        },
        "offset_delete": {"error_code": 0, "topics": [{"name": "t", "partitions": [one]}]},
        "describe_share_group_offsets": {
            "groups": [{"group_id": "g", "topics": [{"topic_name": "t", "partitions": [share]}], "error_message": "m"}]
        },
        "alter_share_group_offsets": {
            "error_message": None,
            "responses": [{"topic_name": "t", "partitions": [{"partition_index": 0, "error_message": "m"}]}],
        },
        "delete_share_group_offsets": {
            "error_message": None,
            "responses": [{"topic_name": "t", "error_code": 0, "error_message": "m"}],
        },
        "describe_cluster": {"cluster_id": "c", "brokers": [{"broker_id": 1, "host": "h", "port": 9092, "rack": None}]},
        "describe_producers": {"topics": [{"name": "t", "partitions": [one | {"active_producers": [{}]}]}]},
        "describe_transactions": {
            "transaction_states": [{"transactional_id": "i", "topics": [{"topic": "t", "partitions": (1, 2)}]}]
        },
        "list_transactions": {
            "transaction_states": [{"transactional_id": "i", "producer_id": 7, "transaction_state": "Ongoing"}]
        },
        "produce": {
            "responses": [{"name": "t", "partition_responses": [{"index": 0, "error_code": 0, "base_offset": 1}]}]
        },
        "init_producer_id": {"error_code": 0, "producer_id": 7, "producer_epoch": 1},
        "add_partitions_to_txn": {
            "results_by_topic_v3_and_below": [
                {"name": "t", "results_by_partition": [{"partition_index": 0, "partition_error_code": 0}]}
            ]
        },
        "add_offsets_to_txn": {"error_code": 0},
        "txn_offset_commit": {"topics": [{"name": "t", "partitions": [one]}]},
        "end_txn": {"error_code": 0, "producer_id": 7, "producer_epoch": 1},
        "offset_for_leader_epoch": {"topics": [{"topic": "t", "partitions": [{"partition": 0, "error_code": 0}]}]},
        "write_txn_markers": {"markers": [{"producer_id": 1, "topics": [{"name": "t", "partitions": [one]}]}]},
    }
    return response(api, version, 5, answers[api])[4:]


@pytest.mark.parametrize(("api", "version"), VERSIONS)
def test_what_brokers_say_is_read(api: str, version: int) -> None:
    correlation_id, _ = exchange(api, version).read(sample(api, version))
    assert correlation_id == 5


@pytest.mark.parametrize(("api", "version"), VERSIONS)
def test_a_response_that_is_cut_or_too_long_is_refused(api: str, version: int) -> None:
    data = sample(api, version)
    for size in range(len(data)):
        with pytest.raises(BadResponse):
            exchange(api, version).read(data[:size])
    with pytest.raises(BadResponse, match="1 bytes follow it"):
        exchange(api, version).read(data + b"\0")


@pytest.mark.parametrize(
    ("api", "version", "at", "claimed"),
    [
        ("fetch", 17, 4, MANY),  # tagged fields of the header
        ("fetch", 17, 15, MANY),
        ("fetch", 4, 8, b"\x7f\xff\xff\xff"),
        ("metadata", 13, 9, MANY),
        ("api_versions", 0, 6, b"\x7f\xff\xff\xff"),
        ("api_versions", 0, 6, b"\xff\xff\xff\xff"),
    ],
)
def test_nothing_is_allocated_for_a_claimed_count(api: str, version: int, at: int, claimed: bytes) -> None:
    data = sample(api, version)
    with pytest.raises(BadResponse, match="claimed"):
        exchange(api, version).read(data[:at] + claimed + data[at + len(claimed) :])


def test_a_size_is_no_larger_than_what_is_left_and_null_only_where_it_may_be() -> None:
    data = sample("sasl_handshake", 1)
    assert data[10:17] == b"\0\x05PLAIN"
    for size, said in ((b"\x7f\xff", "32767 bytes are claimed"), (b"\xff\xff", "a field of -1 bytes")):
        with pytest.raises(BadResponse, match=said):
            exchange("sasl_handshake", 1).read(data[:10] + size + data[12:])


def test_items_are_limited_in_all() -> None:
    count = ITEMS_MAX + 1
    data = bytes(6) + count.to_bytes(4, "big") + b"\0\0" * count
    with pytest.raises(BadResponse, match=f"{count} items are claimed"):
        exchange("sasl_handshake", 1).read(data)


def test_tagged_fields_that_are_not_known_are_ignored() -> None:
    data = sample("list_offsets", 10)
    expected = exchange("list_offsets", 10).read(data)
    assert data[4] == data[-1] == 0
    more = data[:4] + b"\x01\x63\x02ab" + data[5:-1] + b"\x02\x07\x00\x64\x01x"
    assert exchange("list_offsets", 10).read(more) == expected


def test_a_tagged_field_is_as_long_as_it_says() -> None:
    data = sample("fetch", 17)
    epochs = b"\x01\x01\x09" + b"\0" * 8 + b"\0"  # current_leader: two int32 and its own tagged fields
    exchange("fetch", 17).read(data)
    place = data.rindex(b"\0", 0, len(data) - 2)
    assert data[place:] == b"\0\0\0"  # of the partition, the topic, the response
    assert exchange("fetch", 17).read(data[:place] + epochs + data[place + 1 :])
    with pytest.raises(BadResponse, match="tagged field 1 isn't as long as it says"):
        exchange("fetch", 17).read(data[:place] + epochs.replace(b"\x09", b"\x08") + data[place + 1 :])


@pytest.mark.tier("extended")  # a search
@given(
    st.sampled_from(VERSIONS),
    st.lists(st.tuples(st.integers(0, 200), st.binary(min_size=1, max_size=5)), min_size=1, max_size=4),
)
@settings(max_examples=budget(1_000, 200_000))
def test_mutated_responses_are_read_or_refused(which: tuple[str, int], changes: list[tuple[int, bytes]]) -> None:
    data = bytearray(SAMPLES[which])
    for at, value in changes:
        data[at : at + len(value)] = value
    with contextlib.suppress(BadResponse):
        exchange(*which).read(bytes(data))


SAMPLES = {which: sample(*which) for which in VERSIONS}
