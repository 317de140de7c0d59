"""Keeps one lane to what operators have paused and limited, see `throttle`. Called by `lane.session` between its
transactions.

A paused partition waits, so its position is kept alive like any other's, and nothing of it is read. What would stop it
once it is resumed stops it now: it is judged once in a discovery interval, as by a lane that starts. A topic that is
over its rate is left out of what the source is asked for, for as long as that takes: nothing of it is kept in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from replicator.lane.memory import Memory
from replicator.lane.partition import Reason, Wait, Waiting
from replicator.lane.plan import LanePlan
from replicator.lane.policy import Policy
from replicator.lane.ports import Clock
from replicator.lane.start import LaneStart
from replicator.model.errors import Retriable, Unreachable
from replicator.model.partition import Partition
from replicator.planes.contract import ReadPlan


class LaneThrottling:
    """Of one producer session."""

    def __init__(self, plan: LanePlan, policy: Policy, memory: Memory, start: LaneStart, clock: Clock) -> None:
        self._policy, self._throttle, self._partitions, self._clock = policy, memory.throttle, memory.partitions, clock
        self._start, self._interval_s = start, plan.flow.limits.discovery_interval_ms / 1000
        self._judged_s = clock.now_s()  # all of them, at the session's start
        self._held: frozenset[str] = frozenset()

    def look(self) -> None:
        """Make those wait that were paused since, judge those that are, and have the source read anew where others are
        held back. Raises TakenOver, NotAllowed."""
        if self._policy.copies_live and self._throttle.any_paused:
            for at in list(self._partitions.copied):
                if (paused := self._throttle.paused(at.topic)) is not None:
                    self._partitions.apply(at, Wait(Reason.PAUSED, paused.said))
            self._judge()
        held = self._throttle.held(self._clock.now_s())
        if held != self._held:
            self._held, self._partitions.read_anew = held, True

    def _judge(self) -> None:
        """Judge those that are paused, if it is time."""
        now_s = self._clock.now_s()
        if now_s < self._judged_s + self._interval_s:
            return
        self._judged_s = now_s
        paused = [at for at in self._partitions if self._stays_paused(at)]
        try:
            if paused:
                self._start.judge_paused(paused)
        except (Retriable, Unreachable):
            return  # that the target doesn't answer is told by who watches the clusters; they are judged next time

    def not_paused(self, due: Iterable[Partition]) -> list[Partition]:
        """Leave out those that only an operator lets go on; the others are to be judged again."""
        return [at for at in due if not self._stays_paused(at)]

    def _stays_paused(self, at: Partition) -> bool:
        state = self._partitions[at].state
        waits = isinstance(state, Waiting) and state.reason is Reason.PAUSED
        return waits and self._throttle.paused(at.topic) is not None

    def readable(self, read_plans: Mapping[Partition, ReadPlan]) -> dict[Partition, ReadPlan]:
        """Leave out those that are held back now."""
        return {at: plan for at, plan in read_plans.items() if at.topic not in self._held}
