"""Positions outlive what they were made for: topics that go, partitions that stop, processes that come and go."""

from __future__ import annotations

from dataclasses import replace

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

from integration_tests.conftest import MakeCopying
from integration_tests.harness import clients, raw
from integration_tests.harness.copying import Copying
from integration_tests.harness.replicator import Replicator
from replicator.model import checkpoint
from replicator.model.checkpoint import Evidence
from replicator.state.generation import LaneAssignment

STOPPED, REFUSED, INCIDENT, TAKEN_OVER = 0, 2, 4, 5
SOON = {"recommit_interval_ms": 1_000}


def put(copying: Copying, topic: str, value: bytes) -> None:
    """One record, seen by a reader of the copy."""
    clients.put(clients.producer(copying.source), topic, value)
    clients.wait_value(copying.target, f"{topic}.copy", 0, value)


def two_topics(make_copying: MakeCopying, **settings: object) -> tuple[Copying, str, Replicator]:
    """A flow over a pattern that has copied one record of each of two topics."""
    copying = make_copying(partitions=1, **settings)
    copying.file.write(topics=[f"^{copying.name}\\..*"])
    other = f"{copying.name}.other"
    clients.create_topic(copying.source, other)
    worker = copying.running()
    put(copying, copying.topic, b"first")
    put(copying, other, b"first")
    return copying, other, worker


def set_position(copying: Copying, topic: str, offset: int) -> None:
    """Put the position of a copy elsewhere, as an operator could."""
    at = TopicPartition(f"{topic}.copy", 0, offset)
    asked = ConsumerGroupTopicPartitions(copying.group, [at])
    client = clients.admin(copying.target)  # kept: its futures end with it
    client.alter_consumer_group_offsets([asked])[copying.group].result(30)


def assert_committed_again(copying: Copying, worker: Replicator, topic: str) -> None:
    """The position of a topic that isn't copied is written again and again: what was put in its place doesn't last."""
    stands = clients.committed(copying.target, copying.group, f"{topic}.copy", 0)
    set_position(copying, topic, stands.offset + 77)
    worker.wait_event("recommitted", after=worker.mark())
    worker.wait_event("recommitted", after=worker.mark())
    again = clients.committed(copying.target, copying.group, f"{topic}.copy", 0)
    assert (again.offset, evidence(again.metadata)) == (stands.offset, evidence(stands.metadata))


def evidence(metadata: str | None) -> Evidence:
    """What a position says, but for when it was written: it was written once more before it was read here, or not."""
    return replace(checkpoint.decode(metadata or ""), committed_ms=0)


@pytest.mark.tier("extended")
def test_a_topic_that_went_while_nothing_ran_is_told_and_its_position_kept(make_copying: MakeCopying) -> None:
    copying, other, worker = two_topics(make_copying, limits=SOON)
    assert worker.stop() == STOPPED
    clients.delete_topic(copying.source, other)
    worker = copying.running()
    found = worker.wait_event("incident")
    assert (found["name"], found["topic"], found["partition"]) == ("source_topic_deleted", other, 0)
    put(copying, copying.topic, b"goes on")
    assert_committed_again(copying, worker, other)
    assert worker.stop() == INCIDENT


@pytest.mark.tier(embedded="full")
def test_a_named_topic_that_went_stops_no_other(make_copying: MakeCopying) -> None:
    copying, other, worker = two_topics(make_copying)
    assert worker.stop() == STOPPED
    copying.file.write(topics=[copying.topic, other])
    clients.delete_topic(copying.source, other)
    worker = copying.running()
    worker.wait_event("incident", name="unknown_source_topic", topic=other)
    worker.wait_event("incident", name="source_topic_deleted", topic=other)
    put(copying, copying.topic, b"goes on")
    assert worker.stop() == INCIDENT


@pytest.mark.tier("full")
def test_a_topic_that_is_no_longer_selected_keeps_its_position(make_copying: MakeCopying) -> None:
    copying, other, worker = two_topics(make_copying, limits=SOON)
    assert worker.stop() == STOPPED
    copying.file.write(exclude=[other])
    worker = copying.running()
    assert_committed_again(copying, worker, other)
    assert worker.stop() == STOPPED
    copying.file.write(exclude=[])
    worker = copying.running()
    put(copying, other, b"second")
    assert worker.stop() == STOPPED
    assert clients.values(clients.read(copying.target, f"{other}.copy")) == [b"first", b"second"]


@pytest.mark.tier("full")
def test_a_topic_made_again_under_the_running_worker_is_no_sign_of_a_successor(make_copying: MakeCopying) -> None:
    """The position that it meets there was written by a process that is long gone."""
    copying, other, worker = two_topics(make_copying)
    assert worker.stop() == STOPPED
    clients.delete_topic(copying.source, other)
    worker = copying.running()
    worker.wait_event("incident", name="source_topic_deleted", topic=other)
    clients.create_topic(copying.source, other)
    worker.wait_event("incident", name="source_topic_recreated", topic=other)
    put(copying, copying.topic, b"goes on")
    assert worker.stop() == INCIDENT


def named_for(copying: Copying, lane: int) -> str:
    """A new topic whose only partition belongs to `lane` of two."""
    names = (f"{copying.name}.{number}" for number in range(100))
    name = next(name for name in names if LaneAssignment(2).lane_of(name, 0) == lane)
    clients.create_topic(copying.source, name)
    return name


def test_a_lane_of_which_nothing_can_go_on_takes_new_partitions(make_copying: MakeCopying) -> None:
    copying = make_copying(partitions=1, lanes=2)
    copying.file.write(topics=[f"^{copying.name}\\..*"])
    stopped = LaneAssignment(2).lane_of(copying.topic, 0)
    going = named_for(copying, 1 - stopped)
    worker = copying.running()
    raw.put(copying.source, copying.topic, 0, raw.record(b"k", b"bad", [(b"\xff\xfe", b"v")]))
    worker.wait_event("incident", name="header_not_carriable")
    put(copying, going, b"goes on")
    late = f"{copying.name}.late"
    while LaneAssignment(2).lane_of(late, 0) != stopped:
        late += "r"
    clients.create_topic(copying.source, late)
    put(copying, late, b"copied too")
    assert worker.stop() == INCIDENT


@pytest.mark.tier(embedded="full")
def test_a_transaction_timeout_above_the_target_s_is_refused(make_copying: MakeCopying) -> None:
    copying = make_copying(partitions=1)
    worker = copying.running()
    put(copying, copying.topic, b"first")
    assert worker.stop() == STOPPED
    copying.file.write(limits={"transaction_timeout_ms": 1_000_000})
    worker = copying.run()
    assert worker.wait_exit() == REFUSED, worker.tail()
    assert "transaction.max.timeout.ms" in worker.tail()


@pytest.mark.tier("full", kafka="long")
def test_a_successor_that_was_fenced_before_its_claim_does_not_take_the_old_one_for_its_own(
    make_copying: MakeCopying,
) -> None:
    """It fences, is held up, and the old one, which sees no new name, comes back: the later process still wins."""
    copying = make_copying()
    with copying.writing():
        old = copying.running()
        old.wait_event("committed")
        mark = old.mark()
        successor = copying.run("fenced@1=stop")
        old.wait_event("fenced", after=mark)
        old.wait_event("lane_started", after=mark)
        mark = old.mark()
        old.wait_event("committed", after=mark)
        successor.resume()
        successor.wait_event("fenced")
        successor.wait_event("lane_started")
        assert old.wait_exit() == TAKEN_OVER, old.tail()
    copying.finish(successor)
