"""Keeps one lane to what operators have paused and limited, see `throttle`. Called by `lane.session` between its
transactions.

A paused partition waits, so its position is kept alive like any other's, and nothing of it is read. What would stop it
once it is resumed stops it now: it is checked once in a discovery interval, as by a lane that starts. A topic that is
over its rate is left out of what the source is asked for, for as long as that takes: nothing of it is kept in memory.

Invariant: no partition of a limited topic waits for another one that has more to copy. A client that begins to read
returns the same partition's records first each time, and a slow rate leaves no time for others. So partitions that had
their turn are left out until all others had theirs, or none has anything for `TURN_S_MAX`. For those of a limited flow
see `flow_turns`.

What a limit holds back is checked as what is paused is: that the source has lost its records meanwhile is an incident.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from replicator.lane.flow_turns import FlowTurns
from replicator.lane.memory import Memory
from replicator.lane.partition import Reason, Wait, Waiting
from replicator.lane.plan import LanePlan
from replicator.lane.policy import Policy
from replicator.lane.ports import Clock
from replicator.lane.start import LaneStart
from replicator.lane.transaction import PAUSE_S_MAX
from replicator.model.errors import Retriable, Unreachable
from replicator.model.partition import Partition
from replicator.planes.contract import ReadPlan
from replicator.state.run_settings import FLOW

TURN_S_MAX = 1.0


class LaneThrottling:
    """Of one producer session."""

    def __init__(self, plan: LanePlan, policy: Policy, memory: Memory, start: LaneStart, clock: Clock) -> None:
        self._policy, self._throttle, self._partitions, self._clock = policy, memory.throttle, memory.partitions, clock
        self._start, self._interval_s = start, plan.flow.limits.discovery_interval_ms / 1000
        self._decided_s = clock.now_s()  # all of them, at the session's start
        self._held: frozenset[str] = frozenset()
        self._began_s: dict[str, float] = {}  # since when a topic is read that was held back
        # Invariant: turns are of records, not of states: a partition is copied whether or not it has had its turn.
        self._served: dict[str, frozenset[Partition]] = {}  # of such a topic: those that had their turn
        self._turns = FlowTurns(self._heard, self._offsets)
        self._bound: set[str] = set()  # by what limit anything was held back since partitions were checked last

    def look(self) -> None:
        """Make those wait that were paused since, check those that are, and have the source read anew where others are
        held back. Raises TakenOver, NotAllowed."""
        now_s = self._clock.now_s()
        if self._policy.copies_live and self._throttle.any_paused:
            for at in list(self._partitions.copied):
                if (paused := self._throttle.paused(at.topic)) is not None:
                    self._partitions.apply(at, Wait(Reason.PAUSED, paused.said))
        held = self._throttle.held(now_s)
        self._over(now_s)
        if held != self._held:
            self._take_turns(held, now_s)
            self._held, self._partitions.read_anew = held, True
        self._flow_turns(now_s)
        self._bound |= held
        if self._policy.copies_live and (self._throttle.any_paused or self._bound):
            self._decide(now_s)

    def _flow_turns(self, now_s: float) -> None:
        """Have those read whose turn it is under the flow's limit."""
        if FLOW not in self._throttle.rates():
            if self._turns.had_turn:
                self._turns, self._partitions.read_anew = FlowTurns(self._heard, self._offsets), True
            return
        waits_s = self._throttle.left_s(now_s)
        if waits_s > 0:
            self._bound.add(FLOW)
        readable = frozenset(at for at in self._partitions.copied if self._topic_lets(at))
        if self._turns.look(now_s, waits_s, readable, polls=waits_s <= PAUSE_S_MAX):
            self._partitions.read_anew = True

    def _offsets(self, partitions: Collection[Partition]) -> dict[Partition, int]:
        found = {at: self._partitions[at].position for at in partitions}
        return {at: position.offset for at, position in found.items() if position is not None}

    def _take_turns(self, held: frozenset[str], now_s: float) -> None:
        """Note which partitions had their turn of topics that are held back from now on, and of which one begins."""
        for topic in held - self._held:
            of_topic = self._of(topic)
            served = self._served.pop(topic, frozenset()) | self._came(topic, of_topic)
            if of_topic - served:
                self._served[topic] = served
        for topic in self._held - held:
            self._began_s[topic] = now_s

    def _over(self, now_s: float) -> None:
        """Have all partitions of a topic read where those whose turn it is have come, or have nothing."""
        for topic in self._served.keys() - self._held:
            waited_for = self._of(topic) - self._served[topic]
            if waited_for == self._came(topic, waited_for) or now_s >= self._began_s[topic] + TURN_S_MAX:
                del self._served[topic]
                self._partitions.read_anew = True

    def _of(self, topic: str) -> frozenset[Partition]:
        return frozenset(at for at in self._partitions.copied if at.topic == topic)

    def _came(self, topic: str, partitions: frozenset[Partition]) -> frozenset[Partition]:
        """Return those of which anything came since their topic is read."""
        return self._heard(partitions, self._began_s.get(topic, float("-inf")))

    def _heard(self, partitions: Collection[Partition], since_s: float) -> frozenset[Partition]:
        came = {at: self._partitions[at].session.came_s for at in partitions}
        return frozenset(at for at, came_s in came.items() if came_s is not None and came_s >= since_s)

    def _decide(self, now_s: float) -> None:
        """Decide over those that are paused, and those that a limit holds back, if it is time."""
        if now_s < self._decided_s + self._interval_s:
            return
        since_s, self._decided_s = self._decided_s, now_s
        not_read = [at for at in self._partitions if self._stays_paused(at)]
        bound = [at for at in self._partitions.copied if FLOW in self._bound or at.topic in self._bound]
        heard, self._bound = self._heard(bound, since_s), set()
        not_read += [at for at in bound if at not in heard]
        try:
            if not_read:
                self._start.decide_paused(not_read)
        except (Retriable, Unreachable):
            return  # that the target doesn't answer is told by who watches the clusters; they are checked next time

    def not_paused(self, due: Iterable[Partition]) -> list[Partition]:
        """Leave out those that only an operator lets go on; the others are to be checked again."""
        return [at for at in due if not self._stays_paused(at)]

    def _stays_paused(self, at: Partition) -> bool:
        state = self._partitions[at].state
        waits = isinstance(state, Waiting) and state.reason is Reason.PAUSED
        return waits and self._throttle.paused(at.topic) is not None

    def readable(self, read_plans: Mapping[Partition, ReadPlan]) -> dict[Partition, ReadPlan]:
        """Leave out those that are held back now, and those that wait for others to have their turn."""
        return {at: plan for at, plan in read_plans.items() if self._topic_lets(at) and at not in self._turns.had_turn}

    def _topic_lets(self, at: Partition) -> bool:
        """Tell whether no limit of its topic keeps a partition from being read now."""
        return at.topic not in self._held and at not in self._served.get(at.topic, ())
