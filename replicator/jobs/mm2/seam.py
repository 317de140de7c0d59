"""Finds where another replicator's copy of a partition ends, by comparing the last records of both sides. Pure.

A replicator that reads a partition in order and begins again somewhere before its end, whenever it was killed, leaves
runs of consecutive source records on the target, each of which begins at or before the end of those before it. So what
was copied ends behind the furthest run, which need not be the last one: a replicator that is killed while it copies
again leaves a shorter run behind a longer one.

Invariants
- A record equals another if key, value, headers and timestamp do. Where equal records stand at several offsets, the
  place of the first record that stands once tells those behind it: a copy goes on at the furthest place, or begins
  again before it, and never beyond it. Where no record stands once, and that changes the end, nothing is decided.
- Of several ends that explain all copies the furthest is taken: up to there each source record has a copy of its own.
- A copy beyond the furthest place was written behind records that were left out: nothing is decided, unless the target
  is compacted.
- A record of the target behind one that was recognized, and that the source doesn't have, is somebody else's: nothing
  is decided. Before the first one that was recognized the source may have deleted what was copied.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
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
    source offsets of records that stand on the target more than once; `begun`: the target offset of the record from
    which on that was told: all records of the source that equal it must be among those that were given."""

    end: int
    compared: int
    doubled: tuple[Span, ...]
    begun: int

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
    `unknown`: for the source has no record like that at this target offset, or none that the copies before it reach."""

    def __init__(self, why: str, *, equal_records: bool = False, unknown: int | None = None) -> None:
        self.equal_records, self.unknown = equal_records, unknown
        super().__init__(why)


def find_seam(source: Sequence[RecordDigest], target: Sequence[RecordDigest], *, gaps: bool = False) -> Seam:
    """Find where the copy of `source` in `target` ends. Both ascend; `target` isn't empty, and has the partition's last
    committed record as its last. `gaps`: the target may lack copies in between, as a compacted topic does.

    Raises NoSeam.
    """
    places: dict[bytes, list[int]] = defaultdict(list)
    for index, record in enumerate(source):
        if record.digest:
            places[record.digest].append(index)
    known = _known_from(target, places)
    copies = target[known:]
    unique = next((at for at, record in enumerate(copies) if len(places[record.digest]) == 1), None)
    ends = _ends(source, copies, 0 if unique is None else unique, places, gaps=gaps)
    if unique and any(source[end].digest == it.digest for end in ends if end < len(source) for it in copies[:unique]):
        ends |= _ends(source, copies, 0, places, gaps=gaps)  # it may have been reached before the first unique record
    if len(ends) > 1:
        before = " or before ".join(str(source[end - 1].offset + 1) for end in (min(ends), max(ends)))
        raise NoSeam(
            f"equal records stand at several offsets of the source: it may end before {before}", equal_records=True
        )
    (end,) = ends
    doubled = _doubled(_runs(source, copies, unique or 0, places))
    return Seam(source[end - 1].offset + 1, len(copies), doubled, copies[unique or 0].offset)


def _known_from(target: Sequence[RecordDigest], places: Mapping[bytes, list[int]]) -> int:
    """Return the index from which on the source has all of them. Raises NoSeam where that can't be."""
    known = len(target)
    while known and target[known - 1].digest in places:
        known -= 1
    if known:
        _refuse_foreign(target, target[known - 1], places)
    return known


def _ends(
    source: Sequence[RecordDigest],
    copies: Sequence[RecordDigest],
    start: int,
    places: Mapping[bytes, list[int]],
    *,
    gaps: bool,
) -> set[int]:
    """Return the indexes in `source` before which the copy may end, if `copies[start]` is a copy of any record that
    equals it. Raises NoSeam where none explains all that follow."""
    begun = places[copies[start].digest]
    if len(begun) > EQUAL_MAX:
        why = f"the source has {len(begun)} records like that at target offset {copies[start].offset}"
        raise NoSeam(why, equal_records=True)
    found, beyond = set[int](), copies[start]
    for place in begun:
        end = furthest = place + 1
        for copy in copies[start + 1 :]:
            equal = places[copy.digest]
            furthest = max(furthest, equal[-1] + 1)
            if end < len(source) and source[end].digest == copy.digest:
                end += 1
            elif equal[0] >= end:
                if not gaps:
                    beyond = max(beyond, copy)
                    break
                end = equal[0] + 1
        else:
            found |= {end, furthest} if gaps else {end}
    if not found:
        why = f"the copy at target offset {beyond.offset} doesn't follow those before it: some were left out"
        raise NoSeam(why, unknown=beyond.offset)
    return found


def _runs(
    source: Sequence[RecordDigest], copies: Sequence[RecordDigest], start: int, places: Mapping[bytes, list[int]]
) -> list[CopiedRange]:
    """Tell consecutive source records among the copies from `start` on: of equal ones those of the longest run."""
    runs = list[CopiedRange]()
    at, reached = start, len(source)
    while at < len(copies):
        equal = places[copies[at].digest]
        begun = [place for place in equal if place <= reached][-EQUAL_MAX:] or equal[:1]
        length, first = max((_equal_forwards(source, place, copies, at), place) for place in begun)
        reached = first + length if not runs else max(reached, first + length)
        last = copies[at + length - 1].offset
        runs.append(CopiedRange(source[first].offset, source[first + length - 1].offset + 1, copies[at].offset, last))
        at += length
    return runs


def _equal_forwards(source: Sequence[RecordDigest], first: int, copies: Sequence[RecordDigest], at: int) -> int:
    length = 0
    while (
        first + length < len(source)
        and at + length < len(copies)
        and source[first + length].digest == copies[at + length].digest
    ):
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
