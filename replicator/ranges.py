"""Cuts what a backfill has to copy into bounded ranges of source offsets, and those into rounds. Pure.

Invariants
- The ranges of a partition follow one another without gap or overlap, from its position to its fixed end: what a
  range must copy is known before anything runs, and what stands on the target decides how far it is.
- One range per partition and round: two ranges of a partition never run at the same time, they share a
  transactional id and would fence one another.
- Offsets are sparse (markers, aborted records, compaction): a range of n offsets holds at most n records.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from replicator.errors import ConfigError, Incident
from replicator.planes.contract import Partition


class Range(NamedTuple):
    """Source offsets [start, end) of one partition, copied in one round by one task."""

    round: int
    at: Partition
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Seen:
    """A source partition when a job begins: its log start, its read_committed end, its position at the target.

    `position` is None where the target holds none yet; such a partition begins at `begin` (None: its log start).
    `claimed` is where the flow's copy of it began.
    """

    log_start: int
    end: int
    position: int | None = None
    begin: int | None = None
    claimed: int | None = None


class Plan(NamedTuple):
    """All ranges of a job, sorted by round, then partition; a partition that is done already has none.

    The first range of a partition without a position is empty: it claims the partition, so that whoever runs the flow
    later, and however far this job comes, begins where it would have. Until all are claimed nothing is copied.

    `bounds` are the offsets [start, end) of every partition, `lost` those of which the source has deleted what comes
    next: they have no ranges.
    """

    ranges: list[Range]
    bounds: dict[Partition, tuple[int, int]]
    lost: dict[Partition, Incident]


def plan(
    seen: Mapping[Partition, Seen],
    offsets_max: int,
    first: Mapping[Partition, int] | None = None,
    last: Mapping[Partition, int] | None = None,
) -> Plan:
    """Cut every partition into ranges of at most `offsets_max`.

    `first` and `last` (exclusive) are offsets that the user gave, by partition; without them a partition goes from its
    position to its end.

    Raises ConfigError that lists every partition whose given offsets can't be: past the source's end, in reverse, or
    `first` elsewhere than at the committed position: below it records would be doubled, above it left out. But where
    the copy began is no fault: that is the same job, begun again.
    """
    if offsets_max < 1:
        raise ConfigError(f"a range needs at least one offset, not {offsets_max}")
    first, last = first or {}, last or {}
    unknown = sorted((first.keys() | last.keys()) - seen.keys())
    faults = [f"{at}: not a partition of this flow's topics" for at in unknown]
    bounds: dict[Partition, tuple[int, int]] = {}
    for at, found in sorted(seen.items()):
        bounds[at] = _bounds(found, first.get(at), last.get(at))
        faults += [f"{at}: {fault}" for fault in _faults(found, first.get(at), last.get(at))]
    if faults:
        raise ConfigError("these ranges cannot be copied:\n  " + "\n  ".join(faults))
    lost = {
        at: _gone(at, start, seen[at].log_start)
        for at, (start, end) in bounds.items()
        if start < end and start < seen[at].log_start
    }
    left = {at: bound for at, bound in bounds.items() if at not in lost}
    cuts = [cut for at, (start, end) in left.items() for cut in _cut(at, start, end, offsets_max)]
    claims = [Range(0, at, start, start) for at, (start, _) in left.items() if seen[at].position is None]
    if claims:
        cuts = [cut._replace(round=cut.round + 1) for cut in cuts]
    return Plan(sorted(claims + cuts), bounds, lost)


def _bounds(found: Seen, first: int | None, last: int | None) -> tuple[int, int]:
    begin = found.log_start if found.begin is None else found.begin
    fresh = begin if first is None else first
    return fresh if found.position is None else found.position, found.end if last is None else last


def _faults(found: Seen, first: int | None, last: int | None) -> Iterator[str]:
    end = found.end if last is None else last
    if end > found.end:
        yield f"is to end at offset {end}, past its committed end {found.end}"
    if first is None or (found.position is not None and first == found.claimed):
        return
    if first > end:
        yield f"starts at offset {first}, after its end {end}"
    elif found.position is not None and first < found.position:
        yield f"starts at offset {first}, below the committed position {found.position}: records would be doubled"
    elif found.position is not None and first > found.position:
        yield f"starts at offset {first}, above the committed position {found.position}: records would be left out"
    elif found.position is None and first < found.log_start:
        yield f"starts at offset {first}, but the source begins at {found.log_start}"


def _gone(at: Partition, start: int, log_start: int) -> Incident:
    why = f"source offsets {start} to {log_start - 1} were deleted before they were copied"
    return Incident("source_records_gone", why, topic=at.topic, partition=at.partition, offset=start)


def _cut(at: Partition, start: int, end: int, offsets_max: int) -> Iterator[Range]:
    for number, low in enumerate(range(start, end, offsets_max)):
        yield Range(number, at, low, min(low + offsets_max, end))
