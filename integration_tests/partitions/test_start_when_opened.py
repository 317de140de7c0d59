"""`start: latest` and a time mean when the flow was opened, for every partition that was listed then."""

from __future__ import annotations

import json
import time

import pytest

from integration_tests.conftest import MakeCopying
from integration_tests.harness import clients
from integration_tests.harness.replicator import Replicator
from integration_tests.harness.two_topics import TwoTopics, numbered
from integration_tests.partitions.conftest import MakeTwoTopics

FOUND_S = 120.0
LATER = pytest.mark.tier(embedded="full")
LATEST = {"kind": "latest"}
EARLY_MS = 1_600_000_000_000


def put(two: TwoTopics, word: str, timestamp_ms: int = 0) -> list[bytes]:
    """Ten records in both topics; what they hold."""
    values = numbered(word, 10)
    for topic in (two.first, two.second):
        fields = {"timestamp": timestamp_ms} if timestamp_ms else {}
        clients.put(clients.producer(two.source), topic, *values, key=b"key", **fields)
    return values


def lift_the_bar(two: TwoTopics) -> None:
    """The first topic's copy, which stopped it, is taken away; the flow makes another one."""
    clients.delete_topic(two.target, two.copy_of(two.first))


def stopped_when_opened(two: TwoTopics) -> Replicator:
    """A worker that opens the flow while an incident stops the first topic."""
    clients.create_topic(two.target, two.copy_of(two.first), 1, {"message.timestamp.type": "LogAppendTime"})
    worker = two.flow.running()
    worker.wait_event("incident", name="target_rewrites_timestamps", topic=two.first, timeout_s=FOUND_S)
    return worker


@pytest.mark.tier("extended")
@pytest.mark.parametrize("start", [pytest.param("latest", marks=LATER), "time"])
def test_a_partition_that_was_stopped_when_the_flow_was_opened(make_two_topics: MakeTwoTopics, start: str) -> None:
    now_ms = time.time_ns() // 1_000_000
    two = make_two_topics(start=LATEST if start == "latest" else {"kind": "timestamp", "timestamp_ms": now_ms})
    put(two, "before", EARLY_MS)
    worker = stopped_when_opened(two)
    wanted = put(two, "after")
    two.wait_copied(two.second, wanted[-1])
    assert two.values(two.first) == []
    lift_the_bar(two)
    two.wait_copied(two.first, wanted[-1])
    assert worker.stop() == 0
    assert two.values(two.first) == wanted
    assert two.values(two.second) == wanted


@pytest.mark.parametrize("step", [pytest.param("fenced@1=kill", marks=LATER), "claimed@1=kill"])
def test_a_crash_between_the_open_record_and_the_first_records(make_two_topics: MakeTwoTopics, step: str) -> None:
    two = make_two_topics(start=LATEST)
    put(two, "before")
    two.flow.run(step).wait_exit()
    wanted = put(two, "after")
    worker = two.flow.running()
    for topic in (two.first, two.second):
        two.wait_copied(topic, wanted[-1])
        assert two.values(topic) == wanted
    assert worker.stop() == 0


@pytest.mark.tier("full")
def test_records_that_were_deleted_before_a_late_partition_was_admitted(make_two_topics: MakeTwoTopics) -> None:
    """They came after the flow was opened, so they are missing, and that is told."""
    two = make_two_topics(start=LATEST)
    put(two, "before")
    worker = stopped_when_opened(two)
    put(two, "after")
    clients.delete_records(two.source, two.first, 0, 15)
    lift_the_bar(two)
    found = worker.wait_event("incident", name="source_records_gone", topic=two.first, timeout_s=FOUND_S)
    assert "10 to 14" in found["detail"]
    two.assert_second_goes_on()
    two.assert_stops(worker)


@pytest.mark.tier("extended")
def test_the_starts_of_many_partitions_are_stored_in_records_that_the_topic_takes(make_copying: MakeCopying) -> None:
    """A control topic that takes 1 KiB at a time, on a cluster that says so for every topic."""
    copying = make_copying(partitions=300, start=LATEST)
    control = f"__eos.{copying.name}.control"
    clients.create_topic(copying.target, control, 1, {"cleanup.policy": "compact", "max.message.bytes": "1024"})
    writer = clients.producer(copying.source)
    for number in range(0, 300, 7):
        clients.put(writer, copying.topic, *numbered("before", number % 5), partition=number)
    worker = copying.run("fenced@1=kill")
    worker.wait_exit()
    records = clients.read(copying.target, control)
    held = [json.loads(m.value() or b"") for m in records if (m.key() or b"").startswith(b"starts/")]
    offsets = [offset for body in held for _, _, _, part in body["topics"] for offset in part]
    assert len(held) > 1
    assert offsets == [(number % 5 if number % 7 == 0 else 0) for number in range(300)]
