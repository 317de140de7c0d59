"""What is opened is what was asked for on both sides, and no record comes into another part than its copy."""

from __future__ import annotations

import random
from collections import defaultdict

import pytest

from replicator.spark.reconcile import chunks, segments
from replicator.spark.reconcile.chunks import Stretch
from replicator.spark.reconcile.segments import Segment, bucketed, parts, shifts
from tests.replicator.spark.reconcile.test_chunks import BITS, SIZE, digests


def looked_up(found: list[Segment], rank: int) -> int | None:
    values = [segment.value for segment in found if segment.first <= rank < segment.end]
    assert len(values) <= 1
    return values[0] if values else None


def test_shifts_reach_to_the_end() -> None:
    assert shifts([Stretch(0, 2), Stretch(8, 4)], 20) == [Segment(0, 8, 2), Segment(8, 20, 4)]
    assert bucketed(shifts([Stretch(0, 0)], 0), 2) == {}


def test_buckets_have_what_touches_them() -> None:
    one, two, three = Segment(1, 4, 0), Segment(6, 13, 1), Segment(-3, 0, 2)
    assert bucketed([one, two, three], 2) == {0: [one], 1: [two], 2: [two], 3: [two], -1: [three]}


@pytest.mark.parametrize("limit", [10_000, 6 * SIZE, 2 * SIZE])
def test_parts_cover_what_differs_and_part_no_pair(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "OPENED_MAX", limit)
    chance = random.Random(11)
    most = 0
    for _ in range(25):
        source = list(range(1200))
        target = [value for value in source if chance.random() > (0.6 if 300 < value < 900 else 0.01)]
        for _ in range(3):
            target.insert(chance.randrange(len(target)), -chance.randrange(1, 10**6))
        here, there = digests(source), digests(target)
        anchored = chunks.anchors(here.values(), there.values(), BITS)
        stretches = chunks.stretches(anchored)
        there = digests(target, stretches)
        intervals = chunks.differing(here, there).intervals
        found = parts(intervals, here, there, anchored, stretches, BITS)
        places = {value: looked_up(found.target, rank) for rank, value in enumerate(target)}
        inside = {number for numbers in intervals for number in numbers}
        sizes: dict[int | None, int] = defaultdict(int)
        for rank, value in enumerate(source):
            part = looked_up(found.source, rank)
            assert (part is not None) == (rank >> BITS in inside)
            sizes[part] += 1
            if value in places and not found.guessed:
                assert places[value] == part
            elif value not in places:
                assert part is not None
        most = max(most, len(sizes))
        assert all(places[value] is not None for value in target if value < 0)
        assert found.guessed == 0 or limit == 2 * SIZE
    assert (most > 12) == (limit < 10_000)


def test_without_anchors_the_cut_is_a_guess(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "OPENED_MAX", 4 * SIZE)
    here, there = digests([1, 2] * (10 * SIZE)), digests([3, 4] * (10 * SIZE))
    (interval,) = chunks.differing(here, there).intervals
    found = parts([interval], here, there, [], [Stretch(0, 0)], BITS)
    assert found.guessed == 2
    assert found.source == found.target
    assert [segment.value for segment in found.source] == [0, 1, 2]
    assert all(segment.end - segment.first <= 9 * SIZE for segment in found.source)


def test_a_part_is_cut_at_the_same_record_on_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "OPENED_MAX", 2 * SIZE)
    here, there = digests(list(range(4 * SIZE))), digests(list(range(-3 * SIZE, 0)))
    anchored = [(SIZE, 5), (2 * SIZE, 20), (3 * SIZE, 22)]
    found = parts([[0, 1, 2, 3]], here, there, anchored, [Stretch(0, SIZE - 5), Stretch(20, 2 * SIZE - 20)], BITS)
    for rank, target_rank in anchored:
        before = looked_up(found.source, rank - 1), looked_up(found.target, target_rank - 1)
        at = looked_up(found.source, rank), looked_up(found.target, target_rank)
        assert (before[0] == at[0]) == (before[1] == at[1])
    assert len({segment.value for segment in found.source}) > 1
