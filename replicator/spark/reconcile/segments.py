"""Which ranks of a side are opened, in parts that one task can hold; how ranks are shifted. Pure: runs in the driver.

A function of rank is kept as segments with one value each. Spark looks a record's segment up in its *bucket*, the
segments that touch 2**bits neighbouring ranks, so the cost for a record does not grow with the number of segments.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from replicator.spark.reconcile.chunks import Chunk, Stretch
from replicator.spark.reconcile.sequences import Pairs

OPENED_MAX = 1 << 18
"""Records that one task compares at once: it holds them in memory."""
GUESSED_ABOVE = 4
"""So many times OPENED_MAX are held when no anchor tells where to cut; beyond, the place is a guess."""


class Segment(NamedTuple):
    """Ranks [first, end) of one side have `value`."""

    first: int
    end: int
    value: int


@dataclass(frozen=True, slots=True)
class Parts:
    """What to open of a pair, numbered from 0 on; `guessed` cuts were made where no anchor is."""

    source: list[Segment]
    target: list[Segment]
    guessed: int


def shifts(stretches: Sequence[Stretch], records: int) -> list[Segment]:
    """By how much the ranks of a target of so many records are shifted."""
    ends = [*(after.start for after in stretches[1:]), max(records, stretches[-1].start)]
    return [Segment(item.start, end, item.shift) for item, end in zip(stretches, ends, strict=True)]


def bucketed(segments: Iterable[Segment], bits: int) -> dict[int, list[Segment]]:
    """The segments that touch each bucket; buckets that none touches are left out."""
    found: dict[int, list[Segment]] = {}
    for segment in segments:
        for bucket in range(segment.first >> bits, ((segment.end - 1) >> bits) + 1):
            found.setdefault(bucket, []).append(segment)
    return found


def parts(
    intervals: Iterable[Sequence[int]],
    source: Mapping[int, Chunk],
    target: Mapping[int, Chunk],
    anchored: Pairs,
    stretches: Sequence[Stretch],
    bits: int,
) -> Parts:
    """Ranks to open on both sides.

    Args:
        intervals: numbers of chunks that are compared together, each sorted. Large ones are cut: at anchors, which
            stand at one place on both sides, so that no record and its copy come into different parts.
        anchored: ranks on both sides of records that both have.
    """
    shifted = shifts(stretches, sum(chunk.records for chunk in target.values()))
    found = Parts([], [], 0)
    number = guessed = 0
    for interval in intervals:
        cuts, guesses = _cuts(interval, source, target, anchored, stretches, bits)
        runs = list(_runs(interval, bits))
        found.source.extend(_cut(runs, [rank for rank, _ in cuts], number))
        found.target.extend(_cut(_shifted_back(runs, shifted), [rank for _, rank in cuts], number))
        number, guessed = number + len(cuts) + 1, guessed + guesses
    return Parts(found.source, found.target, guessed)


def _runs(numbers: Sequence[int], bits: int) -> Iterator[tuple[int, int]]:
    """Aligned ranks [first, end) of these chunks."""
    first = end = None
    for number in numbers:
        if number << bits != end:
            if first is not None and end is not None:
                yield first, end
            first = number << bits
        end = (number + 1) << bits
    if first is not None and end is not None:
        yield first, end


def _shifted_back(runs: Sequence[tuple[int, int]], shifted: Iterable[Segment]) -> list[tuple[int, int]]:
    """The target's own ranks whose aligned ranks lie in `runs`."""
    ends = [end for _, end in runs]
    found = []
    for start, stop, shift in shifted:
        for first, end in runs[bisect_right(ends, start + shift) :]:
            if first >= stop + shift:
                break
            found.append((max(start, first - shift), min(stop, end - shift)))
    return found


def _cut(runs: Iterable[tuple[int, int]], cuts: Sequence[int], number: int) -> Iterator[Segment]:
    """`runs` with the number of their part, the first one's being `number`."""
    for first, end in runs:
        at = first
        for index in range(bisect_right(cuts, first), bisect_left(cuts, end)):
            if cuts[index] > at:
                yield Segment(at, cuts[index], number + index)
            at = cuts[index]
        if at < end:
            yield Segment(at, end, number + bisect_right(cuts, at))


def _cuts(
    numbers: Sequence[int],
    source: Mapping[int, Chunk],
    target: Mapping[int, Chunk],
    anchored: Pairs,
    stretches: Sequence[Stretch],
    bits: int,
) -> tuple[Pairs, int]:
    """Ranks on both sides where an interval is cut, and how many of them are guesses."""
    sizes = [sum(side[number].records for side in (source, target) if number in side) for number in numbers]
    if sum(sizes) <= OPENED_MAX:
        return [], 0
    ranks = [rank for rank, _ in anchored]
    starts = [item.start + item.shift for item in stretches]
    found: Pairs = []
    guessed = before = cut_at = 0
    last: tuple[int, int, int] | None = None  # the last anchor: ranks on both sides, records before it
    for number, size in zip(numbers, sizes, strict=True):
        if before - cut_at > GUESSED_ABOVE * OPENED_MAX and last is None:
            rank = number << bits
            target_rank = rank - stretches[max(0, bisect_right(starts, rank) - 1)].shift
            after = bisect_left(ranks, rank)
            found.append((rank, min(target_rank, anchored[after][1]) if after < len(anchored) else target_rank))
            cut_at, guessed = before, guessed + 1
        for index in range(bisect_left(ranks, number << bits), bisect_left(ranks, (number + 1) << bits)):
            rank, target_rank = anchored[index]
            here = before + size * (rank - (number << bits)) // (1 << bits)
            if here - cut_at > OPENED_MAX and last is not None:
                found.append(last[:2])
                cut_at = last[2]
            last = (rank, target_rank, here)
        before += size
        if before - cut_at > OPENED_MAX and last is not None:
            found.append(last[:2])
            cut_at, last = last[2], None
    return found, guessed
