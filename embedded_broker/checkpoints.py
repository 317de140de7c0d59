"""Which partition gets a checkpoint when, so that a start after a kill has little to read however many there are."""

from __future__ import annotations

from embedded_broker.partition import Partition

WORTH = 16
"""A checkpoint must save this many times its own size."""


class Checkpoints:
    """Adds up what a start would have to scan."""

    def __init__(self, scan_bytes_max: int) -> None:
        """`scan_bytes_max`: over all partitions together."""
        self._scan_bytes_max = scan_bytes_max
        # Invariant: `_total` is the sum of the values.
        self._behind: dict[Partition, int] = {}
        self._total = 0

    def note(self, partition: Partition) -> None:
        """A partition has grown."""
        behind = max(partition.log.scan_cost_bytes - WORTH * partition.log.checkpoint_bytes, 0)
        self._total += behind - self._behind.get(partition, 0)
        self._behind[partition] = behind

    @property
    def is_due(self) -> bool:
        """Whether all partitions together are too far behind."""
        return self._total > self._scan_bytes_max

    def due(self) -> Partition | None:
        """The partition that is furthest behind, if together they are too far. It counts as done then."""
        while self.is_due:
            partition = max(self._behind, key=lambda each: self._behind[each])
            self._total -= self._behind.pop(partition)
            if not partition.closed:
                return partition
        return None
