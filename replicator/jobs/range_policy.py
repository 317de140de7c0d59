"""The policy of a bounded attempt: from the committed position, or a given first offset, to a fixed end.

Used by `jobs.range_copy` for its tasks. A lane without an end is there to commit its positions again, and is
done as soon as it has.
"""

from __future__ import annotations

from collections.abc import Mapping

from replicator.lane.policy import Progress, read_plan
from replicator.lane.ports import ClusterQuestions, Connections
from replicator.lane.positions import LanePositions
from replicator.model.contradictions import cut_below, is_older
from replicator.model.errors import Incident
from replicator.model.partition import LogEnds, Partition, Seek
from replicator.planes.contract import Copied, ReadPlan


class RangePolicy:
    """Implements `lane.policy.Policy`."""

    waits = False
    copies_live = False
    reads_on = True

    def __init__(
        self,
        first: Mapping[Partition, int],
        ends: Mapping[Partition, int],
        rate_max: float | None = None,
        *,
        decides: bool = False,
    ) -> None:
        """
        Args:
            first: where partitions without a position begin.
            ends: source offsets (exclusive) up to which partitions are copied.
            rate_max: records a second of all partitions together, None: as fast as it goes.
            decides: see `Policy`.
        """
        self._first, self._ends, self.rate_max = dict(first), dict(ends), rate_max
        self.decides = decides
        self.ended_early: dict[Partition, str] = {}
        """Ranges whose sources end before them now, though nothing that was copied is gone, and why: what comes next
        has to be planned anew. Of a backfill, which has fixed its ends, that is an incident instead."""
        self._until: dict[Partition, int] = {}  # how far the plane was asked to read
        self._to: Connections | None = None

    def first_offset(self, at: Partition) -> int | None:
        """Return the range's first offset."""
        return self._first.get(at)

    def repairs(self, incident: Incident) -> bool:
        """Return False: incidents are decided by people."""
        return False

    def opened(self, to: Connections, positions: LanePositions) -> None:
        """Take the connections; nothing else has to be known."""
        self._to = to

    def read_plans(self, positions: LanePositions) -> dict[Partition, ReadPlan]:
        """Plan to read from the committed positions to the ranges' ends, or to a refused record before that."""
        found = {
            at: read_plan(positions.entries[at], seek, self._ends[at])
            for at, seek in positions.seeks().items()
            if at in self._ends
        }
        self._until = {at: one.until for at, one in found.items() if one.until is not None}
        return found

    def reached(self, positions: LanePositions) -> dict[Partition, int]:
        """Return the committed positions."""
        return {at: seek.offset for at, seek in positions.seeks().items()}

    def progress(
        self, positions: LanePositions, copied: Mapping[Partition, Copied], ends: Mapping[Partition, Seek], now_ms: int
    ) -> Progress:
        """Return the positions behind what was copied, and past markers and aborted records."""
        return Progress(positions.next_positions(copied, ends, now_ms))

    def on_committed(self, copied: Mapping[Partition, Copied], ends: Mapping[Partition, Seek]) -> bool:
        """Return False: the source is read on. Raises Incident `source_truncated` where it ends before the range; where
        incidents are written down, only if it ends below the position, too: it would stop lanes that come later."""
        for at, end in ends.items():
            if self._to is None or at not in self._ends or end.offset >= self._until.get(at, 0):
                continue
            if self.decides:
                self._end_early(self._to.source, at, end)
            else:
                check_source_end(self._to.source, at, self._ends[at], end.leader_epoch)
        return False

    def _end_early(self, source: ClusterQuestions, at: Partition, position: Seek) -> None:
        """End a range where its source ends now. Raises Incident where that is below the committed position."""
        log, until = source.log_ends([at])[at], self._ends[at]
        if not isinstance(log, LogEnds) or log.stable >= until:
            return
        if log.end < position.offset and not is_older(log, position.leader_epoch):
            why = cut_below(position.offset, log.end)
            raise Incident("source_truncated", why, topic=at.topic, partition=at.partition, offset=position.offset)
        self._ends[at] = max(log.stable, position.offset)
        self.ended_early[at] = f"offsets up to {until} were to be copied, but the source now ends at {log.stable}"

    def done(self, positions: LanePositions, ends: Mapping[Partition, Seek]) -> bool:
        """Return whether every partition that has an end is copied and has reached it.

        A partition that waits, or that an incident stopped, is never done, wherever its position stands.
        """
        stands = self.reached(positions)
        return all(
            at in stands and max(stands[at], ends[at].offset if at in ends else 0) >= end
            for at, end in self._ends.items()
        )


def check_source_end(source: ClusterQuestions, at: Partition, end: int, leader_epoch: int = -1) -> None:
    """Check the source's end after a reader came to the log's end before `end`, which was once behind committed
    records.

    A new leader may show readers less for a moment, but answers no ListOffsets then (KIP-207): so its end is asked for.
    `leader_epoch` is the one that the reader has come to (-1: not known): what an older leader says doesn't count, and
    another broker is asked from then on. Raises Incident `source_truncated`.
    """
    log = source.log_ends([at])[at]
    if isinstance(log, LogEnds) and log.stable < end:
        if is_older(log, leader_epoch):
            source.ask_another()
            return
        why = f"offsets up to {end} were to be copied, but the source now ends at {log.stable}"
        raise Incident("source_truncated", why, topic=at.topic, partition=at.partition, offset=log.stable)
