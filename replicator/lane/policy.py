"""What distinguishes live lanes, bounded attempts and repairs; everything else of a lane is the same code.

`LivePolicy` is the daemon's. `jobs.range_policy` and `jobs.repair_policy` have the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from replicator.lane.partition import LanePartition
from replicator.lane.ports import Connections
from replicator.lane.positions import LanePositions
from replicator.model.checkpoint import Position
from replicator.model.errors import Incident
from replicator.model.partition import Partition, Seek, Span
from replicator.planes.contract import Copied, ReadPlan


@dataclass(frozen=True, slots=True)
class Progress:
    """What a transaction is to commit: positions by source partition, and records of the claims topic."""

    positions: Mapping[Partition, Position] = field(default_factory=dict)
    entries: Sequence[tuple[bytes, bytes]] = ()


class Policy(Protocol):
    """One lane's policy, over all its producer sessions. Called by the lane's thread only."""

    waits: bool
    """Whether a partition may wait for a missing right, and the lane for its clusters; for a job that is an error."""
    copies_live: bool
    """Whether the lane has no end: positions are released at a clean stop, so that others see nobody runs them."""
    reads_on: bool
    """Whether what is read follows the committed positions, so that nothing of it counts before they have passed it."""
    decides: bool
    """Whether incidents are written down, and what was decided about them is acted on."""
    rate_max: float | None
    """Records a second; None: as fast as it goes."""

    def first_offset(self, at: Partition) -> int | None:
        """Say where a partition without a position begins; None: as the flow's `start` says."""

    def repairs(self, incident: Incident) -> bool:
        """Tell whether this lane is the decision that the incident waits for."""

    def opened(self, to: Connections, positions: LanePositions) -> None:
        """Take what this session works with, and read what else has to be known, after positions were committed again.

        Raises Incident, Retriable, Unreachable, NotAllowed.
        """

    def read_plans(self, positions: LanePositions) -> dict[Partition, ReadPlan]:
        """Say how the partitions that are copied are read from now on. Raises as `opened`."""

    def reached(self, positions: LanePositions) -> dict[Partition, int]:
        """Say up to which source offset (exclusive) each partition that is copied was read and committed."""

    def progress(
        self, positions: LanePositions, copied: Mapping[Partition, Copied], ends: Mapping[Partition, Seek], now_ms: int
    ) -> Progress:
        """Say what to commit after what was copied, or after what `ends` say without records.

        Raises Incident (see `LanePositions.next_positions`), Abortable.
        """

    def on_committed(self, copied: Mapping[Partition, Copied], ends: Mapping[Partition, Seek]) -> bool:
        """Take note of a commit, or that nothing was there to commit. Return whether the source must be read anew.
        Raises Incident."""

    def done(self, positions: LanePositions, ends: Mapping[Partition, Seek]) -> bool:
        """Tell whether the source is read to the end of `read_plans` once `ends` are committed.

        Without `ends`: whether the lane is at its end.
        """


def read_plan(partition: LanePartition, start: Seek, end: int | None = None, spans: Sequence[Span] = ()) -> ReadPlan:
    """Say how a partition is read: from `start` to `end` (None: on and on), or to a refused record before that.

    Of `spans`, where there are any, nothing else is read.
    """
    refusal, digest = partition.refusal, partition.position.evidence.digest if partition.position is not None else ""
    until = min((offset for offset in (end, refusal.until) if offset is not None), default=None)
    inside = tuple((first, min(last, until)) for first, last in spans if first < until) if until is not None else spans
    return ReadPlan(start, digest, until, tuple(inside), refusal.every_ack, refusal.flush_every)


class LivePolicy:
    """The daemon's lanes: no end, everything that can be waited for is waited for."""

    waits = True
    copies_live = True
    reads_on = True
    decides = True
    rate_max: float | None = None

    def first_offset(self, at: Partition) -> int | None:
        """Leave it to the flow's `start`."""
        return None

    def repairs(self, incident: Incident) -> bool:
        """Leave incidents to people."""
        return False

    def opened(self, to: Connections, positions: LanePositions) -> None:
        """Need nothing else."""

    def read_plans(self, positions: LanePositions) -> dict[Partition, ReadPlan]:
        """Read from the committed positions on, up to a refused record."""
        return {at: read_plan(positions.entries[at], seek) for at, seek in positions.seeks().items()}

    def reached(self, positions: LanePositions) -> dict[Partition, int]:
        """Return the committed positions."""
        return {at: seek.offset for at, seek in positions.seeks().items()}

    def progress(
        self, positions: LanePositions, copied: Mapping[Partition, Copied], ends: Mapping[Partition, Seek], now_ms: int
    ) -> Progress:
        """Commit the positions behind what was copied, and past markers and aborted records."""
        return Progress(positions.next_positions(copied, ends, now_ms))

    def on_committed(self, copied: Mapping[Partition, Copied], ends: Mapping[Partition, Seek]) -> bool:
        """Read on."""
        return False

    def done(self, positions: LanePositions, ends: Mapping[Partition, Seek]) -> bool:
        """Go on without an end."""
        return False
