"""Whether anything of a flow can go on, from what its lanes say of their partitions. Pure; owned by `flow.worker`."""

from __future__ import annotations

from collections.abc import Iterable

from replicator.lane.partitions import PartitionCounts


class FlowCounts:
    """The counts of all lanes of a flow, as they were reported last.

    Invariant: a lane counts only once it has reported since it was given its partitions. Lanes report when they
    change, so a lane whose numbers stay the same counts again from the next discovery on (`settle`).
    """

    def __init__(self, lanes: Iterable[int]) -> None:
        """`lanes` that have partitions: only those have something to report."""
        self._by_lane: dict[int, PartitionCounts] = {}
        self._unsettled = set(lanes)
        self.complete = False
        """Whether all lanes have reported at least once."""

    def update(self, lane: int, counts: PartitionCounts) -> None:
        """Take the counts that a lane has reported."""
        self._by_lane[lane] = counts
        self._unsettled.discard(lane)
        self._check()

    def reassigned(self, lane: int, partitions: int) -> None:
        """Note that a lane was given so many partitions, others than before. One without any has nothing to report."""
        if partitions:
            self._unsettled.add(lane)
        else:
            self._unsettled.discard(lane)

    def forget(self, lane: int) -> None:
        """Forget a lane that has ended, and says nothing of its partitions any more."""
        self._by_lane.pop(lane, None)
        self._unsettled.discard(lane)

    def settle(self) -> None:
        """Note that a discovery interval has passed: what lanes have reported is all they have to report."""
        self._unsettled -= self._by_lane.keys()
        self._check()

    def _check(self) -> None:
        self.complete = self.complete or not self._unsettled

    @property
    def stopped(self) -> int:
        """Partitions that incidents stop."""
        return sum(counts.stopped for counts in self._by_lane.values())

    @property
    def all_stopped(self) -> bool:
        """Whether incidents stop everything: at least one partition is stopped, none is copied and none waits."""
        if self._unsettled:
            return False
        going_on = any(counts.copying or counts.waiting for counts in self._by_lane.values())
        return not going_on and self.stopped > 0
