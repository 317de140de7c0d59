"""Collects the source offsets of one partition's copies in a transaction, as runs. Called by `planes.records`.

What a plane hands to its producer at once is nearly always without gaps: then first, last and count say all. Offsets
are looked at one by one only where they don't, in C throughout (`benchmarks.offset_map` has the time for each record).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress, islice, repeat
from operator import ne, sub

from replicator.model.partition import Span


def runs_of(offsets: Sequence[int]) -> list[Span]:
    """Return ascending source offsets, each once, as runs [first, end)."""
    if not offsets:
        return []
    first, last = offsets[0], offsets[-1]
    if last - first + 1 == len(offsets):
        return [(first, last + 1)]
    gaps = bytes(map(ne, map(sub, islice(offsets, 1, None), offsets), repeat(1)))
    firsts = [first, *compress(islice(offsets, 1, None), gaps)]
    ends = [offset + 1 for offset in compress(offsets, gaps)]
    return list(zip(firsts, [*ends, last + 1], strict=True))


def add_runs(runs: list[Span], found: Sequence[Span]) -> None:
    """Add further runs to those of the same partition before. Raises ValueError where they lie below earlier ones."""
    if not found:
        return
    if not runs:
        runs += found
        return
    (first, end), begin = runs[-1], found[0][0]
    if begin < end:
        raise ValueError(f"source offset {begin} after {end - 1}")
    if begin > end:
        runs += found
        return
    runs[-1] = first, found[0][1]
    runs += found[1:]
