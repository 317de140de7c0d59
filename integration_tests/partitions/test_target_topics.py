"""Target topics that were deleted, made again, or would alter what is written: told before anything is written."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME

from integration_tests.harness import clients
from integration_tests.harness.replicator import Replicator
from integration_tests.harness.two_topics import TwoTopics, assert_told, numbered
from integration_tests.partitions.conftest import MakeTwoTopics
from replicator.config import load
from replicator.inspect import planning

LATER = pytest.mark.tier("full")
OLD = 20
FOUND_S = 120.0
HOUR_MS = 3_600_000
BEFORE, AFTER = "message.timestamp.before.max.ms", "message.timestamp.after.max.ms"


def lose(two: TwoTopics, *, make_again: bool) -> None:
    """Delete the first topic's copy."""
    clients.delete_topic(two.target, two.copy_of(two.first))
    if make_again:
        clients.create_topic(two.target, two.copy_of(two.first))


def assert_told_and_not_written(two: TwoTopics, worker: Replicator, *, make_again: bool) -> None:
    """The first topic stops, nothing is created or written for it, and the second one goes on."""
    name = "target_topic_recreated" if make_again else "target_topic_deleted"
    found = worker.wait_event("incident", name=name, partition=0, timeout_s=FOUND_S)
    assert found["topic"] == two.first
    assert found["offset"] in (OLD, -1), "Kafka removes the position with the topic: then nobody knows it"
    assert_told(found, two.copy_of(two.first))
    two.assert_second_goes_on()
    two.assert_stops(worker)
    shown = next(row for row in two.status()["partitions"] if row["source_topic"] == two.first)
    assert shown["state"] == ("target_recreated" if make_again else "target_deleted")
    exists = two.copy_of(two.first) in clients.topics(two.target)
    assert exists == make_again, "a topic was created over a claim"
    if exists:
        assert two.values(two.first) == [], "written to another topic as if nothing had happened"


@pytest.mark.parametrize(
    "make_again",
    [
        pytest.param(False, id="deleted", marks=pytest.mark.tier("full", kafka="long")),
        pytest.param(True, id="recreated"),
    ],
)
def test_while_no_worker_runs(two_topics: TwoTopics, make_again: bool) -> None:
    two = two_topics
    two.assert_stops(two.running(OLD), 0)
    lose(two, make_again=make_again)
    two.put(two.first, numbered("new", OLD))
    assert_told_and_not_written(two, two.flow.running(), make_again=make_again)
    assert_told_and_not_written(two, two.flow.running(), make_again=make_again)


@pytest.mark.parametrize(
    "make_again",
    [pytest.param(False, id="deleted", marks=LATER), pytest.param(True, id="recreated")],
)
def test_under_the_running_worker(two_topics: TwoTopics, make_again: bool) -> None:
    two = two_topics
    worker = two.running(OLD)
    worker.suspend()
    lose(two, make_again=make_again)
    two.put(two.first, numbered("new", OLD))
    worker.resume()
    assert_told_and_not_written(two, worker, make_again=make_again)


@pytest.mark.tier("full")
@pytest.mark.parametrize("make_again", [False, True], ids=["deleted", "recreated"])
def test_under_an_idle_worker(two_topics: TwoTopics, make_again: bool) -> None:
    """Nothing is written, so only a look at the topic tells."""
    two = two_topics
    worker = two.running(OLD)
    worker.suspend()
    lose(two, make_again=make_again)
    worker.resume()
    assert_told_and_not_written(two, worker, make_again=make_again)


@pytest.mark.tier("full")
def test_a_position_that_expired_while_its_topic_is_the_same(two_topics: TwoTopics) -> None:
    two = two_topics
    two.assert_stops(two.running(OLD), 0)
    admin = clients.admin(two.target)
    admin.delete_consumer_groups([two.flow.group])[two.flow.group].result(clients.TIMEOUT_S)
    worker = two.flow.run()
    found = worker.wait_event("incident", name="position_expired", topic=two.first, timeout_s=FOUND_S)
    assert found["partition"] == 0
    assert_told(found)
    two.assert_stops(worker)
    assert two.values(two.first) == numbered("old", OLD)


@pytest.mark.tier("full")
def test_an_existing_topic_that_rewrites_timestamps(make_two_topics: MakeTwoTopics) -> None:
    two = make_two_topics()
    copy = two.copy_of(two.first)
    clients.create_topic(two.target, copy, 1, {"message.timestamp.type": "LogAppendTime"})
    two.put(two.first, numbered("old", OLD))
    worker = two.flow.running()
    found = worker.wait_event("incident", name="target_rewrites_timestamps", topic=two.first, timeout_s=FOUND_S)
    assert found["partition"] in (0, -1)
    assert_told(found, copy, "LogAppendTime")
    two.assert_second_goes_on()
    two.assert_stops(worker)
    assert two.values(two.first) == []


@pytest.mark.tier("full")
@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once", "at_most_once"])
def test_a_topic_that_turns_to_its_own_timestamps_under_the_running_worker(
    make_two_topics: MakeTwoTopics, delivery: str
) -> None:
    """Long before the next discovery; exactly_once commits no record with another time, the others say so at once."""
    two = make_two_topics(delivery=delivery, commit={"records_max": OLD}, limits={"discovery_interval_ms": 600_000})
    worker = two.running(OLD)
    copy = two.copy_of(two.first)
    clients.set_topic_config(two.target, copy, "message.timestamp.type", "LogAppendTime")
    two.put(two.first, numbered("new", 50 * OLD))
    found = worker.wait_event("incident", name="target_rewrites_timestamps", topic=two.first, timeout_s=FOUND_S)
    assert_told(found, copy, "LogAppendTime")
    position = two.position(two.first).offset
    assert (found["partition"], found["offset"]) == (0, position)
    two.assert_second_goes_on()
    assert len([e for e in worker.seen("incident") if e["name"] == "target_rewrites_timestamps"]) == 1
    two.assert_stops(worker)
    stamped = [message for message in clients.read(two.target, copy) if message.timestamp()[0] != TIMESTAMP_CREATE_TIME]
    assert position == OLD + (OLD if delivery == "at_most_once" else 0)
    assert len(stamped) == (0 if delivery == "exactly_once" else OLD)
    clients.set_topic_config(two.target, copy, "message.timestamp.type", "CreateTime")
    worker = two.flow.running()
    two.wait_copied(two.first, numbered("new", 50 * OLD)[-1])
    two.assert_stops(worker, 0)
    if delivery == "exactly_once":
        assert two.values(two.first) == [*numbered("old", OLD), *numbered("new", 50 * OLD)]


def put_aged(two: TwoTopics, word: str, age_ms: int) -> list[bytes]:
    """Records of the first topic that are so old; negative: so far ahead."""
    values = numbered(word, OLD)
    at_ms = time.time_ns() // 1_000_000 - age_ms
    clients.put(clients.producer(two.source), two.first, *values, timestamp=at_ms)
    return values


def planned(two: TwoTopics) -> list[str]:
    """The errors that `plan` finds for topics."""
    config = load(two.flow.file.path)
    found = planning.plan(config.flows[two.name], config, connect_timeout_ms=10_000)
    return [finding.message for finding in found.findings if finding.severity == "error" and finding.kind == "topic"]


def test_a_bound_of_the_source_is_not_copied_with_its_history(make_two_topics: MakeTwoTopics) -> None:
    """The source took these records in time, and they are old when they are copied."""
    two = make_two_topics()
    old = put_aged(two, "old", 2 * HOUR_MS)
    clients.set_topic_config(two.source, two.first, BEFORE, str(HOUR_MS))
    assert planned(two) == []
    worker = two.flow.running()
    two.wait_copied(two.first, old[-1])
    two.assert_stops(worker, 0)
    assert two.values(two.first) == old
    assert clients.topic_configs(two.target, two.copy_of(two.first))[BEFORE] != str(HOUR_MS)


@pytest.mark.parametrize(
    ("config", "age_ms"),
    [
        pytest.param(BEFORE, 2 * HOUR_MS, id="older", marks=LATER),
        pytest.param(AFTER, -HOUR_MS, id="ahead", marks=LATER),
    ],
)
def test_a_record_that_a_target_would_refuse_for_its_timestamp_is_named_before_it_is_written(
    make_two_topics: MakeTwoTopics, config: str, age_ms: int
) -> None:
    two = make_two_topics()
    clients.set_topic_config(two.source, two.first, AFTER, str(2**63 - 1))
    clients.create_topic(two.target, two.copy_of(two.first), 1, {config: str(HOUR_MS // 2)})
    fresh = put_aged(two, "fresh", 0)
    assert planned(two) == []
    worker = two.flow.running()
    two.wait_position(two.first, OLD)
    two.assert_stops(worker, 0)
    refused = put_aged(two, "refused", age_ms)
    more = put_aged(two, "more", 0)
    (message,) = planned(two)
    assert f"target_timestamp_bounds at {two.first}[0] offset {OLD}" in message
    worker = two.flow.running()
    found = worker.wait_event("incident", name="target_timestamp_bounds", topic=two.first, timeout_s=FOUND_S)
    assert (found["partition"], found["offset"]) == (0, OLD)
    assert_told(found, two.copy_of(two.first), config)
    two.assert_second_goes_on()
    assert two.values(two.first) == fresh
    clients.set_topic_config(two.target, two.copy_of(two.first), config, str(2**63 - 1))
    two.wait_copied(two.first, more[-1])
    assert not worker.seen("aborted")
    two.assert_stops(worker, 0)
    assert two.values(two.first) == [*fresh, *refused, *more]
