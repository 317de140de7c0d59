"""Keeps one lane to what operators have paused and limited, see `throttle`. Called by `lane.session` between its
transactions.

A paused partition waits, so its position is kept alive like any other's, and nothing of it is read. A topic that is
over its rate is left out of what the source is asked for, for as long as that takes: nothing of it is kept in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from replicator.lane.memory import Memory
from replicator.lane.partition import Reason, Wait, Waiting
from replicator.lane.policy import Policy
from replicator.lane.ports import Clock
from replicator.model.partition import Partition
from replicator.planes.contract import ReadPlan


class LaneThrottling:
    """Of one producer session."""

    def __init__(self, policy: Policy, memory: Memory, clock: Clock) -> None:
        self._policy, self._throttle, self._partitions, self._clock = policy, memory.throttle, memory.partitions, clock
        self._held: frozenset[str] = frozenset()

    def look(self) -> None:
        """Make those wait that were paused since, and have the source read anew where others are held back."""
        if self._policy.copies_live and self._throttle.any_paused:
            for at in list(self._partitions.copied):
                if (paused := self._throttle.paused(at.topic)) is not None:
                    self._partitions.apply(at, Wait(Reason.PAUSED, paused.said))
        held = self._throttle.held(self._clock.now_s())
        if held != self._held:
            self._held, self._partitions.read_anew = held, True

    def not_paused(self, due: Iterable[Partition]) -> list[Partition]:
        """Leave out those that only an operator lets go on; the others are to be judged again."""
        return [at for at in due if not (self._is_paused(at) and self._throttle.paused(at.topic) is not None)]

    def _is_paused(self, at: Partition) -> bool:
        state = self._partitions[at].state
        return isinstance(state, Waiting) and state.reason is Reason.PAUSED

    def readable(self, read_plans: Mapping[Partition, ReadPlan]) -> dict[Partition, ReadPlan]:
        """Leave out those that are held back now."""
        return {at: plan for at, plan in read_plans.items() if at.topic not in self._held}
