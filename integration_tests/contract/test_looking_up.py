"""ListOffsets, OffsetForLeaderEpoch, Metadata and ApiVersions, request by request."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kio.schema.errors import ErrorCode as E

from integration_tests.harness import clients, wire
from integration_tests.harness.batches import batch, record
from integration_tests.harness.broker import BrokerHandle
from integration_tests.harness.transacting import TransactionClient
from integration_tests.harness.wire import MILLISECOND, Wire

T0 = 1_700_000_000_000
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING = -1, -2, -3, -4, -5, -6
NOBODY = uuid.UUID(int=0)
NOTHING = (-1, -1)


class Asker:
    """A topic of one partition, and what is asked about it."""

    def __init__(self, connection: Wire, bootstrap: str, topic: str) -> None:
        self.wire, self.bootstrap, self.topic = connection, bootstrap, topic

    def put(self, records: bytes) -> None:
        data = [{"name": self.topic, "partition_data": [{"index": 0, "records": records}]}]
        timeout = 5_000 * MILLISECOND
        answer = self.wire("produce", 9, topic_data=data, transactional_id=None, acks=-1, timeout=timeout)
        assert answer.responses[0].partition_responses[0].error_code is E.none

    def one(self, timestamp: int, version: int = 10, **more: Any) -> Any:
        """The answer about the partition."""
        fields: dict[str, Any] = {"replica_id": -1, "isolation_level": more.pop("isolation_level", 0)}
        asked = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": timestamp, **more}
        if version >= 10:
            fields["timeout"] = 5_000 * MILLISECOND
        topics = [{"name": self.topic, "partitions": [asked]}]
        return self.wire("list_offsets", version, topics=topics, **fields).topics[0].partitions[0]

    def find(self, timestamp: int, version: int = 10, **more: Any) -> tuple[int, int]:
        """Offset and timestamp."""
        found = self.one(timestamp, version, **more)
        assert found.error_code is E.none, found
        return found.offset, found.timestamp

    def epoch_end(self, epoch: int, current: int = -1, partition: int = 0) -> tuple[E, int, int]:
        """OffsetForLeaderEpoch: error, epoch, end offset."""
        asked = {"partition": partition, "current_leader_epoch": current, "leader_epoch": epoch}
        topics = [{"topic": self.topic, "partitions": [asked]}]
        found = self.wire("offset_for_leader_epoch", 4, replica_id=-2, topics=topics).topics[0].partitions[0]
        return found.error_code, found.leader_epoch, found.end_offset

    def metadata(self, *topics: dict[str, Any], version: int = 12, create: bool = False) -> list[Any]:
        """Topics of the answer."""
        fields: dict[str, Any] = {"allow_auto_topic_creation": create, "include_topic_authorized_operations": False}
        return list(self.wire("metadata", version, topics=list(topics), **fields).topics)


@pytest.fixture
def asker(target: BrokerHandle, unique: Callable[[str], str]) -> Iterator[Asker]:
    topic = unique("asked")
    clients.create_topic(target.bootstrap, topic)
    with wire.connected(target.bootstrap) as connection:
        yield Asker(connection, target.bootstrap, topic)


def test_offsets_of_an_empty_partition(asker: Asker) -> None:
    assert asker.find(LATEST) == asker.find(EARLIEST) == asker.find(EARLIEST_LOCAL) == (0, -1)
    assert asker.find(MAX_TIMESTAMP) == asker.find(LATEST_TIERED) == asker.find(T0) == NOTHING


def test_offsets_by_time_and_by_name(asker: Asker) -> None:
    asker.put(
        batch([record(), record(offset=1, after_ms=30), record(offset=2, after_ms=10)], timestamp_ms=T0, span_ms=30)
    )
    asker.put(batch([record(after_ms=20), record(offset=1, after_ms=30)], timestamp_ms=T0, span_ms=30))
    asker.put(batch([record()], timestamp_ms=T0 + 5))
    asked = {T0 - 1: 0, T0: 0, T0 + 1: 1, T0 + 30: 1}
    times = {0: T0, 1: T0 + 30}
    assert {at: asker.find(at) for at in asked} == {at: (offset, times[offset]) for at, offset in asked.items()}
    assert asker.find(T0 + 31) == NOTHING
    assert asker.find(MAX_TIMESTAMP) == (1, T0 + 30)
    assert (asker.find(EARLIEST), asker.find(LATEST)) == ((0, -1), (6, -1))
    clients.delete_records(asker.bootstrap, asker.topic, 0, 2)
    assert asker.find(EARLIEST) == asker.find(EARLIEST_LOCAL) == (2, -1)
    assert asker.find(T0 - 1) == (2, T0 + 10)
    assert asker.find(T0 + 25) == (4, T0 + 30)


@pytest.mark.parametrize("version", [1, 3, 5, 7, 9, 11])
def test_versions_and_their_special_times(asker: Asker, version: int) -> None:
    asker.put(batch([record()], timestamp_ms=T0))
    assert asker.find(LATEST, version)[0] == 1
    assert asker.find(EARLIEST, version)[0] == 0
    assert asker.find(T0, version) == (0, T0)
    since = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING: 11}
    offsets = {MAX_TIMESTAMP: 0, EARLIEST_LOCAL: 0, LATEST_TIERED: -1, EARLIEST_PENDING: -1}
    for special, first in since.items():
        found = asker.one(special, version)
        expected = (E.none, offsets[special]) if version >= first else (E.unsupported_version, -1)
        assert (found.error_code, found.offset) == expected, special


def test_the_leader_epoch_of_an_offset_and_of_the_one_who_asks(asker: Asker) -> None:
    asker.put(batch([record()], timestamp_ms=T0))
    current = asker.one(LATEST).leader_epoch
    assert current == 0, "the partition is new"
    assert (
        asker.one(T0).leader_epoch
        == asker.one(EARLIEST).leader_epoch
        == asker.one(MAX_TIMESTAMP).leader_epoch
        == current
    )
    assert asker.one(T0 + 1).leader_epoch == -1
    assert asker.one(LATEST, current_leader_epoch=current).error_code is E.none
    assert asker.one(LATEST, current_leader_epoch=current + 1).error_code is E.unknown_leader_epoch
    assert asker.epoch_end(current) == asker.epoch_end(current, current) == (E.none, current, 1)
    assert asker.epoch_end(current + 1) == (E.none, -1, -1)
    assert asker.epoch_end(current, current + 1)[0] is E.unknown_leader_epoch
    assert asker.epoch_end(0, partition=5)[0] is E.unknown_topic_or_partition


def test_offsets_around_an_open_transaction(client: TransactionClient) -> None:
    producer = client.fresh()
    asker = Asker(client.wire, "", client.topic)
    assert client.produce(producer, 0, count=2, version=12) == (E.none, 0)
    assert (asker.find(LATEST)[0], asker.find(LATEST, isolation_level=1)[0]) == (2, 0)
    assert asker.find(MAX_TIMESTAMP)[0] >= 0
    assert asker.find(0)[0] == 0
    assert asker.one(0, isolation_level=1).offset == -1
    assert client.end_and_bump(producer)[0] is E.none
    assert client.end_and_bump(producer)[0] is E.none
    assert asker.find(LATEST, isolation_level=1)[0] == 3
    assert asker.find(0, isolation_level=1)[0] == 0


def test_topics_by_name_and_by_id(asker: Asker) -> None:
    (known,) = asker.metadata({"name": asker.topic, "topic_id": NOBODY})
    assert (known.error_code, known.name, len(known.partitions)) == (E.none, asker.topic, 1)
    assert known.topic_id not in (None, NOBODY)
    assert known.partitions[0].error_code is E.none
    (again,) = asker.metadata({"name": None, "topic_id": known.topic_id})
    assert again == known
    (lost,) = asker.metadata({"name": None, "topic_id": uuid.uuid4()})
    assert (lost.error_code, lost.name) == (E.unknown_topic_id, None)
    assert asker.metadata() == []
    (wrong,) = asker.metadata({"name": "no such name!", "topic_id": NOBODY}, create=True)
    assert wrong.error_code is E.invalid_topic_exception


def test_topics_are_not_created_where_that_is_switched_off(asker: Asker) -> None:
    name = f"{asker.topic}-more"
    for version in (4, 12):
        (found,) = asker.metadata({"name": name, "topic_id": NOBODY}, create=True, version=version)
        assert found.error_code is E.unknown_topic_or_partition
    assert name not in clients.topics(asker.bootstrap)


@pytest.mark.parametrize("version", [3, 4])
def test_features_that_are_finalized(asker: Asker, version: int) -> None:
    answer = asker.wire("api_versions", version, client_software_name="wire", client_software_version="1")
    finalized = {str(each.name): each.max_version_level for each in answer.finalized_features}
    assert finalized["transaction.version"] == 2
    supported = {str(each.name): (each.min_version, each.max_version) for each in answer.supported_features}
    assert supported.get("transaction.version") == ((0, 2) if version >= 4 else None)
    keys = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
    assert keys[0] == (0, 13), "librdkafka compresses only for brokers that say they know Produce 0"
    assert [keys[key] for key in (1, 2, 22, 24, 25, 26, 27, 28)] == [
        (4, 18), (1, 11), (0, 5), (0, 5), (0, 4), (0, 5), (1, 2), (0, 5)
    ]  # fmt: skip
