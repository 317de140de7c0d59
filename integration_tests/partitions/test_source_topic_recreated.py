"""A source topic that is another one under the same name: nothing of it is copied under the old topic's position."""

from __future__ import annotations

import base64
import uuid

import pytest

from integration_tests.harness import clients
from integration_tests.harness.broker import BrokerHandle
from integration_tests.harness.replicator import Event, Replicator
from integration_tests.harness.two_topics import TwoTopics, assert_told, numbered
from integration_tests.partitions.conftest import MakeTwoTopics

OLD, NEW = 100, 5_000
# Discovery comes too late to find it: what is about to be committed must be checked.
SELDOM = {"discovery_interval_ms": 20_000}
FOUND_S = 120.0
# Here it doesn't come at all: positions are checked before they are committed again, and where nothing is read.
NEVER = {"discovery_interval_ms": 120_000, "recommit_interval_ms": 1_000}
CHECKED_S = 30.0


def recreate(two: TwoTopics, records: int = NEW) -> tuple[uuid.UUID, uuid.UUID]:
    """Delete the first topic, make it anew and write to it; the ids of both."""
    before = clients.topic_id(two.source, two.first)
    clients.recreate_topic(two.source, two.first)
    two.put(two.first, numbered("new", records))
    return before, clients.topic_id(two.source, two.first)


def written(topic_id: uuid.UUID) -> set[str]:
    """How a topic id may be written."""
    encoded = (base64.b64encode(topic_id.bytes), base64.urlsafe_b64encode(topic_id.bytes))
    return {str(topic_id), topic_id.hex, *(form.decode().rstrip("=") for form in encoded)}


def incident(worker: Replicator, two: TwoTopics, timeout_s: float = FOUND_S) -> Event:
    """What the worker tells of the first topic."""
    return worker.wait_event("incident", name="source_topic_recreated", topic=two.first, timeout_s=timeout_s)


def assert_found(worker: Replicator, two: TwoTopics, ids: tuple[uuid.UUID, uuid.UUID]) -> None:
    """The first topic stops and says what would have been skipped; nothing of the new one is copied."""
    try:
        found = incident(worker, two)
    finally:
        copied = two.values(two.first)
        assert copied == numbered("old", OLD), f"{len(copied) - OLD} records of the new topic, from {copied[OLD]!r} on"
    assert (found["partition"], found["offset"]) == (0, OLD)
    assert_told(found, "offsets 0 to 99")
    for topic_id in ids:
        assert any(form in found["detail"] for form in written(topic_id)), f"{topic_id} in {found['detail']}"
    two.assert_second_goes_on()
    two.assert_stops(worker)
    assert two.values(two.first) == numbered("old", OLD)
    assert two.position(two.first).offset == OLD


def test_recreated_under_the_running_worker(make_two_topics: MakeTwoTopics) -> None:
    two = make_two_topics(limits=SELDOM)
    worker = two.running(OLD)
    assert_found(worker, two, recreate(two))


@pytest.mark.tier(embedded="full")
def test_recreated_while_the_worker_is_suspended(make_two_topics: MakeTwoTopics) -> None:
    two = make_two_topics(limits=SELDOM)
    worker = two.running(OLD)
    worker.suspend()
    ids = recreate(two)
    worker.resume()
    assert_found(worker, two, ids)


@pytest.mark.tier("full")
def test_recreated_while_another_topic_has_an_incident_of_discovery(make_two_topics: MakeTwoTopics) -> None:
    """A third topic has grown although the flow says `new_partitions: stop`: that is no news of the first one."""
    two = make_two_topics(new_partitions="stop")
    grown = f"{two.name}.grown"
    clients.create_topic(two.source, grown)
    two.flow.file.write(topics=[two.first, two.second, grown])
    worker = two.running(OLD)
    clients.grow_topic(two.source, grown, 2)
    worker.wait_event("incident", name="source_partitions_added")
    worker.suspend()
    ids = recreate(two)
    worker.resume()
    assert_found(worker, two, ids)


@pytest.mark.tier("full", kafka="long")
def test_recreated_where_the_old_topic_had_the_higher_leader_epoch(
    make_two_topics: MakeTwoTopics, source: BrokerHandle
) -> None:
    """librdkafka takes the new topic's metadata for outdated then, and reads nothing: no record, error or EOF."""
    two = make_two_topics(limits={"discovery_interval_ms": 120_000})
    worker = two.running(OLD)
    source.kill()
    source.restart()
    for topic in (two.first, two.second):
        clients.settle(two.source, topic, 1)
        two.put(topic, [b"after the restart"])
        two.wait_position(topic, OLD + 1)
    worker.suspend()
    ids = recreate(two)
    worker.resume()
    found = incident(worker, two, CHECKED_S)
    assert (found["partition"], found["offset"]) == (0, OLD + 1)
    assert_told(found, "offsets 0 to 100")
    for topic_id in ids:
        assert any(form in found["detail"] for form in written(topic_id)), f"{topic_id} in {found['detail']}"
    two.assert_second_goes_on()
    two.assert_stops(worker)
    assert two.values(two.first) == [*numbered("old", OLD), b"after the restart"]


@pytest.mark.parametrize(
    "records",
    [
        pytest.param(0, id="empty", marks=pytest.mark.tier(embedded="full")),
        pytest.param(OLD // 2, id="fewer records"),
        pytest.param(OLD, id="as many records", marks=pytest.mark.tier(embedded="full")),
    ],
)
def test_recreated_with_no_record_at_the_position(make_two_topics: MakeTwoTopics, records: int) -> None:
    """No record of the new topic is read, and yet the old position must not be kept alive under its name."""
    two = make_two_topics(limits=NEVER)
    worker = two.running(OLD)
    worker.suspend()
    recreate(two, records)
    worker.resume()
    found = incident(worker, two, CHECKED_S)
    assert (found["partition"], found["offset"]) == (0, OLD)
    two.assert_second_goes_on()
    two.assert_stops(worker)
    assert two.values(two.first) == numbered("old", OLD)


def test_a_worker_that_starts_afterwards_finds_it_too(make_two_topics: MakeTwoTopics) -> None:
    two = make_two_topics()
    two.assert_stops(two.running(OLD), 0)
    ids = recreate(two)
    assert_found(two.flow.running(), two, ids)


def test_deleted_under_the_running_worker(two_topics: TwoTopics) -> None:
    two = two_topics
    worker = two.running(OLD)
    clients.delete_topic(two.source, two.first)
    found = worker.wait_event("incident", name="source_topic_deleted", topic=two.first, timeout_s=FOUND_S)
    assert (found["partition"], found["offset"]) == (0, OLD)
    two.assert_second_goes_on()
    two.assert_stops(worker)
    assert two.position(two.first).offset == OLD
