"""Which copies stand in another order than their records: those that were repaired, or that the map doesn't have. Pure.

Used by whoever reports a comparison. Runs that stand before all copies of higher source offsets are in order among
themselves; a copy that isn't in one of them is in order if it stands between its neighbours of these, and is one of the
longest sequence of such copies that ascends on both sides.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from replicator.offset_map.mapped import PartitionMap
from replicator.offset_map.run_index import MappedRun

Pairing = tuple[int, int]
"""A source offset, and the target offset of its copy."""


def out_of_order(mapped: PartitionMap, pairs: Sequence[Pairing], elsewhere: Sequence[int]) -> list[Pairing]:
    """Return those of `pairs` that are out of order, ascending by source offset.

    Args:
        pairs: copies that aren't in one of the runs that stand before all later ones.
        elsewhere: ascending source offsets whose records don't stand where the map says.
    """
    if not pairs:
        return []
    firsts, places, lengths = array("q"), array("q"), array("q")
    for run in _in_order(mapped, elsewhere):
        firsts.append(run.first)
        places.append(run.place)
        lengths.append(run.length)
    fitting, found = list[Pairing](), list[Pairing]()
    for source, target in sorted(pairs):
        at = bisect_right(firsts, source) - 1
        behind = at < 0 or target >= places[at] + lengths[at]
        before = at + 1 == len(firsts) or target < places[at + 1]
        (fitting if behind and before else found).append((source, target))
    kept = set(_longest_ascending([target for _, target in fitting]))
    return sorted([*found, *(pair for number, pair in enumerate(fitting) if number not in kept)])


def stands_behind(mapped: PartitionMap, run: MappedRun) -> bool:
    """Return whether a run stands behind a copy of a higher source offset."""
    if mapped.by_source.ascending:
        return False
    smallest = mapped.by_source.smallest_place(run.end)
    return smallest is not None and smallest < run.place


def _in_order(mapped: PartitionMap, elsewhere: Sequence[int]) -> Iterator[MappedRun]:
    for run in mapped.by_source:
        if stands_behind(mapped, run):
            continue
        at = run.first
        for number in range(bisect_left(elsewhere, run.first), bisect_left(elsewhere, run.end)):
            if elsewhere[number] > at:
                yield MappedRun(at, elsewhere[number] - at, run.place + at - run.first)
            at = elsewhere[number] + 1
        if at < run.end:
            yield MappedRun(at, run.end - at, run.place + at - run.first)


def _longest_ascending(numbers: Sequence[int]) -> list[int]:
    """Return the indexes of a longest ascending subsequence."""
    lasts, last_at, before = list[int](), list[int](), list[int]()
    for index, number in enumerate(numbers):
        length = bisect_left(lasts, number)
        before.append(last_at[length - 1] if length else -1)
        if length == len(lasts):
            lasts.append(number)
            last_at.append(index)
        else:
            lasts[length], last_at[length] = number, index
    found = list[int]()
    at = last_at[-1] if last_at else -1
    while at >= 0:
        found.append(at)
        at = before[at]
    return found[::-1]
