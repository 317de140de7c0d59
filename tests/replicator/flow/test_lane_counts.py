"""A flow ends when incidents stop all of it, and not because a lane has not told its new numbers yet."""

from __future__ import annotations

from replicator.flow.lane_counts import FlowCounts
from replicator.lane.partitions import PartitionCounts

STOPPED, COPIED, WAITING, NONE = (
    PartitionCounts(0, 0, 2),
    PartitionCounts(1, 0, 1),
    PartitionCounts(0, 1, 1),
    PartitionCounts(0, 0, 0),
)


def counts(*told: PartitionCounts, lanes: int | None = None) -> FlowCounts:
    made = FlowCounts(range(len(told) if lanes is None else lanes))
    for lane, its in enumerate(told):
        made.update(lane, its)
    return made


def test_all_is_stopped_when_no_partition_is_copied_or_waits() -> None:
    assert counts(STOPPED, STOPPED).all_stopped
    assert counts(STOPPED, NONE).all_stopped
    assert not counts(STOPPED, COPIED).all_stopped
    assert not counts(STOPPED, WAITING).all_stopped


def test_a_flow_without_partitions_waits_for_some() -> None:
    assert not counts(NONE).all_stopped
    assert not counts().all_stopped


def test_a_lane_that_has_not_told_yet_may_copy() -> None:
    assert not counts(STOPPED, lanes=2).all_stopped


def test_a_lane_with_new_partitions_counts_once_it_has_told_or_a_discovery_has_passed() -> None:
    made = counts(STOPPED, STOPPED)
    made.reassigned(0, 1)
    assert not made.all_stopped
    made.update(0, STOPPED)
    assert made.all_stopped
    made.reassigned(1, 1)
    made.settle()
    assert made.all_stopped, "its numbers are the same: it had nothing to tell"


def test_they_are_complete_once_all_lanes_have_told_and_stay_so() -> None:
    made = counts(STOPPED, lanes=2)
    assert not made.complete
    made.update(1, COPIED)
    made.reassigned(0, 1)
    assert made.complete


def test_a_lane_that_never_told_is_not_settled_by_time() -> None:
    made = counts(STOPPED, lanes=2)
    made.settle()
    assert not made.all_stopped
    assert not made.complete
