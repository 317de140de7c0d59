"""Says of source partitions that their leader doesn't serve them: its disk has failed, for instance. Used by
`lane.session`, between two transactions.

Nothing else tells such a partition from one that has nothing new. So those from which nothing came are asked
for. One whose leader refuses to tell its end waits, and `lane.start` checks it again, as all others that wait. One that
has records, of which none comes although nothing else keeps the reader busy, is read on, and is said to wait.

Invariant: a partition that is held up while the lane isn't is held up by this module alone, so its state says all.
"""

from __future__ import annotations

from collections.abc import Mapping

from replicator.lane.memory import Memory
from replicator.lane.partition import HeldUp, HoldUp, LanePartition, Reason, RecordsCommitted, Wait
from replicator.lane.ports import Clock, ClusterQuestions
from replicator.model.partition import Partition

QUIET_S, STUCK_S = 3.0, 6.0
LOOK_S = 1.0  # between two looks for such partitions


class UnservedSources:
    """Of one producer session."""

    def __init__(self, memory: Memory, source: ClusterQuestions, cluster: str, clock: Clock) -> None:
        """`cluster`: the source's name in the flow file."""
        self._partitions, self._throttle = memory.partitions, memory.throttle
        self._source, self._cluster, self._clock = source, cluster, clock
        self._began_s = self._looked_s = self._idle_s = clock.now_s()

    def idle(self) -> None:
        """Note that the reader has nothing left of what has come."""
        self._idle_s = self._clock.now_s()

    def look(self, copied: Mapping[Partition, LanePartition]) -> None:
        """Look now and then which of `copied` aren't served."""
        now_s = self._clock.now_s()
        if now_s < self._looked_s + LOOK_S:
            return
        self._looked_s = now_s
        quiet_s = {at: now_s - self._came_s(it) for at, it in copied.items()}
        if not self._partitions.lane_held_up:  # otherwise nothing of what is held up is for this to release
            for at, it in copied.items():
                if isinstance(it.state, HeldUp) and quiet_s[at] < QUIET_S:
                    self._partitions.apply(at, RecordsCommitted())
        quiet = [at for at, seconds in quiet_s.items() if seconds >= QUIET_S]
        refused = self._source.unserved(quiet)
        for at, why in refused.items():
            self._partitions.apply(at, Wait(Reason.NO_ANSWER, why))
        if now_s < self._idle_s + LOOK_S:
            for at in quiet:
                if quiet_s[at] >= STUCK_S and at not in refused and not isinstance(copied[at].state, HeldUp):
                    self._hold(at, copied[at])

    def _hold(self, at: Partition, partition: LanePartition) -> None:
        end, position = self._source.seen_end(at), partition.position
        if end is None or position is None or end <= position.offset or partition.refusal.until is not None:
            return
        if self._throttle.limited(at.topic):
            return  # it may be a limit that keeps them unread
        why = f"cluster {self._cluster!r}: {at} ends at {end}, and nothing comes behind {position.offset}: its leader"
        self._partitions.apply(at, HoldUp(Reason.NO_ANSWER, f"{why} answers, but doesn't serve it"))

    def _came_s(self, partition: LanePartition) -> float:
        came_s = partition.session.came_s
        return self._began_s if came_s is None else came_s
