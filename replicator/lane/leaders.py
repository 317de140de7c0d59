"""Makes partitions wait that nobody leads at the source, and keeps them from being checked again before somebody does.

librdkafka waits for a leader in silence, and nothing else tells such a partition from one that has nothing new. Used by
`lane.start` and, between two transactions, by `lane.session`.
"""

from __future__ import annotations

from collections.abc import Collection

from replicator.lane.partition import Reason, Wait
from replicator.lane.partitions import Partitions
from replicator.lane.ports import Clock, ClusterQuestions
from replicator.model.partition import Partition

LOOK_S = 0.5  # between two looks at what is known


class SourceLeaders:
    """Of one producer session."""

    def __init__(self, partitions: Partitions, source: ClusterQuestions, cluster: str, clock: Clock) -> None:
        """`cluster`: the source's name in the flow file."""
        self._partitions, self._source, self._cluster, self._clock = partitions, source, cluster, clock
        self._looked_s = -LOOK_S

    def look(self, copied: Collection[Partition]) -> None:
        """Look now and then: those of `copied` wait that have no leader."""
        now_s = self._clock.now_s()
        if now_s >= self._looked_s + LOOK_S:
            self._looked_s = now_s
            self._keep_out(copied)

    def led(self, partitions: Collection[Partition]) -> list[Partition]:
        """Return those that may be checked: the others wait for an answer, and for a leader to give it."""
        waiting = [at for at in partitions if self._partitions[at].waits_since(Reason.NO_ANSWER) is not None]
        still = self._keep_out(waiting)
        return [at for at in partitions if at not in still]

    def _keep_out(self, partitions: Collection[Partition]) -> set[Partition]:
        found = self._source.without_leader(partitions) if partitions else set()
        for at in found:
            detail = f"cluster {self._cluster!r}: {at} has no leader"
            self._partitions.apply(at, Wait(Reason.NO_ANSWER, detail))
        return found
