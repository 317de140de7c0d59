"""The source reader: what concerns one partition stops that partition, and no text names a topic that isn't known."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError

from replicator.model.errors import Incident, NotAllowed, ReplicatorError, Retriable, TopicMissing
from replicator.model.partition import Partition, Seek
from replicator.planes.contract import ReadPlan
from replicator.planes.records import oversized, source
from replicator.planes.records.source import Source
from tests.replicator.kafka.test_producer import make_flow
from tests.replicator.planes.fakes import Consumers, FakeConsumer, failed, records

A, B = Partition("a", 0), Partition("b", 1)


@pytest.fixture
def consumers(monkeypatch: pytest.MonkeyPatch) -> Consumers:
    made = Consumers()
    monkeypatch.setattr(source, "Consumer", made)
    monkeypatch.setattr(oversized, "Consumer", made)
    return made


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def reader(consumers: Consumers, said: list[str]) -> Source:
    made = Source(make_flow(), said.append)
    made.seek({A: ReadPlan(Seek(0, -1)), B: ReadPlan(Seek(0, -1))})
    return made


@pytest.fixture
def client(consumers: Consumers, reader: Source) -> FakeConsumer:
    return consumers.made[0]


@pytest.mark.parametrize(
    ("code", "text", "kind", "name"),
    [
        (KafkaError.UNKNOWN_TOPIC_OR_PART, "", TopicMissing, ""),
        (KafkaError._UNKNOWN_PARTITION, "", TopicMissing, ""),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "", NotAllowed, ""),
        (
            KafkaError._AUTO_OFFSET_RESET,
            "requested offset not available on the broker",
            Incident,
            "source_records_gone",
        ),
        (KafkaError._AUTO_OFFSET_RESET, "Partition log truncation detected at 5", Incident, "source_truncated"),
        (KafkaError._AUTO_OFFSET_RESET, "No epoch found less or equal to 5", Incident, "source_truncated"),
        (KafkaError._AUTO_OFFSET_RESET, "failed to query logical offset", Retriable, ""),
        (KafkaError._BAD_MSG, "CRC32C mismatch", Incident, "source_corrupt"),
        (KafkaError.MSG_SIZE_TOO_LARGE, "might be too large to fetch", Incident, "record_too_large"),
    ],
)
def test_errors_of_a_partition(
    reader: Source, client: FakeConsumer, code: int, text: str, kind: type[ReplicatorError], name: str
) -> None:
    client.queue += [*records("a", 0, 0, 1), failed(code, "a", 0, None, text), *records("a", 0, 2), *records("b", 1, 0)]
    found = reader.poll(100, 0)
    assert [record.offset() for record in found.groups[A]] == [0, 1]
    assert B in found.groups
    (error,) = found.failed.values()
    assert type(error) is kind
    assert found.failed.keys() == {A}
    assert "a" in str(error)
    assert found.heard == {A, B}
    if isinstance(error, Incident):
        assert (error.name, error.topic, error.partition, error.offset) == (name, "a", 0, 2)
    if isinstance(error, NotAllowed):
        assert error.partitions == {A}
        assert "cluster 'east': cannot read a[0]: the user needs Read on topic 'a'" in str(error)


def test_a_failed_partition_is_told_once_and_not_read_on(reader: Source, client: FakeConsumer) -> None:
    client.queue += [failed(KafkaError.TOPIC_AUTHORIZATION_FAILED, "a"), *records("a", 0, 0), *records("b", 1, 0)]
    found = reader.poll(100, 0)
    assert (found.groups.keys(), found.failed.keys()) == ({B}, {A})
    client.queue += [failed(KafkaError.TOPIC_AUTHORIZATION_FAILED, "a"), *records("a", 0, 1)]
    found = reader.poll(100, 0)
    assert (found.groups, found.failed) == ({}, {})
    reader.seek({A: ReadPlan(Seek(0, -1))})
    client.queue += records("a", 0, 0)
    assert reader.poll(100, 0).groups.keys() == {A}


@pytest.mark.parametrize("code", [KafkaError._BAD_MSG, KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError._TRANSPORT])
def test_an_error_without_a_topic_is_of_no_partition(
    reader: Source, client: FakeConsumer, said: list[str], code: int
) -> None:
    """As of librdkafka's FindCoordinator, which this reader has no use for."""
    client.queue += [failed(code, None, 0, None, "FindCoordinator response error: whatever"), *records("a", 0, 0)]
    found = reader.poll(100, 0)
    assert found.failed == {}
    assert found.groups.keys() == {A}
    if code == KafkaError.GROUP_AUTHORIZATION_FAILED:  # a right that nothing here needs
        assert said == []
    else:
        assert len(said) == 1
        assert "None" not in said[0]


@pytest.mark.parametrize("code", [KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError._TRANSPORT, KafkaError._TIMED_OUT])
def test_what_librdkafka_waits_out_is_only_told(
    reader: Source, client: FakeConsumer, said: list[str], code: int
) -> None:
    client.queue += [failed(code, "a"), *records("a", 0, 0)]
    found = reader.poll(100, 0)
    assert (found.failed, found.groups.keys(), len(said)) == ({}, {A}, 1)
    assert "cannot read a[0]" in said[0]


def test_an_authorization_error_of_the_client_stops_the_topic_that_it_names(
    reader: Source, client: FakeConsumer
) -> None:
    client.tell(KafkaError.TOPIC_AUTHORIZATION_FAILED, "Topic b: Broker: Topic authorization failed")
    found = reader.poll(100, 0)
    assert found.failed.keys() == {B}
    assert found.heard == {B}
    client.tell(KafkaError.TOPIC_AUTHORIZATION_FAILED, "Topic b: Broker: Topic authorization failed")
    assert reader.poll(100, 0).failed == {}, "once"


def test_a_partition_that_is_not_there_is_named_by_the_client(reader: Source, client: FakeConsumer) -> None:
    client.tell(KafkaError._UNKNOWN_PARTITION, "b [1]: desired partition is not available (Local: Unknown partition)")
    assert isinstance(reader.poll(100, 0).failed[B], TopicMissing)


def test_a_topic_that_the_cluster_does_not_list_is_told_at_once(consumers: Consumers) -> None:
    reader = Source(make_flow(), print)
    consumers.made[0].lists = True
    consumers.made[0].topics = {"a": SimpleNamespace(error=None, partitions={0: None})}
    reader.seek({at: ReadPlan(Seek(0, -1)) for at in (A, Partition("a", 1), B)})
    found = reader.poll(100, 0)
    assert {at: type(error) for at, error in found.failed.items()} == {Partition("a", 1): TopicMissing, B: TopicMissing}


def test_epochs_are_checked_without_waiting_for_those_that_start_late(consumers: Consumers) -> None:
    reader = Source(make_flow(), print)
    client = consumers.made[0]
    many = [Partition("a", number) for number in range(1_000)]
    client.starting = {("a", 7): 1_000_000, ("a", 500): 1_000_000}
    began = time.monotonic()
    reader.seek({at: ReadPlan(Seek(5, 2)) for at in many})
    reader.poll(100, 1)
    assert len(client.sought) == 998
    client.starting = {("a", 7): 2, ("a", 500): 2}
    client.queue += [*records("a", 7, 5, 6), *records("a", 8, 5)]
    assert reader.poll(100, 1).groups.keys() == {Partition("a", 8)}, "the others are read again once they are checked"
    for _ in range(3):
        reader.poll(100, 0)
    assert len(client.sought) == 1_000
    client.queue += records("a", 7, 5)
    assert reader.poll(100, 0).groups.keys() == {Partition("a", 7)}
    assert time.monotonic() - began < 2


def test_epochs_are_checked_at_each_seek(consumers: Consumers) -> None:
    """The log may have been cut while the partition was not read, under a leader epoch that the client knows by now."""
    reader = Source(make_flow(), print)
    client = consumers.made[0]
    reader.seek({B: ReadPlan(Seek(5, 2))})
    reader.seek({A: ReadPlan(Seek(1_000, 4)), B: ReadPlan(Seek(9, 2)), Partition("c", 0): ReadPlan(Seek(0, -1))})
    assert client.sought == [("b", 1, 5), ("a", 0, 1_000), ("b", 1, 9)]


def test_a_check_that_another_seek_drops_is_made_again(consumers: Consumers) -> None:
    reader = Source(make_flow(), print)
    client = consumers.made[0]
    client.starting = {("a", 0): 1_000_000}
    reader.seek({A: ReadPlan(Seek(5, 2))})
    assert client.sought == []
    client.starting = {}
    reader.seek({A: ReadPlan(Seek(5, 2)), B: ReadPlan(Seek(5, 2))})
    reader.poll(100, 0)
    assert client.sought == [("a", 0, 5), ("b", 1, 5)]


def test_a_partition_that_cannot_be_checked_fails_alone(consumers: Consumers, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Source(make_flow(), print)
    client = consumers.made[0]
    client.starting = {("a", 0): 1_000_000}
    reader.seek({A: ReadPlan(Seek(5, 2)), B: ReadPlan(Seek(5, 2))})
    assert reader.poll(100, 0).failed == {}
    late_s = time.monotonic() + 60
    monkeypatch.setattr(time, "monotonic", lambda: late_s)
    found = reader.poll(100, 0)
    assert isinstance(found.failed[A], Retriable)
    assert "check a[0] for truncation" in str(found.failed[A])
    assert client.sought == [("b", 1, 5)]


def test_nothing_at_or_behind_a_bound_is_copied(consumers: Consumers) -> None:
    reader = Source(make_flow(), print)
    reader.seek({A: ReadPlan(Seek(0, -1), until=2), B: ReadPlan(Seek(0, -1), spans=((1, 2), (4, 6)))})
    consumers.made[0].queue += [*records("a", 0, 0, 1, 2, 3), *records("b", 1, *range(8))]
    found = reader.poll(100, 0)
    assert [record.offset() for record in found.groups[A]] == [0, 1]
    assert [record.offset() for record in found.groups[B]] == [1, 4, 5]
    assert found.ends == {A: Seek(2, 4), B: Seek(6, 4)}
    assert sorted(consumers.made[0].unassigned) == [("a", 0), ("b", 1)], "nothing more is asked for"


def test_what_has_reached_its_bound_before_it_could_be_checked_is_not_waited_for(consumers: Consumers) -> None:
    reader = Source(make_flow(), print)
    client = consumers.made[0]
    client.starting = {("a", 0): 1_000_000}
    reader.seek({A: ReadPlan(Seek(2, 1), until=2), B: ReadPlan(Seek(0, -1))})
    client.queue += records("b", 1, 0)
    reader.poll(100, 0)
    assert client.unassigned == [("a", 0)]
    client.starting = {}
    reader.poll(100, 0)
    assert client.sought == []


def test_a_batch_that_is_too_large_behind_a_bound_is_not_asked_for(consumers: Consumers) -> None:
    reader = Source(make_flow(), print)
    client = consumers.made[0]
    reader.seek({A: ReadPlan(Seek(0, -1), until=2)})
    client.queue += records("a", 0, 0, 1)
    found = reader.poll(100, 0)
    assert (client.unassigned, found.ends) == ([("a", 0)], {})
    client.tell(KafkaError._BAD_MSG, TOO_LARGE)  # of a request that was under way
    assert reader.poll(100, 0).failed == {}


TOO_LARGE = "127.0.0.1:9092/1: Receive failed: Invalid response size 30000204 (0..17825792): increase it"


def test_a_response_that_is_too_large_is_looked_for_partition_by_partition(
    reader: Source, client: FakeConsumer, consumers: Consumers, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.queue += [*records("a", 0, 0, 1, 2), *records("b", 1, 0)]
    assert reader.poll(100, 0).failed == {}
    asked: list[tuple[str, int]] = []

    def poll(probe: FakeConsumer, timeout: float) -> object:
        at = probe.assigned[0]
        if probe is client:
            return None
        asked.append((at.topic, at.offset))
        if at.topic == "a":
            probe.tell(KafkaError._BAD_MSG, TOO_LARGE)
            return None
        return records("b", 1, at.offset)[0]

    monkeypatch.setattr(FakeConsumer, "poll", poll)
    client.tell(KafkaError._BAD_MSG, TOO_LARGE)
    found = reader.poll(100, 0)
    error = found.failed[A]
    assert isinstance(error, Incident)
    assert (error.name, error.offset) == ("record_too_large", 3)
    assert "30000204" in error.detail
    assert client.unassigned == [("a", 0)]
    assert ("a", 3) in asked
    assert reader.poll(100, 0).failed == {}, "once"
