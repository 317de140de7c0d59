"""Decides which partition gets a checkpoint and when, to limit the bytes that a start after a kill has to scan.

Used by `FlushScheduler`.
"""

from __future__ import annotations

from embedded_broker.config.thresholds import DEFAULTS
from embedded_broker.storage.partition import Partition


class Checkpoints:
    """Keeps the bytes that a start would have to scan, by partition and in total."""

    def __init__(self, scan_bytes_max: int, worth: int = DEFAULTS.checkpoint_worth) -> None:
        """
        Args:
            scan_bytes_max: over all partitions together.
            worth: a checkpoint must save this many times its own size.
        """
        self._scan_bytes_max, self._worth = scan_bytes_max, worth
        # Invariant: `_total` is the sum of the values.
        self._behind: dict[Partition, int] = {}
        self._total = 0

    def note(self, partition: Partition) -> None:
        """Update the bytes of a partition that has grown."""
        behind = max(partition.log.scan_cost_bytes - self._worth * partition.log.checkpoint_bytes, 0)
        self._total += behind - self._behind.get(partition, 0)
        self._behind[partition] = behind

    @property
    def is_due(self) -> bool:
        """Whether all partitions together are too far behind."""
        return self._total > self._scan_bytes_max

    def due(self) -> Partition | None:
        """Return the partition with the most bytes to scan, if the total is above the limit; it is removed from the
        total.
        """
        while self.is_due:
            partition = max(self._behind, key=lambda each: self._behind[each])
            self._total -= self._behind.pop(partition)
            if not partition.closed:
                return partition
        return None
