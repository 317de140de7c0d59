"""Reads who owns a lane's positions once in a discovery interval. Called by `lane.session`.

A lane that commits nothing isn't told that it was fenced, and nobody is told that something else commits offsets of the
flow's group.
"""

from __future__ import annotations

from replicator.lane.memory import SessionContext
from replicator.lane.plan import LanePlan
from replicator.lane.policy import Policy
from replicator.lane.positions import LanePositions
from replicator.lane.start import LaneStart
from replicator.model.errors import Retriable, Unreachable


class OwnerWatch:
    """Of one producer session."""

    def __init__(self, plan: LanePlan, policy: Policy, start: LaneStart, context: SessionContext) -> None:
        self._policy, self._start, self._clock, self._log = policy, start, context.clock, context.log
        self._interval_s = plan.flow.limits.discovery_interval_ms / 1000
        self._looked_s = context.clock.now_s()

    def look(self, positions: LanePositions) -> bool:
        """Look, if it is time; whether positions have to be committed again. Raises TakenOver, NotAllowed."""
        now_s = self._clock.now_s()
        if not self._policy.copies_live or now_s < self._looked_s + self._interval_s:
            return False
        self._looked_s = now_s
        try:
            return self._start.check_owners(positions)
        except (Retriable, Unreachable) as error:
            self._log.warning("owner_unknown", reason=str(error))
            return False
