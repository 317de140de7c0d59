"""Cuts what a job has to copy into bounded ranges of source offsets. Pure.

Used by backfill and continuous rounds; `jobs.schedule` says which range is next.

Invariants
- The ranges of a partition follow one another without gap or overlap, from its position to its fixed end: what a
  range must copy is known before anything runs, and what stands on the target decides how far it is.
- Offsets are sparse (markers, aborted records, compaction): a range of n offsets holds at most n records.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from replicator.jobs.partition_state import PartitionOffsets
from replicator.lane.start_decision import unreadable
from replicator.model.contradictions import cut_below
from replicator.model.errors import ConfigError, Incident
from replicator.model.partition import Partition


class Range(NamedTuple):
    """Source offsets [start, end) of one partition, copied by one task."""

    at: Partition
    start: int
    end: int

    @property
    def empty(self) -> bool:
        """Whether it only claims its partition, see `Plan`."""
        return self.start == self.end


class Plan(NamedTuple):
    """All ranges of a job, claims first, then by partition and offset; a partition that is done already has none.

    The first range of a partition without a position is empty: it claims the partition, so that whoever runs the flow
    later, and however far this job comes, begins where it would have. Until all are claimed nothing is copied.

    `bounds` are the offsets [start, end) of every partition, `lost` those of which the source has deleted what comes
    next, or lost what was copied before, or of which nothing tells what is copied: they have no ranges.
    """

    ranges: list[Range]
    bounds: dict[Partition, tuple[int, int]]
    lost: dict[Partition, Incident]


NONE: Mapping[Partition, int] = {}


@dataclass(frozen=True, slots=True)
class Given:
    """Offsets that the user gave, by partition: `first` is inclusive, `last` exclusive. Without them a partition goes
    from its position to its end."""

    first: Mapping[Partition, int] = field(default_factory=dict)
    last: Mapping[Partition, int] = field(default_factory=dict)


NOTHING_GIVEN = Given()


def plan(
    offsets: Mapping[Partition, PartitionOffsets],
    offsets_max: int,
    given: Given = NOTHING_GIVEN,
    *,
    begins: Mapping[Partition, int] = NONE,
    claimed: Mapping[Partition, int] = NONE,
) -> Plan:
    """Divide every partition into ranges of at most `offsets_max`.

    `begins`: where partitions without a position begin if nothing is given, else at their log start. `claimed`: where
    the flow's copy of a partition began.

    Raises ConfigError that lists every partition whose given offsets can't be: past the source's end, in reverse, or
    `first` elsewhere than at the committed position: below it records would be doubled, above it left out. But where
    the copy began is no fault: that is the same job, begun again.
    """
    if offsets_max < 1:
        raise ConfigError(f"a range needs at least one offset, not {offsets_max}")
    unknown = sorted((given.first.keys() | given.last.keys()) - offsets.keys())
    faults = [f"{at}: not a partition of this flow's topics" for at in unknown]
    bounds: dict[Partition, tuple[int, int]] = {}
    for at, read in sorted(offsets.items()):
        end = given.last.get(at, read.end)
        start = given.first.get(at, begins.get(at, read.log_start)) if read.position is None else read.position
        bounds[at] = (start, end)
        same = read.position is not None and at in claimed and given.first.get(at) == claimed[at]
        first = None if same or read.stray is not None else given.first.get(at)  # a stray commit is no position
        faults += [f"{at}: {fault}" for fault in _faults(read, first, end)]
    if faults:
        raise ConfigError("these ranges cannot be copied:\n  " + "\n  ".join(faults))
    lost = {at: found for at, bound in bounds.items() if (found := _lost(at, bound, offsets[at])) is not None}
    left = {at: bound for at, bound in bounds.items() if at not in lost}
    cuts = [cut for at, (start, end) in left.items() for cut in _cut(at, start, end, offsets_max)]
    claims = [Range(at, start, start) for at, (start, _) in left.items() if offsets[at].position is None]
    return Plan(claims + cuts, bounds, lost)


def _faults(read: PartitionOffsets, first: int | None, end: int) -> Iterator[str]:
    """Yield what is wrong with the offsets that were given. `first` None: none was, or the one where the copy began."""
    if end > read.end:
        yield f"is to end at offset {end}, past its committed end {read.end}"
    if first is None:
        return
    if first > end:
        yield f"starts at offset {first}, after its end {end}"
    elif read.position is not None and first < read.position:
        yield f"starts at offset {first}, below the committed position {read.position}: records would be doubled"
    elif read.position is not None and first > read.position:
        yield f"starts at offset {first}, above the committed position {read.position}: records would be left out"
    elif read.position is None and first < read.log_start:
        yield f"starts at offset {first}, but the source begins at {read.log_start}"


def _lost(at: Partition, bound: tuple[int, int], read: PartitionOffsets) -> Incident | None:
    """Return what keeps a partition from being copied.

    A log that ends below the position is one also where nothing is left to copy up to its end: new records get the
    offsets of those that are gone, and once they have reached the position nothing may show it any more. Nor does
    somebody else's commit say that anything is copied, wherever it stands.
    """
    start, end = bound
    if read.stray is not None:
        return unreadable(at, read.stray)
    if read.cut:
        name, why = "source_truncated", cut_below(start, read.log_end)
        if read.evidence is not None and read.evidence.source_topic_id != read.topic_id:
            name = "source_topic_recreated"
            ids = f"the source topic's id was {read.evidence.source_topic_id}, and is {read.topic_id} now"
            why = f"{ids}: it ends at {read.log_end}, and the old position is {start}"
    elif start < min(end, read.log_start):
        name = "source_records_gone"
        why = f"source offsets {start} to {read.log_start - 1} were deleted before they were copied"
    else:
        return None
    return Incident(name, why, topic=at.topic, partition=at.partition, offset=start)


def _cut(at: Partition, start: int, end: int, offsets_max: int) -> Iterator[Range]:
    for low in range(start, end, offsets_max):
        yield Range(at, low, min(low + offsets_max, end))
