"""Requests of a transactional producer in both protocols, as a broker reads them, and what is read of answers."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from embedded_broker.wire import schema
from replicator.model.partition import Committed, Partition
from replicator.wire import transaction_requests as requests
from replicator.wire.protocol import SPOKEN
from replicator.wire.response_limits import BadResponse
from replicator.wire.transaction_requests import Coordinated, TransactionOf
from tests.replicator.wire.fake_broker import response

OF = TransactionOf("flow.1.0", 2**40, 9)
APIS = ("init_producer_id", "add_partitions_to_txn", "add_offsets_to_txn", "txn_offset_commit", "end_txn")
OFFSETS = {
    Partition("a", 0): Committed(2**40, "m" * 700),
    Partition("b", 7): Committed(0, ""),
    Partition("a", 2): Committed(5, "ü"),
}
ANSWERED = {Partition("a", 0): 0, Partition("a", 2): 16, Partition("b", 7): 51}


def versions(*apis: str) -> list[tuple[str, int]]:
    return [(api, version) for api in apis for version in range(SPOKEN[api][1], SPOKEN[api][2] + 1)]


def written(api: str, version: int, write: Callable[[str, int, TransactionOf], bytes]) -> Any:
    """The request as a broker reads it; it has the API's key and version."""
    data = write("me", version, OF)
    assert data[:4] == SPOKEN[api][0].to_bytes(2, "big") + version.to_bytes(2, "big")
    header = 8 + 2 + 2 + (schema.request_header_version(api, version) - 1)
    return schema.load(api, version).read(data, header)


@pytest.mark.parametrize(("api", "version"), versions("init_producer_id"))
def test_init_producer_id_says_how_long_a_transaction_may_last(api: str, version: int) -> None:
    begin = TransactionOf("flow.1.0")
    found = written(api, version, lambda me, to, _: requests.init_producer_id(me, to, begin, 60_000))
    assert (found.transactional_id, found.transaction_timeout) == ("flow.1.0", timedelta(minutes=1))
    assert getattr(found, "producer_id", -1) == getattr(found, "producer_epoch", -1) == -1


@pytest.mark.parametrize(("api", "version"), versions("add_partitions_to_txn"))
def test_partitions_are_announced_by_topic(api: str, version: int) -> None:
    found = written(api, version, lambda me, to, of: requests.add_partitions(me, to, of, OFFSETS))
    assert found.v3_and_below_transactional_id == OF.transactional_id
    assert (found.v3_and_below_producer_id, found.v3_and_below_producer_epoch) == OF[1:]
    named = {Partition(topic.name, index) for topic in found.v3_and_below_topics for index in topic.partitions}
    assert named == set(OFFSETS)


@pytest.mark.parametrize(("api", "version"), versions("add_offsets_to_txn"))
def test_the_group_is_announced(api: str, version: int) -> None:
    found = written(api, version, lambda me, to, of: requests.add_offsets(me, to, of, "group"))
    assert (found.transactional_id, found.producer_id, found.producer_epoch, found.group_id) == (*OF, "group")


@pytest.mark.parametrize(("api", "version"), versions("txn_offset_commit"))
def test_offsets_are_committed_for_a_group_without_members(api: str, version: int) -> None:
    found = written(api, version, lambda me, to, of: requests.commit_offsets(me, to, of, "group", OFFSETS))
    assert (found.transactional_id, found.producer_id, found.producer_epoch, found.group_id) == (*OF, "group")
    rows = {
        Partition(topic.name, each.partition_index): (each.committed_offset, each.committed_metadata)
        for topic in found.topics
        for each in topic.partitions
    }
    assert rows == {at: (offset, f"{metadata}\0") for at, (offset, metadata) in OFFSETS.items()}
    assert (getattr(found, "generation_id", -1), getattr(found, "member_id", "")) == (-1, "")


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize(("api", "version"), versions("end_txn"))
def test_a_transaction_ends_as_it_is_meant_to(api: str, version: int, commit: bool) -> None:
    found = written(api, version, lambda me, to, of: requests.end_transaction(me, to, of, commit=commit))
    assert (found.transactional_id, found.producer_id, found.producer_epoch, found.committed) == (*OF, commit)


def gives_producer(api: str, version: int) -> bool:
    """In the second protocol EndTxn gives the next epoch."""
    return api == "init_producer_id" or (api == "end_txn" and version >= 5)


def answer(api: str, version: int) -> bytes:
    """A coordinator's response, behind its correlation id."""
    offsets = api == "txn_offset_commit"
    code, rows = ("error_code", "partitions") if offsets else ("partition_error_code", "results_by_partition")
    topics = [
        {
            "name": topic,
            rows: [{"partition_index": at.partition, code: ANSWERED[at]} for at in ANSWERED if at.topic == topic],
        }
        for topic in ("a", "b")
    ]
    fields: dict[str, Any] = {"throttle_time": timedelta(seconds=3)}
    if offsets:
        fields["topics"] = topics
    elif api == "add_partitions_to_txn":
        fields["results_by_topic_v3_and_below"] = topics
    else:
        fields["error_code"] = 51
    if gives_producer(api, version):
        fields |= {"producer_id": 2**40, "producer_epoch": 3}
    return response(api, version, 7, fields)[8:]


@pytest.mark.parametrize(("api", "version"), versions(*APIS))
def test_answers_are_read(api: str, version: int) -> None:
    found = requests.read(api, version, answer(api, version))
    if api in ("txn_offset_commit", "add_partitions_to_txn"):
        assert found == Coordinated(0, ANSWERED, -1, -1, 3.0)
    else:
        producer = (2**40, 3) if gives_producer(api, version) else (-1, -1)
        assert found == Coordinated(51, {}, *producer, 3.0)


@pytest.mark.parametrize(("api", "version"), versions(*APIS))
def test_bytes_that_are_no_answer_are_refused(api: str, version: int) -> None:
    data, draw = answer(api, version), random.Random(1)
    for end in range(len(data)):
        with pytest.raises(BadResponse):
            requests.read(api, version, data[:end])
    for _ in range(100):
        altered = bytearray(data)
        altered[draw.randrange(len(data))] = draw.randrange(256)
        with suppress(BadResponse):
            requests.read(api, version, bytes(altered))
