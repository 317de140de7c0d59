"""Holes in the intervals of a log: exactly what compaction took, and of the rest why it isn't known."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replicator.model.errors import Incident
from replicator.model.partition import Partition
from replicator.wire import holes
from replicator.wire.holes import IntervalHoles, Unknown, find_holes
from tests.budget import budget
from tests.replicator.wire.logs import CODECS, MemoryLog, batch, log_of, old_message, ranges

pytestmark = pytest.mark.tier("default")

AT = Partition("orders", 3)


def test_a_log_that_was_never_compacted_has_none() -> None:
    log = log_of([(0, 9, None), (10, 10, None), (11, 99, None)])
    assert find_holes(AT, log, [(0, 100)]) == [IntervalHoles()]


def test_holes_are_in_batches_between_them_and_at_the_end() -> None:
    log = log_of([(5, 9, {5, 9}), (20, 24, set()), (25, 29, None)])
    log.log_end = 40
    assert find_holes(AT, log, [(0, 40)]) == [IntervalHoles(((0, 5), (6, 9), (10, 25), (30, 40)))]


def test_only_what_lies_in_an_interval_is_told() -> None:
    log = log_of([(5, 9, {5, 9}), (20, 24, {22})])
    found = find_holes(AT, log, [(2, 4), (4, 7), (8, 8), (9, 10), (19, 22), (23, 25)])
    assert [item.holes for item in found] == [((2, 4),), ((4, 5), (6, 7)), (), (), ((19, 22),), ((23, 25),)]
    assert log.fetches == [2]


def test_far_intervals_are_fetched_by_themselves() -> None:
    log = log_of([(offset, offset, None) for offset in range(0, 20_000, 2)])
    found = find_holes(AT, log, [(0, 4), (15_000, 15_003)])
    assert [item.holes for item in found] == [((1, 2), (3, 4)), ((15_001, 15_002),)]
    assert log.fetches == [0, 15_000]


def test_more_is_fetched_at_once_the_longer_it_goes_on() -> None:
    log = log_of([(offset, offset + 99, None) for offset in range(0, 400_000, 100)])
    told: list[int] = []
    assert find_holes(AT, log, [(0, 400_000)], told.append) == [IntervalHoles()]
    assert told == log.fetches
    assert len(log.fetches) < 10
    assert told == sorted(told)


def test_what_is_below_the_log_start_is_unknown() -> None:
    log = log_of([(0, 9, None), (10, 29, {12, 20})], start=15)
    assert find_holes(AT, log, [(0, 5), (8, 30)]) == [
        IntervalHoles((), (Unknown(0, 5, holes.BELOW_START),)),
        IntervalHoles(((15, 20), (21, 30)), (Unknown(8, 15, holes.BELOW_START),)),
    ]


def test_what_the_log_has_not_written_yet_is_unknown() -> None:
    log = log_of([(0, 9, None)])
    assert find_holes(AT, log, [(5, 12), (20, 25)]) == [
        IntervalHoles((), (Unknown(10, 12, holes.ABOVE_END),)),
        IntervalHoles((), (Unknown(20, 25, holes.ABOVE_END),)),
    ]


class Deleting(MemoryLog):
    """Deletes below `to` before a fetch from `at`, or after it."""

    at, to, late = 0, 0, False

    def fetch(self, offset: int, bytes_max: int) -> bytes | None:
        due = offset == self.at
        if due and not self.late:
            self.log_start = self.to
        found = super().fetch(offset, bytes_max)
        if due and self.late:
            self.log_start = self.to
        return found


def deleting(**how: Any) -> Deleting:
    log = Deleting([(9, batch(0, 9)), (29, batch(20, 29, {25})), (49, batch(40, 49))], 50)
    vars(log).update(how)
    return log


def test_retention_that_comes_first_leaves_the_rest_unknown() -> None:
    log = deleting(at=12, to=22)
    expected = IntervalHoles(((22, 25), (26, 28)), (Unknown(12, 22, holes.BELOW_START),))
    assert find_holes(AT, log, [(12, 28)]) == [expected]


def test_a_hole_below_what_retention_has_reached_meanwhile_proves_nothing() -> None:
    """A fetch that segments are deleted under may return the batches behind them."""
    log = deleting(at=12, to=27, late=True)
    expected = IntervalHoles(((27, 30),), (Unknown(12, 25, holes.BELOW_START), Unknown(26, 27, holes.BELOW_START)))
    assert find_holes(AT, log, [(12, 30)]) == [expected]


class Truncating(MemoryLog):
    """Ends at 8 once something is fetched."""

    def fetch(self, offset: int, bytes_max: int) -> bytes | None:
        self.log_end = 8
        return super().fetch(offset, bytes_max)


def test_a_log_that_was_cut_below_its_end_is_unknown_there() -> None:
    log = Truncating([(7, batch(0, 7))], 20)
    assert find_holes(AT, log, [(5, 8), (12, 15), (16, 18)]) == [
        IntervalHoles(),
        IntervalHoles((), (Unknown(12, 15, holes.ABOVE_END),)),
        IntervalHoles((), (Unknown(16, 18, holes.ABOVE_END),)),
    ]


class Silent(MemoryLog):
    """Returns nothing from 10 on."""

    def fetch(self, offset: int, bytes_max: int) -> bytes | None:
        return None if offset >= 10 else super().fetch(offset, bytes_max)


def test_where_the_broker_returns_nothing_nothing_is_known() -> None:
    log = Silent([(9, batch(0, 9, {4}))], 40)
    assert find_holes(AT, log, [(5, 15)]) == [IntervalHoles(((5, 10),), (Unknown(10, 15, holes.NO_BATCH),))]


@pytest.mark.parametrize("magic", [0, 1])
def test_nothing_can_be_decided_among_old_messages(magic: int) -> None:
    """Those around compressed ones tell their last offset only, so what lies before is unknown too."""
    log = MemoryLog([(4, old_message(4, magic)), (9, old_message(9, magic)), (29, batch(20, 29, {20}))], 30)
    assert find_holes(AT, log, [(2, 25)]) == [
        IntervalHoles(((10, 20), (21, 25)), (Unknown(2, 10, holes.OLD_FORMAT),)),
    ]


def test_a_batch_that_is_too_large_is_unknown_and_no_more() -> None:
    log = MemoryLog([(9, batch(0, 9, {1}, "zstd", 300_000)), (19, batch(12, 19))], 20)
    assert find_holes(AT, log, [(3, 14)], decoded_bytes_max=200_000) == [
        IntervalHoles(((10, 12),), (Unknown(3, 10, holes.TOO_LARGE),))
    ]


@pytest.mark.parametrize(
    ("data", "offset"),
    [
        (batch(0, 9)[:-1] + b"\xff", 0),
        (batch(0, 9)[:30], 2),  # cut, where a whole batch was due
        (batch(0, 1), 2),  # none that reaches the offset
        (batch(0, 9, {4})[:57] + b"\0\0\0\2" + batch(0, 9, {4})[61:], 0),
    ],
)
def test_what_is_not_sound_is_an_incident_that_says_where(data: bytes, offset: int) -> None:
    with pytest.raises(Incident) as caught:
        find_holes(AT, MemoryLog([(9, data)], 10), [(2, 8)])
    found = caught.value
    assert (found.name, found.topic, found.partition, found.offset) == ("batch_corrupt", "orders", 3, offset)
    assert "kafka-dump-log" in found.advice


@pytest.mark.parametrize("intervals", [[(5, 4)], [(0, 5), (4, 6)], [(5, 6), (1, 2)], [(-1, 3)]])
def test_intervals_are_sorted_and_disjoint(intervals: list[tuple[int, int]]) -> None:
    with pytest.raises(ValueError, match="sorted and disjoint"):
        find_holes(AT, log_of([(0, 9, None)]), intervals)


@given(st.data())
@settings(max_examples=budget(200, 20_000))
def test_any_log_compacted_in_any_way(data: Any) -> None:
    codec = data.draw(st.sampled_from(CODECS))
    lengths = data.draw(st.lists(st.integers(1, 12), min_size=1, max_size=12))
    kept: set[int] = set()
    content, first = [], 0
    for length in lengths:
        last = first + length - 1
        how = data.draw(st.sampled_from(["whole", "some", "removed"]))
        if how != "removed":
            offsets = range(first, last + 1)
            stay = set(offsets) if how == "whole" else data.draw(st.sets(st.sampled_from(offsets)))
            kept |= stay
            content.append((last, batch(first, last, stay, codec)))
        first = last + 1
    start, end = data.draw(st.integers(0, first)), first
    log = MemoryLog(content, end, start)
    edges = sorted(data.draw(st.sets(st.integers(0, first + 3), min_size=2, max_size=6)))
    intervals = [(a, b) for a, b in itertools.pairwise(edges) if data.draw(st.booleans())]
    for (low, high), found in zip(intervals, find_holes(AT, log, intervals), strict=True):
        asked = set(range(low, high))
        assert list(found.holes) == ranges({at for at in asked - kept if start <= at < end})
        unknown = {at for each in found.unknown for at in range(each.first, each.end)}
        assert unknown == {at for at in asked if at < start or at >= end}
