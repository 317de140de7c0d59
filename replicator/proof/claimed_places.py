"""Compares the target offsets that a map claims with those at which committed records stand. Pure; used by `verify`."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

from replicator.model.partition import Span

SPANS_MAX = 100_000
"""Ranges that are kept of a kind; beyond that only the offsets are counted."""


@dataclass(slots=True)
class OffsetSpans:
    """Ranges of offsets, ascending, and how many offsets they have, also those that are not kept."""

    spans: list[Span] = field(default_factory=list)
    offsets: int = 0

    def add(self, first: int, end: int) -> None:
        """Add [first, end), behind all others."""
        if first >= end:
            return
        self.offsets += end - first
        if self.spans and self.spans[-1][1] == first:
            self.spans[-1] = self.spans[-1][0], end
        elif len(self.spans) < SPANS_MAX:
            self.spans.append((first, end))


class ClaimedPlaces:
    """Takes the offsets of committed records in their order."""

    def __init__(self, firsts: array[int], ends: array[int], start: int = 0) -> None:
        """`firsts`, `ends`: disjoint ranges that are claimed, ascending; `start`: what lies below isn't looked at."""
        self._firsts, self._ends, self._at, self._next = firsts, ends, 0, start
        self.standing, self.expired = 0, 0
        """Claimed offsets with a record, and those below `start`."""
        self.empty, self.unclaimed = OffsetSpans(), OffsetSpans()
        """Claimed offsets without a record; records where nothing is claimed."""
        while self._at < len(ends) and ends[self._at] <= start:
            self.expired += ends[self._at] - firsts[self._at]
            self._at += 1
        if self._at < len(ends) and firsts[self._at] < start:
            self.expired += start - firsts[self._at]

    def add(self, first: int, end: int) -> None:
        """Note that committed records stand at all of [first, end)."""
        while first < end:
            if self._at == len(self._ends) or self._firsts[self._at] >= end:
                self.unclaimed.add(first, end)
                return
            begin, until = self._firsts[self._at], self._ends[self._at]
            if first < begin:
                self.unclaimed.add(first, begin)
                first = begin
            elif first >= until:
                self._close()
            else:
                self.empty.add(max(begin, self._next), first)
                stop = min(end, until)
                self.standing += stop - first
                first = self._next = stop

    def _close(self) -> None:
        """Note that nothing more comes of a claimed range."""
        self.empty.add(max(self._firsts[self._at], self._next), self._ends[self._at])
        self._next = max(self._next, self._ends[self._at])
        self._at += 1

    def finish(self) -> None:
        """Note that no more records come."""
        while self._at < len(self._ends):
            self._close()
