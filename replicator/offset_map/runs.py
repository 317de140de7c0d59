"""Collects the source offsets of one partition's copies in a transaction, as runs. To be used by a plane.

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


class RunCollector:
    """The runs of one partition since the transaction began."""

    __slots__ = ("runs",)

    def __init__(self) -> None:
        self.runs: list[Span] = []

    def add(self, offsets: Sequence[int]) -> None:
        """Take the source offsets of further copies, ascending. Raises ValueError where they lie below earlier ones."""
        self._join(runs_of(offsets))

    def add_range(self, first: int, end: int) -> None:
        """Take copies of all source offsets from `first` to before `end`. Raises ValueError as `add`."""
        self._join([(first, end)])

    def _join(self, found: list[Span]) -> None:
        if not found:
            return
        if not self.runs:
            self.runs = found
            return
        first, end = self.runs[-1]
        if found[0][0] < end:
            raise ValueError(f"source offset {found[0][0]} after {end - 1}")
        if found[0][0] == end:
            self.runs[-1] = first, found[0][1]
            del found[0]
        self.runs += found
