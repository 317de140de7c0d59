"""Runs of offsets of one log with where they stand in another one, for look-ups: binary search, no list of records.

Used by `mapped`, once for each direction. Three arrays of eight bytes a run, and the smallest place from each run on.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, islice
from operator import le
from typing import NamedTuple


class MappedRun(NamedTuple):
    """Offsets [first, first + length) of a log, which stand from `place` on in the other one."""

    first: int
    length: int
    place: int

    @property
    def end(self) -> int:
        """The offset after the last one."""
        return self.first + self.length

    def turned(self) -> MappedRun:
        """Return it as seen from the other log."""
        return MappedRun(self.place, self.length, self.first)


class RunIndex(Sequence[MappedRun]):
    """Disjoint runs, ascending, of which no two overlap in the other log either."""

    def __init__(
        self, firsts: array[int], lengths: array[int], places: array[int], behind: Iterable[MappedRun]
    ) -> None:
        """Take the columns of the runs, and those runs that stand behind higher offsets."""
        self._firsts, self._lengths, self._places = firsts, lengths, places
        self._smallest, self._behind = places, list(behind)
        if not all(map(le, places, islice(places, 1, None))):
            self._smallest = array("q", accumulate(reversed(places), min))
            self._smallest.reverse()

    @classmethod
    def of_runs(cls, runs: Sequence[MappedRun], by_place: Iterable[MappedRun], passed: int = 0) -> RunIndex:
        """Take runs, and the same ones in the order of their places.

        Args:
            passed: offsets below it stood before all places that are known, and were forgotten.
        """
        firsts, lengths, places = (array("q", (run[column] for run in runs)) for column in range(3))
        return cls(firsts, lengths, places, _behind_later_ones(by_place, passed))

    def __len__(self) -> int:
        return len(self._firsts)

    def __getitem__(self, at: int) -> MappedRun:  # type: ignore[override]
        return MappedRun(self._firsts[at], self._lengths[at], self._places[at])

    def __iter__(self) -> Iterator[MappedRun]:
        return map(MappedRun._make, zip(self._firsts, self._lengths, self._places, strict=True))

    @property
    def columns(self) -> tuple[array[int], array[int], array[int]]:
        """First offsets, lengths and places of the runs. They are not to be changed."""
        return self._firsts, self._lengths, self._places

    @property
    def ascending(self) -> bool:
        """Whether no run stands behind one of higher offsets."""
        return self._smallest is self._places

    def place(self, offset: int) -> int | None:
        """Return where this offset stands in the other log; None if nothing says so."""
        at = bisect_right(self._firsts, offset) - 1
        if at < 0 or offset >= self._firsts[at] + self._lengths[at]:
            return None
        return self._places[at] + offset - self._firsts[at]

    def with_runs(self, runs: Sequence[MappedRun]) -> RunIndex:
        """Return one with these ascending runs in the place of the one with their first offset. None stands behind a
        higher offset."""
        at = bisect_left(self._firsts, runs[0].first)
        after = at + (at < len(self._firsts) and self._firsts[at] == runs[0].first)
        firsts, lengths, places = (
            column[:at] + array("q", (run[number] for run in runs)) + column[after:]
            for number, column in enumerate((self._firsts, self._lengths, self._places))
        )
        return RunIndex(firsts, lengths, places, ())

    def nothing_between(self, first: int, end: int) -> bool:
        """Return whether no offset in [first, end) is in a run."""
        at = bisect_right(self._firsts, first) - 1
        if at >= 0 and first < self._firsts[at] + self._lengths[at]:
            return first >= end
        return at + 1 == len(self._firsts) or self._firsts[at + 1] >= end

    def smallest_place(self, offset: int) -> int | None:
        """Return the smallest place of all offsets at or above `offset`; None if there are none.

        That of the first one is not enough: a record that was repaired stands behind later ones.
        """
        at = bisect_right(self._firsts, offset) - 1
        found = None
        if at >= 0 and offset < self._firsts[at] + self._lengths[at]:
            found = self._places[at] + offset - self._firsts[at]
        if at + 1 < len(self._smallest) and (found is None or self._smallest[at + 1] < found):
            found = self._smallest[at + 1]
        return found

    def below_at_or_behind(self, offset: int, place: int) -> int:
        """Count the offsets below `offset` that stand at or behind `place`, which is the smallest of those above.

        Only runs that stand behind higher offsets can have some: those that do not are ascending in both logs, and
        what stands at `place` is one of them.
        """
        if not self._behind:
            return 0
        return sum(max(0, min(run.end, offset) - run.first - max(0, place - run.place)) for run in self._behind)


def _behind_later_ones(by_place: Iterable[MappedRun], passed: int) -> Iterator[MappedRun]:
    for run in by_place:
        if run.first < passed:
            yield run
        passed = max(passed, run.end)
