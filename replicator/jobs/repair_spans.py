"""Which source records are to be copied again, as spans of offsets, and what belongs into one transaction. Pure.

Offsets are sparse (markers, aborted records, compaction), so a span says how many records it has: that many must be
read when it is copied, or some are gone.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from replicator.model import reading_over
from replicator.model.partition import Partition, Span, merged
from replicator.state.claims import Repair

BATCH_OFFSETS_MAX = 5_000
"""Offsets of one transaction, so at most as many records, and as many runs in its record of the claims topic."""
WINDOW_OFFSETS_MAX = 250_000
"""Offsets of missing records about which both sides are asked at a time: so many digests are held in memory, and for
each window the target is read once."""


class Missing(NamedTuple):
    """Source offsets [first, end) in which all of the `records` are to be copied again.

    `after`: a target offset behind which they would stand, whatever the target has up to there is older; -1: unknown.
    """

    first: int
    end: int
    records: int
    after: int = -1


@dataclass(frozen=True, slots=True)
class Damage:
    """What a reconciliation found missing of one partition, and what it had compared.

    `missing` are in order and don't overlap. `source_end` and `target_end` (exclusive) bound what was compared, from
    where the copy began. `compacted`: the target's topic is. `source_origin`: where the copy began at the source, if
    the target had nothing then; else 0, since it may have records from before. `unproven`: whether more may be missing.
    """

    missing: tuple[Missing, ...]
    source_end: int
    target_end: int
    compacted: bool = False
    source_origin: int = 0
    unproven: bool = False

    @property
    def records(self) -> int:
        """How many records are missing."""
        return sum(span.records for span in self.missing)


@dataclass(frozen=True, slots=True)
class RepairRequest:
    """What to copy again, by source partition, of those that were compared by content.

    `known` are the repairs that the claims topic had before the reconciliation began: it has read what they copied, so
    what it calls missing all the same was lost again. Any other one is believed, and its records are left out.
    """

    partitions: Mapping[Partition, Damage]
    known: frozenset[Repair] = frozenset()


def left(missing: Sequence[Missing], done: Iterable[Repair]) -> list[Missing]:
    """Return what is still to be copied, without the records of repairs that are done.

    How many records are on which side of one that is left out is not known: of a span that is parted the last part says
    how many all of them have, and those before say 0. Such parts may be given to this function again.
    """
    runs = merged(run for repair in done for run in repair.runs)
    found: list[Missing] = []
    parts: list[Missing] = []  # of spans whose records are counted together
    number = removed = 0
    for span in missing:
        first = span.first
        while number < len(runs) and runs[number][1] <= first:
            number += 1
        at = number
        while first < span.end:
            low, high = runs[at] if at < len(runs) else (span.end, span.end)
            low, high = min(max(low, first), span.end), min(high, span.end)
            if first < low:
                parts.append(span._replace(first=first, end=low, records=0))
            removed += high - low
            first, at = high, at + 1
        if span.records:
            if parts and removed != span.records:
                found += [*parts[:-1], parts[-1]._replace(records=max(0, span.records - removed))]
            parts, removed = [], 0
    return found


def outside(missing: Iterable[Missing], left_out: Iterable[Span]) -> list[Missing]:
    """Return what of missing spans lies outside others, of whose records none is counted as missing. Of a span that is
    parted the last part says how many records all of them have, as by `left`."""
    runs, found, number = merged(left_out), list[Missing](), 0
    for span in missing:
        while number < len(runs) and runs[number][1] <= span.first:
            number += 1
        at, first, parts = number, span.first, list[Missing]()
        while at < len(runs) and runs[at][0] < span.end:
            low, high = runs[at]
            parts += [span._replace(first=first, end=low, records=0)] if first < low else []
            first, at = max(first, high), at + 1
        parts += [span._replace(first=first, records=0)] if first < span.end else []
        found += [*parts[:-1], *(part._replace(records=span.records) for part in parts[-1:])]
    return found


def batches(
    missing: Sequence[Missing], offsets_max: int = BATCH_OFFSETS_MAX, *, record_bytes: int = 0
) -> list[list[Span]]:
    """Make spans for one transaction after the other: each is read without a seek, and has `offsets_max` offsets at
    most.

    Args:
        record_bytes: how large a record is, on the average: what lies between two spans of one transaction is read
            and dropped; 0: unknown.
    """
    gap_max = reading_over.offsets_max(record_bytes)
    found: list[list[Span]] = []
    size = offsets_max
    for first, end, *_ in missing:
        while first < end:
            if size >= offsets_max or first - found[-1][-1][1] > gap_max:
                found.append([])
                size = 0
            until = min(end, first + offsets_max - size)
            found[-1].append((first, until))
            size += until - first
            first = until
    return found


def windows(missing: Sequence[Missing], offsets_max: int = WINDOW_OFFSETS_MAX) -> list[list[Missing]]:
    """Divide spans into parts of at most `offsets_max` offsets. How many records are on which side of a cut is not
    known: the first part says 0, and they are counted with the other."""
    found: list[list[Missing]] = []
    size = offsets_max
    for span in missing:
        left_over = span
        while left_over.end - left_over.first > 0:
            if size >= offsets_max:
                found.append([])
                size = 0
            until = min(left_over.end, left_over.first + offsets_max - size)
            last = until == left_over.end
            found[-1].append(left_over._replace(end=until, records=left_over.records if last else 0))
            size += until - left_over.first
            left_over = left_over._replace(first=until)
    return found


def runs_of(offsets: Iterable[int]) -> list[Span]:
    """Return ascending offsets as runs of consecutive ones."""
    found: list[Span] = []
    for offset in offsets:
        if found and found[-1][1] == offset:
            found[-1] = found[-1][0], offset + 1
        else:
            found.append((offset, offset + 1))
    return found


class Tally:
    """Counts what was copied of each span, so that a record that has gone is noticed at the span's end."""

    def __init__(self, missing: Sequence[Missing]) -> None:
        self._missing = list(missing)
        self._copied = [0] * len(self._missing)
        self._next = 0
        self._owed = 0

    def add(self, runs: Iterable[Span]) -> None:
        """Note that so many records were committed."""
        for first, end in runs:
            at = bisect_right(self._missing, first, key=lambda span: span.first) - 1
            self._copied[at] += end - first

    def lacking(self, upto: int) -> tuple[int, int, int] | None:
        """Return (first, end, records) of one of the spans that end at or before `upto` that had less than it should
        have.
        """
        while self._next < len(self._missing) and self._missing[self._next].end <= upto:
            first, end, records, _ = self._missing[self._next]
            self._owed += records - self._copied[self._next]
            self._next += 1
            if self._owed > 0:
                return first, end, self._owed
        return None
