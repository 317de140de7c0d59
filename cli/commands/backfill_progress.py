"""Progress of a backfill in numbers, from an Observer's calls, for `backfill_watch` to show. Pure but for the clock."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from replicator.jobs.engine import PartitionProgress
from replicator.jobs.range_copy import RangeDone
from replicator.jobs.ranges import Range
from replicator.model.partition import Partition

WINDOW_S = 20.0
"""Time over which rates are averaged."""
STALL_S = 30.0
"""Without a commit for so long, a note is shown."""


@dataclass(frozen=True, slots=True)
class Row:
    """A topic, or all of them. Rates are per second; None: not known yet. `exact`: whether bytes were counted."""

    name: str
    partitions: int
    done: int
    offsets: int
    offsets_done: int
    records: int
    bytes: int | None
    exact: bool
    records_rate: float | None
    left_s: float | None

    @property
    def fraction(self) -> float:
        """How much of its offsets is done, 0 to 1."""
        return self.offsets_done / self.offsets if self.offsets else 1.0

    @property
    def percent(self) -> int:
        """The same, rounded down: 100 is all of them."""
        return 100 * self.offsets_done // self.offsets if self.offsets else 100


@dataclass(frozen=True, slots=True)
class _Count:
    offsets: int = 0
    records: int = 0

    def __add__(self, other: _Count) -> _Count:
        return _Count(self.offsets + other.offsets, self.records + other.records)


class Progress:
    """Written by an Observer's calls, read by the display in another thread: fields are replaced, never mutated."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._progress_of: Mapping[Partition, PartitionProgress] = {}
        self._samples: tuple[tuple[float, Mapping[str, _Count]], ...] = ()
        self._counted: Mapping[str, tuple[int, int]] = {}  # by topic: records and bytes of the ranges that answered
        self._moved_s = clock_s()
        self.generation = self.ranges = 0
        self.stopping = False
        self.positions_unknown = ""

    def planned(
        self, generation: int, ranges: Sequence[Range], progress: Mapping[Partition, PartitionProgress]
    ) -> None:
        """Note that a generation was planned. Like the next two, a method of `replicator.jobs.engine.Observer`."""
        self.generation, self.ranges = generation, len(ranges)
        self._samples, self._moved_s = (), self._clock_s()
        self._note(progress)

    def moved(self, progress: Mapping[Partition, PartitionProgress]) -> None:
        self.positions_unknown = ""
        self._note(progress)

    def answered(self, done: RangeDone) -> None:
        records, size = self._counted.get(done.at.topic, (0, 0))
        self._counted = {**self._counted, done.at.topic: (records + done.records, size + done.bytes)}

    def stalled_s(self) -> float | None:
        """Return the seconds since the last commit, once they are many."""
        waited_s = self._clock_s() - self._moved_s
        return waited_s if waited_s >= STALL_S and self.total().offsets_done < self.total().offsets else None

    def topics(self) -> list[Row]:
        """Return one row for each topic, by name."""
        return [self._row(name, name) for name in sorted({at.topic for at in self._progress_of})]

    def total(self) -> Row:
        """Return the row of all topics together."""
        return self._row("all", None)

    def _note(self, progress: Mapping[Partition, PartitionProgress]) -> None:
        now_s = self._clock_s()
        if any(self._position(at) != _position(found) for at, found in progress.items()):
            self._moved_s = now_s
        self._progress_of = {**self._progress_of, **progress}
        counts: dict[str, _Count] = {}
        for at, found in self._progress_of.items():
            counts[at.topic] = counts.get(at.topic, _Count()) + _Count(_position(found), found.records)
        kept = deque(self._samples)
        while len(kept) > 1 and kept[1][0] <= now_s - WINDOW_S:
            kept.popleft()
        self._samples = (*kept, (now_s, counts))

    def _position(self, at: Partition) -> int | None:
        found = self._progress_of.get(at)
        return None if found is None else _position(found)

    def _row(self, name: str, topic: str | None) -> Row:
        mine = [found for at, found in self._progress_of.items() if topic in (None, at.topic)]
        offsets = sum(max(0, found.end - found.start) for found in mine)  # a position may stand past the end
        offsets_done = sum(_position(found) - found.start for found in mine)
        records = sum(found.records for found in mine)
        counted = [count for of, count in self._counted.items() if topic in (None, of)]
        counted_records, counted_bytes = (sum(numbers) for numbers in zip(*counted, strict=True)) if counted else (0, 0)
        estimate = round(counted_bytes * records / counted_records) if counted_records else None
        offsets_rate, records_rate = self._rates(topic)
        left = offsets - offsets_done
        return Row(
            name,
            len(mine),
            sum(_position(found) >= found.end for found in mine),
            offsets,
            offsets_done,
            records,
            0 if not records else estimate,
            counted_records == records,
            records_rate,
            0.0 if not left else left / offsets_rate if offsets_rate else None,
        )

    def _rates(self, topic: str | None) -> tuple[float | None, float | None]:
        samples = self._samples
        if len(samples) < 2:
            return None, None
        passed_s = max(self._clock_s() - samples[0][0], 1e-3)
        first, last = (_picked(counts, topic) for counts in (samples[0][1], samples[-1][1]))
        return (last.offsets - first.offsets) / passed_s, (last.records - first.records) / passed_s


def _position(found: PartitionProgress) -> int:
    """Return the position within what is asked for: one may stand past the end, or before the start while there is
    none.
    """
    return min(max(found.position, found.start), max(found.start, found.end))


def _picked(counts: Mapping[str, _Count], topic: str | None) -> _Count:
    found = _Count()
    for name, count in counts.items():
        if topic in (None, name):
            found = found + count
    return found
