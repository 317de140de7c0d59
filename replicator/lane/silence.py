"""Of which partitions nothing was heard for long: no record, no end, no error. Used by `lane.session`.

Their topic may be another one now, which librdkafka ignores, while others have records without end.
"""

from __future__ import annotations

from collections.abc import Mapping

from replicator.lane.partition import LanePartition
from replicator.lane.ports import Clock
from replicator.lane.positions import LanePositions
from replicator.lane.transaction import LaneTransactions
from replicator.model.partition import Partition

SILENT_S = 10.0
LOOK_S = 1.0  # between two looks for such partitions


def silent(copied: Mapping[Partition, LanePartition], now_s: float) -> list[Partition]:
    """Find those that are silent now. One of which nothing was heard in this session counts from this look on."""
    found: list[Partition] = []
    for at, partition in copied.items():
        if partition.session.heard_s is None:
            partition.session.heard_s = now_s
        elif now_s - partition.session.heard_s >= SILENT_S:
            found.append(at)
    return found


class SilenceWatch:
    """Looks for silent partitions now and then, and has the ids of their topics asked for (invariant 8)."""

    def __init__(self, transactions: LaneTransactions, clock: Clock) -> None:
        self._transactions, self._clock = transactions, clock
        self._listened_s = clock.now_s()

    def look(self, positions: LanePositions) -> None:
        """Raise IdMismatch where the topic of a silent partition is another one, or that isn't known."""
        now_s = self._clock.now_s()
        if now_s < self._listened_s + LOOK_S:
            return
        self._listened_s = now_s
        found = silent(positions.copying, now_s)
        if found:
            self._transactions.check_ids(positions, found)
            for at in found:
                positions.entries[at].session.heard_s = self._clock.now_s()
