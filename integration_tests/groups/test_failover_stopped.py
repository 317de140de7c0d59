"""Where a partition is stopped, or its copy has lost records, a failover never says that all is copied."""

from __future__ import annotations

from typing import Any

import pytest

from integration_tests.conftest import MakeCopying
from integration_tests.groups.test_group_sync import EVERY
from integration_tests.harness import clients
from integration_tests.harness.broker import BrokerHandle, wait_leaders
from integration_tests.harness.copying import Copying
from integration_tests.harness.failing_over import failover, wait_ends_noted
from integration_tests.harness.processes import wait_until
from integration_tests.harness.two_topics import numbered

OLD, NEW = 100, 10


def copied(make_copying: MakeCopying) -> Copying:
    """A flow of one partition, all of which is copied."""
    copying = make_copying(groups=EVERY, partitions=1)
    clients.put(clients.producer(copying.source), copying.topic, *numbered("old", OLD))
    return copying


def row_of(copying: Copying) -> dict[str, Any]:
    """What a rehearsal says of the topic."""
    rows = failover(copying, "--rehearse")[1]["partitions"]
    return next((row for row in rows if row["source_topic"] == copying.topic), {"source_end_seen": None})


@pytest.mark.tier("full")
def test_a_source_topic_that_is_another_one_and_shorter(make_copying: MakeCopying) -> None:
    copying = copied(make_copying)
    other = f"{copying.name}.other"  # a worker whose partitions are all stopped ends
    clients.create_topic(copying.source, other, 1)
    copying.file.write(topics=[copying.topic, other])
    worker = copying.running()
    clients.wait_value(copying.target, copying.copy, 0, numbered("old", OLD)[-1])
    wait_until(lambda: row_of(copying)["source_end_seen"] == OLD, "the end is noted", worker.tail)
    clients.recreate_topic(copying.source, copying.topic)
    clients.put(clients.producer(copying.source), copying.topic, *numbered("new", NEW))
    worker.wait_event("incident", name="source_topic_recreated", topic=copying.topic)
    wait_until(lambda: row_of(copying)["source_end_seen"] == NEW, "the new end is noted", worker.tail)
    code, found = failover(copying)
    (row,) = [it for it in found["partitions"] if it["source_topic"] == copying.topic]
    assert (code, found["complete"], found["partitions_unknown"]) == (1, False, 1), found
    assert (row["position"], row["not_copied_at_least"]) == (OLD, None)
    assert row["problem"].startswith("source_topic_recreated: ")
    assert failover(copying, "--show")[1]["sha256"] == found["sha256"]


@pytest.mark.tier("full", kafka="long")
def test_a_copy_that_has_lost_its_end_after_the_last_worker_has_stopped(
    make_copying: MakeCopying, target: BrokerHandle
) -> None:
    copying = copied(make_copying)
    worker = copying.running()
    copying.wait_offsets([OLD], clients.TIMEOUT_S)
    clients.put(clients.producer(copying.source), copying.topic, b"last")  # in a transaction of its own at the target
    copying.wait_offsets([OLD + 1], clients.TIMEOUT_S)
    wait_ends_noted(copying, [OLD + 1])
    assert worker.stop() == 0, worker.tail()
    assert failover(copying, "--rehearse")[0] == 0
    last = [it.offset() or 0 for it in clients.read(copying.target, copying.copy)][-1]
    topic_id = clients.topic_id(copying.target, copying.copy)
    target.kill()
    target.cut_log(copying.copy, topic_id, 0, last)
    target.restart()
    wait_leaders(copying.target)
    code, found = failover(copying, "--rehearse")
    (row,) = found["partitions"]
    assert (code, row["not_copied_at_least"]) == (1, None), found
    assert row["problem"].startswith("target_lost_data: ")


@pytest.mark.tier("full")
def test_a_partition_that_was_added_and_that_the_target_does_not_have_yet(make_copying: MakeCopying) -> None:
    copying = make_copying(groups=EVERY, partitions=1, limits={"discovery_interval_ms": 600_000})
    clients.put(clients.producer(copying.source), copying.topic, *numbered("old", OLD))
    worker = copying.running()
    copying.wait_offsets([OLD], clients.TIMEOUT_S)
    wait_ends_noted(copying, [OLD])
    assert failover(copying, "--rehearse")[0] == 0
    clients.grow_topic(copying.source, copying.topic, 2)
    clients.put(clients.producer(copying.source), copying.topic, *numbered("new", NEW), partition=1)

    def ends() -> dict[int, int]:
        return {row["partition"]: row["source_end_seen"] for row in failover(copying, "--rehearse")[1]["partitions"]}

    wait_until(lambda: ends() == {0: OLD, 1: NEW}, "the end of the new one is noted", worker.tail)
    code, found = failover(copying)
    (row,) = [it for it in found["partitions"] if it["partition"] == 1]
    assert (code, found["complete"], found["partitions_unknown"]) == (1, False, 1), found
    assert (row["position"], row["problem"]) == (None, "it was never copied")
    assert clients.topics(copying.target)[copying.copy] == 1
