"""Finds where another replicator's copy of a partition ends, by comparing the last records of both sides. Pure.

A replicator that reads a partition in order and begins again somewhere before its end, whenever it was killed, leaves
runs of consecutive source records on the target, each of which begins at or before the end of those before it. So what
was copied ends behind the furthest run, which need not be the last one: a replicator that is killed while it copies
again leaves a shorter run behind a longer one.

Invariants
- A record equals another if key, value, headers and timestamp do. Equal records at several offsets make a run that
  could end at several places: where that changes the end, nothing is decided.
- A record of the target behind one that was recognized, and that the source doesn't have, is somebody else's: nothing
  is decided. Before the first one that was recognized the source may have deleted what was copied.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from replicator.model.partition import Span

EQUAL_MAX = 1_000
"""Places at which one record may stand."""


NAMED_MAX = 20
"""Ranges that are named."""


class RecordDigest(NamedTuple):
    """An offset, and the digest of the committed record that stands there."""

    offset: int
    digest: bytes


@dataclass(frozen=True, slots=True)
class CopiedRange:
    """Consecutive records on the target: source offsets [`first`, `end`), from `target_first` to `target_last`."""

    first: int
    end: int
    target_first: int
    target_last: int


@dataclass(frozen=True, slots=True)
class Seam:
    """The copy ends before source offset `end`. `compared`: how many records of the target were recognized; `doubled`:
    source offsets of records that stand on the target more than once."""

    end: int
    compared: int
    doubled: tuple[Span, ...]

    @property
    def said(self) -> str:
        """What stands more than once, for people; empty if nothing does."""
        if not self.doubled:
            return ""
        named = ", ".join(f"{first} to {end - 1}" for first, end in self.doubled[:NAMED_MAX])
        more = f" and {len(self.doubled) - NAMED_MAX} more ranges" if len(self.doubled) > NAMED_MAX else ""
        return f"of the last {self.compared} records it had copied source offsets {named}{more} more than once"


class NoSeam(ValueError):
    """The end of the copy can't be told from the records; says why. `equal_records`: for they stand at several offsets.
    `unknown`: for the source has no record like that at this target offset."""

    def __init__(self, why: str, *, equal_records: bool = False, unknown: int | None = None) -> None:
        self.equal_records, self.unknown = equal_records, unknown
        super().__init__(why)


def find_seam(source: Sequence[RecordDigest], target: Sequence[RecordDigest]) -> Seam:
    """Find where the copy of `source` in `target` ends. Both ascend; `target` isn't empty, and has the partition's last
    committed record as its last.

    Raises NoSeam.
    """
    places: dict[bytes, list[int]] = defaultdict(list)
    for index, record in enumerate(source):
        if record.digest:
            places[record.digest].append(index)
    runs: list[CopiedRange] = []
    lowest = highest = 0
    for found in _runs_backwards(source, target, places):
        if isinstance(found, RecordDigest):
            _refuse_foreign(target, found, places)
            break
        run, ends = found
        runs.append(run)
        lowest, highest = max(lowest, min(ends)), max(highest, max(ends))
    if lowest != highest:
        raise NoSeam(
            f"equal records stand at several offsets of the source: it may end before {lowest} or before {highest}",
            equal_records=True,
        )
    runs.reverse()
    return Seam(lowest, sum(1 for record in target if record.offset >= runs[0].target_first), _doubled(runs))


def _runs_backwards(
    source: Sequence[RecordDigest], target: Sequence[RecordDigest], places: Mapping[bytes, list[int]]
) -> Iterator[tuple[CopiedRange, set[int]] | RecordDigest]:
    """Yield the runs from the last one on, each with the source offsets behind which it may end; or the record that the
    source doesn't have, and then no more."""
    at = len(target) - 1
    while at >= 0:
        ends = places.get(target[at].digest, [])
        if not ends:
            yield target[at]
            return
        if len(ends) > EQUAL_MAX:
            why = f"the source has {len(ends)} records like that at target offset {target[at].offset}"
            raise NoSeam(why, equal_records=True)
        lengths = {end: _equal_backwards(source, end, target, at) for end in ends}
        longest = max(lengths.values())
        best = [end for end, length in lengths.items() if length == longest]
        end = best[0]
        run = CopiedRange(
            source[end - longest + 1].offset,
            source[end].offset + 1,
            target[at - longest + 1].offset,
            target[at].offset,
        )
        yield run, {source[index].offset + 1 for index in best}
        at -= longest


def _equal_backwards(source: Sequence[RecordDigest], end: int, target: Sequence[RecordDigest], at: int) -> int:
    length = 0
    while length <= end and length <= at and source[end - length].digest == target[at - length].digest:
        length += 1
    return length


def _refuse_foreign(target: Sequence[RecordDigest], foreign: RecordDigest, places: Mapping[bytes, list[int]]) -> None:
    """Raise NoSeam unless all before it may be gone from the source, too."""
    what = f"the source has no record like that at target offset {foreign.offset}"
    if foreign is target[-1]:
        raise NoSeam(f"{what}, which is the last one", unknown=foreign.offset)
    if any(record.digest in places for record in target if record.offset < foreign.offset):
        raise NoSeam(f"{what}, which stands among copies", unknown=foreign.offset)


def _doubled(runs: Sequence[CopiedRange]) -> tuple[Span, ...]:
    """Return the source offsets that a later run begins before the furthest end of those before it."""
    found: list[Span] = []
    reached = -1
    for run in runs:
        if run.first < reached:
            found.append((run.first, min(run.end, reached)))
        reached = max(reached, run.end)
    return tuple(found)
