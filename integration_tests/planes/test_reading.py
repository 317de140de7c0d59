"""What one partition of the source meets stops that partition: gone records, a topic that is not there, many epochs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from contextlib import closing

import pytest
from confluent_kafka import Consumer, KafkaError, Message

from integration_tests.harness import clients
from integration_tests.harness.broker import BrokerHandle
from integration_tests.planes.conftest import SOON_S, MakePlane, make_flow, only_records
from replicator.flow.topics import questions_of
from replicator.kafka import metadata
from replicator.model.errors import Incident, TopicMissing
from replicator.model.partition import EndRecords, LogEnds, Partition, Seek
from replicator.planes.contract import ReadPlan
from replicator.planes.records import record_reader
from replicator.planes.records.record_reader import LogReader

MakePair = Callable[..., tuple[str, str]]
MANY = 100
LARGE, LARGE_RECORDS = 600_000, 30
RETENTION_MS = 7 * 24 * 3_600_000  # Kafka's default


def test_records_that_are_gone_stop_their_partition_only(
    source: BrokerHandle, pair: MakePair, make_plane: MakePlane
) -> None:
    name, copy = pair(2)
    writer = clients.producer(source.bootstrap)
    for partition in range(2):
        clients.put(writer, name, *[b"v"] * 10, partition=partition, key=b"k")
    clients.delete_records(source.bootstrap, name, 0, 5)
    driven = make_plane({name: (2, copy)})
    driven.seek()
    driven.read(10)
    driven.read(1, until=lambda result: bool(driven.failed))
    error = driven.failed[Partition(name, 0)]
    assert isinstance(error, Incident)
    assert (error.name, error.offset, error.partition) == ("source_records_gone", 0, 0)


@pytest.mark.tier("full")
def test_large_records_between_missing_ones_are_not_read(
    source: BrokerHandle, pair: MakePair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `read` what the reader was given: the client may have fetched a few more."""
    name, _ = pair(1)
    clients.put(clients.producer(source.bootstrap), name, *[b"v" * LARGE] * LARGE_RECORDS, key=b"k")
    read = list[int]()

    class Counting(Consumer):
        def consume(self, count: int = 1, timeout: float = -1) -> list[Message]:
            found = super().consume(count, timeout)
            read.extend(message.offset() or 0 for message in found if not message.error())
            return found

    monkeypatch.setattr(record_reader, "Consumer", Counting)
    flow = make_flow(source.bootstrap, source.bootstrap)
    spans = [(0, 1), (LARGE_RECORDS - 12, LARGE_RECORDS - 11), (LARGE_RECORDS - 1, LARGE_RECORDS)]
    with closing(LogReader(flow, flow.source, threading.Event())) as reader:
        found = [one for some in reader.identities(Partition(name, 0), spans) for one in some]
    assert [(one.offset, one.size) for one in found] == [(first, LARGE + 1) for first, _ in spans]
    assert read == [0, *range(LARGE_RECORDS - 12, LARGE_RECORDS)]


def test_a_topic_that_is_not_there_is_told_with_the_next_poll(
    source: BrokerHandle, pair: MakePair, make_plane: MakePlane
) -> None:
    name, copy = pair(1)
    clients.put(clients.producer(source.bootstrap), name, b"v", key=b"k")
    driven = make_plane({name: (1, copy), f"{name}-gone": (1, f"{copy}-gone")})
    driven.seek()
    driven.read(1)
    error = driven.failed[Partition(f"{name}-gone", 0)]
    assert isinstance(error, TopicMissing)
    assert f"cluster 'east': cannot read {name}-gone[0]" in str(error)


def test_a_partition_that_is_not_there_is_told(source: BrokerHandle, pair: MakePair, make_plane: MakePlane) -> None:
    name, copy = pair(1)
    driven = make_plane({name: (2, copy)})
    driven.seek()
    driven.read(1, until=lambda result: bool(driven.failed))
    assert isinstance(driven.failed[Partition(name, 1)], TopicMissing)


@only_records("librdkafka asks for metadata by itself")
def test_what_is_not_there_is_told_where_the_first_answer_was_late(
    source: BrokerHandle, pair: MakePair, make_plane: MakePlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client has the metadata of its topics by the time that it is assigned, and so says nothing by itself."""
    learn, calls = metadata.learn, list[set[str]]()

    def late(consumer: Consumer, topics: Collection[str]) -> dict[str, Collection[int] | KafkaError]:
        calls.append(set(topics))
        found = learn(consumer, topics)
        return found if len(calls) > 1 else {}

    monkeypatch.setattr(metadata, "learn", late)
    name, copy = pair(1)
    driven = make_plane({name: (2, copy), f"{name}-gone": (1, f"{copy}-gone")})
    driven.seek()
    driven.read(1, until=lambda result: len(driven.failed) == 2)
    assert driven.failed.keys() == {Partition(name, 1), Partition(f"{name}-gone", 0)}
    assert all(isinstance(error, TopicMissing) for error in driven.failed.values())
    assert calls == [{name, f"{name}-gone"}] * 2


def test_the_epochs_of_many_partitions_are_checked_at_once(
    source: BrokerHandle, pair: MakePair, make_plane: MakePlane
) -> None:
    name, copy = pair(MANY)
    writer = clients.producer(source.bootstrap)
    for partition in range(MANY):
        writer.produce(name, b"a", b"k", partition)
        writer.produce(name, b"b", b"k", partition)
    assert writer.flush(30) == 0
    driven = make_plane({name: (MANY, copy), f"{name}-gone": (1, f"{copy}-gone")})
    began = time.monotonic()
    driven.seek(start=1, epoch=0)
    took = time.monotonic() - began
    assert took < SOON_S, took  # not one after the other
    driven.read(MANY)
    assert driven.failed.keys() == {Partition(f"{name}-gone", 0)}
    assert driven.plane.flush().copied.keys() == {Partition(name, number) for number in range(MANY)}


def test_a_position_behind_the_end_of_its_epoch_stops_its_partition_only(
    source: BrokerHandle, pair: MakePair, make_plane: MakePlane
) -> None:
    name, copy = pair(2)
    writer = clients.producer(source.bootstrap)
    for partition in range(2):
        clients.put(writer, name, *[b"v"] * 10, partition=partition, key=b"k")
    driven = make_plane({name: (2, copy)})
    driven.plane.seek({Partition(name, 0): ReadPlan(Seek(15, 0)), Partition(name, 1): ReadPlan(Seek(5, 0), until=8)})
    driven.read(3)
    driven.read(1, until=lambda result: bool(driven.failed))
    error = driven.failed[Partition(name, 0)]
    assert isinstance(error, Incident)
    # A fetch at an offset that isn't there may be answered first; the lane judges that by the ends of the log.
    assert error.name in ("source_truncated", "source_records_gone")
    assert error.offset == 15
    assert driven.plane.poll(1, 0).ends[Partition(name, 1)].offset == 8


def test_records_that_were_fetched_before_are_heard_when_they_are_handed_over(
    source: BrokerHandle, pair: MakePair, make_plane: MakePlane
) -> None:
    """Each transaction that holds any asks for the topics' ids, and keeps to what limits there are."""
    name, copy = pair()
    writer = clients.producer(source.bootstrap)
    for _ in range(10):
        clients.put(writer, name, *[b"v"] * 10, key=b"k")
    driven = make_plane({name: (1, copy)})
    driven.seek()
    count = 0
    while count < 100:
        polled = driven.plane.poll(10, SOON_S)
        assert not polled.records or polled.heard == {Partition(name, 0)}
        count += polled.records
        driven.plane.flush()
        driven.plane.commit({})


def test_a_leader_that_was_started_again_is_asked_under_its_new_epoch(source: BrokerHandle, pair: MakePair) -> None:
    """librdkafka's admin client is refused from then on, with FENCED_LEADER_EPOCH."""
    name, _ = pair(3)
    flow = make_flow(source.bootstrap, source.bootstrap)
    at = [Partition(name, number) for number in range(3)]
    with closing(questions_of(flow, "source")) as cluster:
        ends = cluster.log_ends(at)
        assert all(isinstance(ends[each], LogEnds) for each in at)
        for _ in range(2):
            source.kill()
            source.restart()
            again = cluster.log_ends(at)
            for each in at:
                before, now = ends[each], again[each]
                assert isinstance(before, LogEnds)
                assert isinstance(now, LogEnds)
                assert now._replace(leader_epoch=-1) == before._replace(leader_epoch=-1)
                assert now.leader_epoch > before.leader_epoch
            ends = again
        assert cluster.offsets_retention_ms() == RETENTION_MS


def test_a_cluster_answers_for_each_partition(source: BrokerHandle, pair: MakePair) -> None:
    name, _ = pair(2)
    writer = clients.transactional(source.bootstrap, f"{name}-writer")
    writer.begin_transaction()
    clients.put(writer, name, b"a", b"b", key=b"k", timestamp=1_700_000_000_000)
    writer.commit_transaction(30)
    writer.begin_transaction()
    clients.put(writer, name, b"c", key=b"k")
    flow = make_flow(source.bootstrap, source.bootstrap, limits={"request_timeout_ms": 5_000})
    here, there = Partition(name, 0), Partition(f"{name}-gone", 0)
    with closing(questions_of(flow, "source")) as cluster:
        ends = cluster.log_ends([here, Partition(name, 1), there, Partition(name, 9)])
        topic_id = cluster.topic_ids([name]).wait()[name]
        told, empty = ends[here], ends[Partition(name, 1)]
        assert isinstance(told, LogEnds)
        assert isinstance(empty, LogEnds)
        assert told[:4] == (str(topic_id), 0, 3, 4)
        assert told.leader_epoch >= 0
        assert empty[:4] == (str(topic_id), 0, 0, 0)
        assert isinstance(ends[there], TopicMissing)
        assert isinstance(ends[Partition(name, 9)], TopicMissing)
        assert isinstance(cluster.topic_ids([there.topic]).wait()[there.topic], TopicMissing)
        at_time = cluster.offsets_at([here, Partition(name, 1)], 1_600_000_000_000)
        assert at_time == {here: 0, Partition(name, 1): -1}
        assert cluster.end_records({here: 0}, {here: 4}) == {here: EndRecords((0, 1), -1)}
        assert cluster.end_records({here: 1}, {here: 4}) == {here: EndRecords((1,), 3)}
        assert cluster.holds(here, 1)
        assert not cluster.holds(here, 2), "the marker"
        assert not cluster.compacted(name)
        assert cluster.missing_rights([name]) == {}
        assert cluster.offsets_retention_ms() == RETENTION_MS
    writer.abort_transaction(30)
