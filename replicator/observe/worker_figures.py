"""What a worker that shares its flow reports of itself as a member of the flow's group. Written by the flow's threads
(`flow.group_worker`, `flow.discovery`), read by requests over HTTP."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from replicator.flow.group_members import FlowWorkers
from replicator.workers.lane_stages import LaneStage


@dataclass(frozen=True, slots=True)
class WorkerFigures:
    """Of one flow. `stages`: of the lanes that this worker has, or that still run here. `rebalances`: assignments since
    the process began; `assigned`: whether the group's last word is an assignment, so not before the first one, nor once
    the membership is lost; `handovers`: how many lanes it has begun to run, and `handover_s` how long that took in
    all, each from its assignment. `standing_by`: why it runs nothing; empty: it doesn't stand by. `members`: all
    workers of the flow, as they were at `members_ms` (wall clock); None before that is known."""

    stages: Mapping[int, LaneStage] = field(default_factory=dict)
    rebalances: int = 0
    assigned: bool = False
    handovers: int = 0
    handover_s: float = 0.0
    standing_by: str = ""
    members: FlowWorkers | None = None
    members_ms: int = 0

    @property
    def all_held(self) -> bool:
        """Whether the group has given this worker its lanes, and each of them has initialised its transactional id. One
        without lanes is a member of a group whose other members have them all."""
        if self.standing_by or not self.assigned:
            return False
        own = [it for it in self.stages.values() if it.assigned]
        if not own:
            return self.members is not None and self.members.lanes > 0 and not self.members.unassigned
        return all(it is LaneStage.RUNNING for it in own)

    def elsewhere(self, lane: int) -> bool:
        """Return whether another member of the group has a lane. Who is no member itself can't tell."""
        if not self.assigned or self.members is None or lane >= self.members.lanes:
            return False
        here = lane in self.stages and self.stages[lane].assigned
        return not here and lane not in self.members.unassigned


class ObservedWorker:
    """Implements `flow.worker.WorkerObserver`."""

    def __init__(self) -> None:
        self._own, self._lock = WorkerFigures(), threading.Lock()

    @property
    def figures(self) -> WorkerFigures:
        """As they are now."""
        return self._own

    def stages(self, stages: Mapping[int, LaneStage], *, assigned: bool) -> None:
        """See `WorkerObserver`."""
        self._change(lambda it: replace(it, stages=stages, assigned=assigned, standing_by=""))

    def rebalanced(self) -> None:
        """See `WorkerObserver`."""
        self._change(lambda it: replace(it, rebalances=it.rebalances + 1))

    def handed_over(self, took_s: float) -> None:
        """See `WorkerObserver`."""
        self._change(lambda it: replace(it, handovers=it.handovers + 1, handover_s=it.handover_s + took_s))

    def standing_by(self, reason: str) -> None:
        """See `WorkerObserver`."""
        self._change(lambda it: replace(it, stages={}, assigned=False, standing_by=reason))

    def members(self, found: FlowWorkers, at_ms: int) -> None:
        """See `WorkerObserver`."""
        self._change(lambda it: replace(it, members=found, members_ms=at_ms))

    def _change(self, change: Callable[[WorkerFigures], WorkerFigures]) -> None:
        with self._lock:
            self._own = change(self._own)
