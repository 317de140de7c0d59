"""A partition's log over the wire: who is asked what, what is tried again, what ends a search, and when."""

from __future__ import annotations

import base64
import pickle
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replicator.model.errors import (
    Incident,
    NotAllowed,
    ReplicatorError,
    Retriable,
    TopicMissing,
    Unreachable,
    Unsupported,
)
from replicator.model.partition import Partition
from replicator.wire import log_evidence, protocol
from replicator.wire.connection import ConnectionLost
from replicator.wire.holes import NO_BATCH, IntervalHoles, OffsetOutOfRange, Unknown
from replicator.wire.partition_log import PartitionLog
from tests.budget import budget
from tests.replicator.wire.fake_broker import TOPIC, TOPIC_ID, Answer, FakeBroker, Leader, flow_of, uuid_of
from tests.replicator.wire.logs import batch

AT = Partition(TOPIC, 0)
ID = base64.urlsafe_b64encode(TOPIC_ID).decode().rstrip("=")
FETCH, LIST_OFFSETS, METADATA = 1, 2, 3
NOT_LEADER, FENCED_EPOCH, UNKNOWN_TOPIC, UNKNOWN_TOPIC_ID, NO_LEADER = 6, 74, 3, 100, 5


@contextmanager
def leading() -> Iterator[tuple[Leader, FakeBroker]]:
    leader = Leader()
    with FakeBroker(leader) as broker:
        leader.broker = broker
        leader.records = batch(0, 9, {0, 1, 5})
        yield leader, broker


def find(broker: FakeBroker, *intervals: tuple[int, int], topic_id: str = "", **limits: Any) -> list[IntervalHoles]:
    flow = flow_of(broker, **limits)
    return log_evidence.holes(flow, flow.source, AT, intervals or [(0, 10)], topic_id=topic_id)


FOUND = [IntervalHoles(((2, 5), (6, 10)))]


def test_what_is_asked_is_of_the_newest_versions() -> None:
    with leading() as (_, broker):
        assert find(broker) == FOUND
        asked = [(api, version) for api, version, _ in broker.asked]
        fetch = next(request for api, _, request in broker.asked if api == "fetch")
    newest = {api: versions[2] for api, versions in protocol.SPOKEN.items()}
    assert asked == [
        (api, newest[api])
        for api in ("api_versions", "metadata", "list_offsets", "list_offsets", "fetch", "list_offsets")
    ]
    assert fetch.isolation_level == 0
    assert fetch.topics[0].topic_id == uuid_of(TOPIC_ID)
    assert fetch.topics[0].partitions[0].current_leader_epoch == 5
    assert broker.connections == 1


@pytest.mark.parametrize("fetch", range(4, 18))
def test_every_version_of_fetch(fetch: int) -> None:
    with leading() as (leader, broker):
        leader.versions[FETCH] = (0, fetch)
        assert find(broker) == FOUND
        assert [version for api, version, _ in broker.asked if api == "fetch"] == [fetch]


@pytest.mark.parametrize("version", range(1, 11))
def test_every_version_of_list_offsets(version: int) -> None:
    with leading() as (leader, broker):
        leader.versions[LIST_OFFSETS] = (0, version)
        leader.records, leader.high_watermark = b"", 10
        assert find(broker) == [IntervalHoles(((0, 10),))]


@pytest.mark.parametrize("version", range(4, 14))
def test_every_version_of_metadata(version: int) -> None:
    """Without topic ids, which come with version 10, Fetch goes by names."""
    with leading() as (leader, broker):
        leader.versions[METADATA] = (0, version)
        assert find(broker) == FOUND
        assert [found for api, found, _ in broker.asked if api == "fetch"] == [17 if version >= 10 else 12]
        request = next(request for api, _, request in broker.asked if api == "metadata")
        assert not request.allow_auto_topic_creation


@pytest.mark.parametrize(("api", "versions"), [(FETCH, (0, 3)), (FETCH, (18, 20)), (METADATA, (0, 3))])
def test_a_broker_without_a_common_version_is_unsupported(api: int, versions: tuple[int, int]) -> None:
    with leading() as (leader, broker):
        leader.versions[api] = versions
        with pytest.raises(Unsupported, match=f"versions {versions[0]} to {versions[1]}"):
            find(broker)


def test_a_broker_that_knows_no_fetch_is_unsupported() -> None:
    with leading() as (leader, broker):
        del leader.versions[FETCH]
        with pytest.raises(Unsupported, match="no version of the API fetch"):
            find(broker)


def test_another_leader_is_looked_up_and_asked() -> None:
    with leading() as (leader, broker), leading() as (second, new):
        leader.instead["metadata"] = [leader.metadata()]
        leader.instead["fetch"] = [leader.fetched(error_code=NOT_LEADER)]
        leader.answer_metadata = second.answer_metadata  # type: ignore[method-assign]
        assert find(broker) == FOUND
        assert [api for api, _, _ in new.asked].count("fetch") == 1
        assert [api for api, _, _ in new.asked].count("metadata") == 0


@pytest.mark.parametrize("code", [NOT_LEADER, FENCED_EPOCH, UNKNOWN_TOPIC, UNKNOWN_TOPIC_ID])
def test_what_passes_is_tried_again(code: int) -> None:
    with leading() as (leader, broker):
        leader.instead["fetch"] = [leader.fetched(error_code=code), leader.fetched(error_code=code)]
        assert find(broker) == FOUND
        assert [api for api, _, _ in broker.asked].count("metadata") == 3


@pytest.mark.parametrize("api", ["metadata", "list_offsets", "fetch"])
def test_a_broken_connection_is_made_again(api: str) -> None:
    with leading() as (leader, broker):
        leader.instead[api] = [None, None]
        assert find(broker) == FOUND
        assert broker.connections == 3


@pytest.mark.tier("default")  # waits
def test_what_does_not_pass_in_time_is_retriable() -> None:
    with leading() as (leader, broker):
        leader.answer_metadata = lambda request: leader.metadata(error_code=NO_LEADER, leader_id=-1)  # type: ignore[method-assign]
        began_s = time.monotonic()
        with pytest.raises(Retriable, match="LEADER_NOT_AVAILABLE"):
            find(broker, request_timeout_ms=1_000)
        assert 0.3 < time.monotonic() - began_s < 10


def test_a_replica_that_is_down_does_not_matter() -> None:
    with leading() as (leader, broker):
        leader.instead["metadata"] = [leader.metadata(error_code=9)]
        assert find(broker) == FOUND
        assert broker.connections == 1


@pytest.mark.tier("default")
def test_a_topic_that_is_not_there_is_missing() -> None:
    with leading() as (leader, broker):
        leader.answer_metadata = lambda request: leader.metadata(  # type: ignore[method-assign]
            {"error_code": UNKNOWN_TOPIC, "partitions": ()}
        )
        with pytest.raises(TopicMissing, match="cluster 'east'"):
            find(broker, request_timeout_ms=1_000)


@pytest.mark.tier("default")
def test_a_partition_that_is_not_there_is_missing() -> None:
    with leading() as (leader, broker):
        leader.answer_metadata = lambda request: leader.metadata(partition_index=1)  # type: ignore[method-assign]
        with pytest.raises(TopicMissing, match="no such partition"):
            find(broker, request_timeout_ms=1_000)


def test_another_topic_under_the_name_ends_the_search_at_once() -> None:
    with leading() as (leader, broker):
        assert find(broker, topic_id=ID) == FOUND
        leader.topic_id = b"x" * 16
        with pytest.raises(Incident, match="another topic") as caught:
            find(broker, topic_id=ID)
        assert (caught.value.name, caught.value.topic, caught.value.partition) == ("topic_gone", TOPIC, 0)


def test_an_id_is_known_as_librdkafka_writes_it() -> None:
    """With + and /, where Kafka has - and _."""
    with leading() as (leader, broker):
        leader.topic_id = b"\xfb\xff\xfe" * 5 + b"\xfb"
        written = base64.b64encode(leader.topic_id).decode().rstrip("=")
        assert {"+", "/"} <= set(written)
        assert find(broker, topic_id=written) == FOUND


def test_a_topic_that_is_created_again_meanwhile_ends_the_search() -> None:
    with leading() as (leader, broker):
        leader.instead["fetch"] = [leader.fetched(error_code=UNKNOWN_TOPIC_ID)]
        leader.instead["metadata"] = [leader.metadata()]
        leader.topic_id = b"x" * 16
        with pytest.raises(Incident, match="topic_gone"):
            find(broker)


@pytest.mark.parametrize(
    ("api", "right"), [("metadata", "Describe on topic 'orders'"), ("fetch", "Read on topic 'orders'")]
)
def test_a_missing_right_is_named(api: str, right: str) -> None:
    with leading() as (leader, broker):
        denied = leader.metadata({"error_code": 29}) if api == "metadata" else leader.fetched(error_code=29)
        leader.instead[api] = [denied]
        with pytest.raises(NotAllowed, match=f"cluster 'east'.*{right}"):
            find(broker)
        assert broker.connections == 1


def test_a_batch_that_the_broker_finds_corrupt_is_an_incident() -> None:
    with leading() as (leader, broker):
        leader.instead["fetch"] = [leader.fetched(error_code=2)]
        with pytest.raises(Incident) as caught:
            find(broker, (3, 5))
        assert (caught.value.name, caught.value.offset) == ("batch_corrupt", 3)


def test_an_offset_out_of_range_keeps_the_connection() -> None:
    with leading() as (leader, broker):
        flow = flow_of(broker)
        leader.instead["fetch"] = [leader.fetched(error_code=1, high_watermark=-1)]
        with PartitionLog(flow, flow.source, AT) as log:
            with pytest.raises(OffsetOutOfRange):
                log.fetch(0, 100)
            assert log.start() == 0
        assert broker.connections == 1


@pytest.mark.tier("default")
def test_a_throttled_answer_is_waited_for_and_is_no_hole() -> None:
    with leading() as (leader, broker):
        throttled: Answer = {"throttle_time": 300, "responses": []}
        leader.instead["fetch"] = [throttled, throttled]
        began_s = time.monotonic()
        assert find(broker) == FOUND
        assert time.monotonic() - began_s >= 0.6
        assert broker.connections == 1


def test_an_empty_answer_without_throttling_is_no_hole() -> None:
    with leading() as (leader, broker):
        leader.instead["fetch"] = [{"responses": []}]
        assert find(broker) == FOUND


def test_a_leader_that_does_not_know_the_high_watermark_yet_proves_nothing() -> None:
    with leading() as (leader, broker):
        leader.instead["fetch"] = [leader.fetched(high_watermark=7), leader.fetched(high_watermark=9)]
        assert find(broker) == FOUND


def test_nothing_of_a_tiered_part_proves_nothing() -> None:
    with leading() as (leader, broker):
        leader.records = b""
        leader.offsets[-4] = 8
        assert find(broker) == [IntervalHoles((), (Unknown(0, 10, NO_BATCH),))]
        leader.offsets[-4] = 0
        assert find(broker) == [IntervalHoles(((0, 10),))]


@pytest.mark.tier("default")  # waits
@pytest.mark.parametrize("api", ["api_versions", "metadata", "list_offsets", "fetch"])
def test_a_broker_that_does_not_answer_is_given_up_in_time(api: str) -> None:
    with leading() as (leader, broker):
        leader.instead[api] = [b""] * 100
        began_s = time.monotonic()
        with pytest.raises(Unreachable, match=r"in time|timed out"):
            find(broker, request_timeout_ms=1_000, connect_timeout_ms=1_000)
        assert time.monotonic() - began_s < 15


@pytest.mark.tier("default")  # waits
def test_a_broker_that_answers_byte_by_byte_is_given_up_in_time() -> None:
    stopped = threading.Event()

    def drip(listening: socket.socket) -> None:
        connection, _ = listening.accept()
        with connection:
            connection.sendall(b"\0\0\1\0")
            while not stopped.wait(0.1):
                connection.send(b"\0")

    with socket.create_server(("127.0.0.1", 0)) as listening:
        dripping = threading.Thread(target=drip, args=(listening,))
        dripping.start()
        flow = flow_of(int(listening.getsockname()[1]), request_timeout_ms=1_000, connect_timeout_ms=1_000)
        began_s = time.monotonic()
        with pytest.raises(ConnectionLost, match=r"in time|timed out"):
            log_evidence.holes(flow, flow.source, AT, [(0, 10)])
        assert time.monotonic() - began_s < 15
        stopped.set()
        dripping.join(10)


@pytest.mark.tier("default")
def test_nobody_there_is_given_up_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = int(taken.getsockname()[1])
    began_s = time.monotonic()
    flow = flow_of(port, request_timeout_ms=1_000, connect_timeout_ms=1_000)
    with pytest.raises(ConnectionLost, match=f"cluster 'east', broker 127.0.0.1:{port}: cannot connect"):
        log_evidence.holes(flow, flow.source, AT, [(0, 10)])
    assert time.monotonic() - began_s < 10


@pytest.mark.tier("default")  # waits
def test_a_bootstrap_server_that_hangs_leaves_time_for_the_next() -> None:
    with leading() as (leader, broker), FakeBroker(lambda *_: b"") as hanging:
        servers = f"127.0.0.1:{hanging.port},127.0.0.1:{broker.port}"
        flow = flow_of(broker, connect_timeout_ms=2_000, bootstrap_servers=servers)
        assert log_evidence.holes(flow, flow.source, AT, [(0, 10)]) == FOUND
        leader.instead["fetch"] = [None]
        assert log_evidence.holes(flow, flow.source, AT, [(0, 10)]) == FOUND


@pytest.mark.parametrize(
    ("answer", "kind", "said"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", Unsupported, "limits.record_bytes_max"),
        (b"\x15\x03\x03\x00\x02\x02\x50", Unreachable, "wants TLS"),
        (b"\xff\xff\xff\xff", Unreachable, "frame of -1 bytes"),
        (b"\x00\x00\x00\x02\x00\x00", Unreachable, "no FetchResponse"),
        (b"\x00\x00\x00\x12\x00\x00\x00\x05" + bytes(11) + b"\1\0\0", Unreachable, "1 bytes follow it"),
        (b"\x00\x00\x00\x0b\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x7f", Unreachable, "no FetchResponse"),
    ],
)
def test_what_is_no_response_ends_it(answer: bytes, kind: type[Exception], said: str) -> None:
    with leading() as (leader, broker):
        leader.instead["fetch"] = [answer]
        with pytest.raises(kind, match=said):
            find(broker)
        assert broker.connections == 1


@pytest.mark.tier("default")  # hundreds of connections
@given(
    st.sampled_from(["api_versions", "metadata", "list_offsets", "fetch"]),
    st.lists(st.tuples(st.integers(4, 200), st.binary(min_size=1, max_size=4)), min_size=1, max_size=4),
)
@settings(max_examples=budget(150, 10_000))
def test_mutated_responses_are_read_or_refused(api: str, changes: list[tuple[int, bytes]]) -> None:
    with leading() as (_, broker):

        def mutate(answered: str, data: bytes) -> bytes:
            made = bytearray(data)
            for at, value in changes if answered == api else ():
                made[at : at + len(value)] = value[: max(0, len(made) - at)]
            return bytes(made)

        broker.mutate = mutate
        flow = flow_of(broker)
        short = flow.limits.model_copy(update={"request_timeout_ms": 50, "connect_timeout_ms": 50})
        flow = flow.model_copy(update={"limits": short})
        try:
            (found,) = log_evidence.holes(flow, flow.source, AT, [(0, 10)])
        except ReplicatorError:
            return
        assert all(0 <= first < end <= 10 for first, end in found.holes)


def test_the_answer_to_another_request_ends_it() -> None:
    with leading() as (leader, broker):
        leader.versions[LIST_OFFSETS] = (0, 1)
        leader.instead["list_offsets"] = [b"\0\0\0\x08\0\0\0\x63\0\0\0\0"]
        with pytest.raises(Unreachable, match="answers request 99 instead of 3"):
            find(broker)


def test_a_function_of_plain_arguments_goes_to_another_process() -> None:
    with leading() as (_, broker):
        flow = flow_of(broker)
        again = pickle.loads(pickle.dumps(partial(log_evidence.holes, flow, flow.source, AT, [(0, 10)])))
        assert pickle.loads(pickle.dumps(again())) == FOUND
        assert log_evidence.holes(flow, flow.source, AT, []) == []


def test_its_errors_go_to_another_process() -> None:
    with leading() as (leader, broker):
        del leader.versions[FETCH]
        with pytest.raises(Unsupported) as caught:
            find(broker)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), str(again)) == (Unsupported, str(caught.value))
