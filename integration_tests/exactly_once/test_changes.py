"""What changes under a running flow: topics, partitions, time."""

from __future__ import annotations

import pytest

from integration_tests.conftest import MakeCopying
from integration_tests.harness import clients
from integration_tests.harness.compare import assert_exact, wait_key
from integration_tests.harness.copying import Copying
from integration_tests.harness.load import Load


def test_partitions_added_at_the_source_are_copied_from_their_first_record(copying: Copying) -> None:
    copying.load.mixed(100)
    worker = copying.running()
    worker.wait_event("committed")
    more = copying.partitions + 2
    clients.grow_topic(copying.source, copying.topic, more)
    grown = Load(copying.source, copying.topic, more, seed=2, first=1_000_000)
    grown.mixed(200)
    worker.wait_event("topic_grown", topic=copying.copy, partitions=more)
    grown.finish()
    wait_key(copying.target, copying.copy, more, grown.last)
    assert worker.stop() == 0
    records = assert_exact(copying.source, copying.topic, copying.target, copying.copy, more)
    assert records == copying.load.committed + grown.committed


def test_a_new_topic_that_matches_is_copied_from_its_first_record(make_copying: MakeCopying) -> None:
    copying = make_copying()
    copying.file.write(topics=[f"^{copying.name}\\..*"])
    worker = copying.running()
    name = f"{copying.name}.second"
    clients.create_topic(copying.source, name, 2)
    second = Load(copying.source, name, 2, seed=3)
    second.mixed(100)
    copying.load.mixed(100)
    worker.wait_event("topic_created", topic=f"{name}.copy")
    second.finish()
    wait_key(copying.target, f"{name}.copy", 2, second.last)
    copying.finish(worker)
    assert assert_exact(copying.source, name, copying.target, f"{name}.copy", 2) == second.committed


@pytest.mark.tier("extended")
def test_idle_positions_are_committed_again_so_that_they_can_not_expire(make_copying: MakeCopying) -> None:
    copying = make_copying(limits={"recommit_interval_ms": 1_000})
    worker = copying.running()
    copying.wait_copied()
    before = [clients.committed(copying.target, copying.group, copying.copy, at).metadata for at in range(3)]
    worker.wait_event("recommitted", after=worker.mark())
    worker.wait_event("recommitted", after=worker.mark())
    after = [clients.committed(copying.target, copying.group, copying.copy, at).metadata for at in range(3)]
    assert all(old != new for old, new in zip(before, after, strict=True)), "the broker saw no new commit"
    copying.finish(worker)


def test_positions_advance_past_aborted_records(copying: Copying) -> None:
    """Otherwise retention of a tail that was aborted would look like loss."""
    worker = copying.running()
    copying.load.transaction(30, abort=True)
    worker.wait_any(
        lambda event: event.get("event") == "committed" and event["records"] == 0 and any(event["positions"].values()),
        "commit of positions without records",
    )
    for partition in range(copying.partitions):
        clients.delete_records(
            copying.source, copying.topic, partition, clients.stable_end(copying.source, copying.topic, partition)
        )
    copying.wait_positions()
    assert worker.stop() == 0
    worker = copying.running()
    copying.finish(worker)


@pytest.mark.tier("extended")
def test_several_lanes_copy_what_one_lane_copies(make_copying: MakeCopying) -> None:
    copying = make_copying(partitions=6, lanes=3)
    with copying.writing():
        worker = copying.run("before_end_txn@4=kill")
        worker.wait_exit()
    worker = copying.run()
    for lane in range(3):
        worker.wait_event("lane_started", lane=lane)
    copying.load.mixed(100)
    copying.finish(worker)
