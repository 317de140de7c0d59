"""The planner of a backfill: no gap, no overlap, nothing that would double or leave out records."""

from __future__ import annotations

import time
from collections.abc import Mapping
from itertools import pairwise

import pytest

from replicator.jobs.partition_state import PartitionOffsets as Offsets
from replicator.jobs.ranges import Given, Range, plan
from replicator.model.checkpoint import Evidence, Position, Unreadable
from replicator.model.errors import ConfigError
from replicator.model.partition import Committed, Partition

A, B, C = Partition("a", 0), Partition("a", 1), Partition("b", 0)
PLANNING_S_MAX = 5.0
COPIED = Evidence(generation=1, owner="", source_topic="a", source_cluster="", source_topic_id="", target_topic_id="")


def of(ranges: list[Range], at: Partition) -> list[tuple[int, int]]:
    """What is copied of a partition; its claim is left out."""
    return [(cut.start, cut.end) for cut in ranges if cut.at == at and cut.start < cut.end]


def claims(ranges: list[Range]) -> list[tuple[Partition, int]]:
    return [(cut.at, cut.start) for cut in ranges if cut.empty]


def test_each_partition_goes_from_its_position_to_its_end() -> None:
    offsets = {A: Offsets(0, 25, 5), B: Offsets(3, 12), C: Offsets(0, 9, 9)}
    ranges = plan(offsets, 10).ranges
    assert of(ranges, A) == [(5, 15), (15, 25)]
    assert of(ranges, B) == [(3, 12)], "without a position: from the log start"
    assert of(ranges, C) == [], "it stands at its end"


def test_the_ranges_of_a_partition_follow_one_another() -> None:
    ranges = plan({A: Offsets(0, 25, 0), B: Offsets(0, 5, 0), C: Offsets(0, 11, 0)}, 10).ranges
    assert [cut.at for cut in ranges] == [A, A, A, B, C, C]
    assert of(ranges, A) == [(0, 10), (10, 20), (20, 25)]


def test_given_offsets_bound_it() -> None:
    assert of(plan({A: Offsets(0, 100)}, 50, Given({A: 20}, {A: 90})).ranges, A) == [(20, 70), (70, 90)]
    assert of(plan({A: Offsets(0, 100, 20)}, 50, Given({A: 20}, {A: 60})).ranges, A) == [(20, 60)]
    assert plan({A: Offsets(0, 100, 80)}, 50, Given(last={A: 60})).ranges == [], "the target is past that end already"


@pytest.mark.parametrize(
    ("offsets", "first", "last", "says"),
    [
        (Offsets(0, 10, 5), {A: 4}, {}, "below the committed position 5"),
        (Offsets(0, 10, 5), {A: 6}, {}, "above the committed position 5"),
        (Offsets(0, 10), {A: 8}, {A: 7}, "after its end 7"),
        (Offsets(0, 10), {A: 11}, {}, "after its end 10"),
        (Offsets(0, 10), {}, {A: 11}, "past its committed end 10"),
        (Offsets(4, 10), {A: 3}, {}, "the source begins at 4"),
        (Offsets(0, 10), {B: 3}, {}, "not a partition of this flow"),
    ],
)
def test_offsets_that_cannot_be_are_refused(
    offsets: Offsets, first: Mapping[Partition, int], last: Mapping[Partition, int], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        plan({A: offsets}, 10, Given(first, last))


def test_every_fault_is_listed() -> None:
    with pytest.raises(ConfigError) as refused:
        plan({A: Offsets(0, 10, 5), B: Offsets(0, 10)}, 10, Given({A: 4}, {B: 11}))
    assert "a[0]: starts" in str(refused.value)
    assert "a[1]: is to end" in str(refused.value)


def test_a_range_without_offsets_is_refused() -> None:
    with pytest.raises(ConfigError):
        plan({A: Offsets(0, 10)}, 0)


def test_where_the_copy_began_is_the_same_job_begun_again() -> None:
    offsets = {A: Offsets(0, 30, position=20)}
    assert of(plan(offsets, 50, Given({A: 5}), claimed={A: 5}).ranges, A) == [(20, 30)]
    with pytest.raises(ConfigError, match="below the committed position 20"):
        plan(offsets, 50, Given({A: 6}), claimed={A: 5})


def test_a_partition_without_a_position_begins_where_the_flow_says() -> None:
    planned = plan({A: Offsets(3, 12), B: Offsets(3, 12, position=4)}, 50, begins={A: 7, B: 7})
    assert planned.bounds == {A: (7, 12), B: (4, 12)}


def test_all_partitions_without_a_position_are_claimed_before_anything_is_copied() -> None:
    """Whoever runs the flow after a job that ended early must not begin elsewhere."""
    ranges = plan({A: Offsets(7, 90), B: Offsets(7, 7), C: Offsets(0, 80, 0)}, 50, Given({A: 8})).ranges
    assert claims(ranges) == claims(ranges[:2]) == [(A, 8), (B, 7)]
    assert claims(plan({A: Offsets(7, 9)}, 50, Given(last={A: 3})).ranges) == [(A, 7)], (
        "nothing is asked for, and it is claimed"
    )
    assert claims(plan({A: Offsets(0, 9, 9)}, 50).ranges) == []


def test_records_that_the_source_has_deleted_stop_their_partition_alone_and_are_named() -> None:
    planned = plan({A: Offsets(8, 10, 5), B: Offsets(8, 10, 8)}, 10)
    assert str(planned.lost[A]).startswith("source_records_gone at a[0] offset 5: source offsets 5 to 7")
    assert [cut.at for cut in planned.ranges] == [B]
    assert plan({A: Offsets(10, 10, 5)}, 10, Given(last={A: 5})).lost == {}, "nothing of it is asked for"


def test_a_source_that_ends_below_the_position_stops_its_partition_also_where_nothing_is_left_to_copy() -> None:
    planned = plan({A: Offsets(0, 4, 6, COPIED, log_end=4), B: Offsets(0, 10, 8, COPIED, log_end=10)}, 10)
    assert planned.lost[A].name == "source_truncated"
    assert planned.lost[A].offset == 6
    assert [cut.at for cut in planned.ranges] == [B]
    passed = Offsets(0, 4, 6, COPIED, log_end=6)
    assert plan({A: passed}, 10).lost == {}, "the position has passed an end that was fixed before"
    cut_since = Offsets(0, 8, 6, COPIED, log_end=4)
    assert plan({A: cut_since}, 10).lost.keys() == {A}, "the log was cut since its end was fixed"
    assert plan({A: Offsets(0, 4, 6, log_end=4)}, 10).lost == {}, "somebody else's commit says nothing of the source"


@pytest.mark.parametrize("offset", [4, 10, 15])
@pytest.mark.parametrize("given", [Given(), Given(last={A: 2}), Given({A: 6}), Given({A: 3})])
def test_a_commit_that_is_nobodys_position_stops_its_partition_wherever_it_stands(offset: int, given: Given) -> None:
    """It says nothing of what is copied, also where it stands at the end of what is asked for, or behind it."""
    stray = Unreadable(Committed(offset, "a consumer's"), "position_unreadable", "this isn't a position")
    read = Offsets(0, 10, log_end=10).at(stray)
    planned = plan({A: read, B: Offsets(0, 10, 8)}, 10, given)
    assert str(planned.lost[A]).startswith(f"position_unreadable at a[0] offset {offset}: this isn't a position")
    assert [cut.at for cut in planned.ranges] == [B]
    assert plan({A: read.at(Position(8, COPIED))}, 10).lost == {}, "its own position stands there again"


@pytest.mark.tier("default")
def test_a_billion_records_are_planned_in_time_and_completely() -> None:
    offsets = {
        Partition(f"topic{number % 40}", number // 40): Offsets(number, number + 500_000, number + 7)
        for number in range(2_000)
    }
    began_s = time.process_time()
    ranges = plan(offsets, 10_000).ranges
    took_s = time.process_time() - began_s
    assert sum(cut.end - cut.start for cut in ranges) == 2_000 * (500_000 - 7)
    assert len(ranges) == 100_000
    by_partition = sorted(ranges, key=lambda cut: (cut.at, cut.start))
    assert all(a.end == b.start for a, b in pairwise(by_partition) if a.at == b.at)
    assert took_s < PLANNING_S_MAX
