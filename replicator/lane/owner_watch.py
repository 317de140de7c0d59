"""Reads who owns a lane's positions once in a discovery interval, and heals what was committed in their place.
Called by `lane.session`.

A lane that commits nothing isn't told that it was fenced, and nobody is told that something else commits offsets of the
flow's group.
"""

from __future__ import annotations

from collections.abc import Callable

from replicator.lane.memory import SessionContext
from replicator.lane.plan import LanePlan
from replicator.lane.policy import Policy
from replicator.lane.positions import LanePositions
from replicator.lane.start import LaneStart
from replicator.lane.transaction import CommitKind
from replicator.model.errors import Retriable, Unreachable


class OwnerWatch:
    """Of one producer session."""

    def __init__(self, plan: LanePlan, policy: Policy, start: LaneStart, context: SessionContext) -> None:
        self._policy, self._start, self._clock, self._log = policy, start, context.clock, context.log
        self._interval_s = plan.flow.limits.discovery_interval_ms / 1000
        self._looked_s = context.clock.now_s()

    def look(self, positions: LanePositions, commit: Callable[[CommitKind], None]) -> None:
        """Look, if it is time. Where something else has committed, the lane's positions are committed again, and then
        the partitions go on that this has stopped: before anybody counts them as stopped by what is healed. That is
        done once a look, however often something else commits.

        Raises TakenOver, NotAllowed, and what `commit` does.
        """
        now_s = self._clock.now_s()
        if not self._policy.copies_live or now_s < self._looked_s + self._interval_s:
            return
        self._looked_s = now_s
        try:
            if not self._start.check_owners(positions):
                return
        except (Retriable, Unreachable) as error:
            self._log.warning("owner_unknown", reason=str(error))
            return
        commit(CommitKind.OVERWRITTEN)  # before all else: no later session knows them
        if self._start.decide_overwritten():
            commit(CommitKind.ADMITTED)
