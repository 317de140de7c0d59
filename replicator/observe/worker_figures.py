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
    the process began; `handovers`: how many lanes it has begun to run, and `handover_s` how long that took in all, each
    from its assignment. `standing_by`: why it runs nothing; empty: it doesn't stand by. `members`: all workers of the
    flow, as they were at `members_ms` (wall clock); None before that is known."""

    stages: Mapping[int, LaneStage] = field(default_factory=dict)
    rebalances: int = 0
    handovers: int = 0
    handover_s: float = 0.0
    standing_by: str = ""
    members: FlowWorkers | None = None
    members_ms: int = 0

    @property
    def all_held(self) -> bool:
        """Whether the group has given this worker its lanes, and each of them has initialised its transactional id."""
        if self.standing_by or not self.rebalances:
            return False
        return all(it is LaneStage.RUNNING for it in self.stages.values() if it.assigned)


class ObservedWorker:
    """Implements `flow.worker.WorkerObserver`."""

    def __init__(self) -> None:
        self._own, self._lock = WorkerFigures(), threading.Lock()

    @property
    def figures(self) -> WorkerFigures:
        """As they are now."""
        return self._own

    def stages(self, stages: Mapping[int, LaneStage]) -> None:
        """See `WorkerObserver`."""
        self._change(lambda it: replace(it, stages=stages, standing_by=""))

    def rebalanced(self) -> None:
        """See `WorkerObserver`."""
        self._change(lambda it: replace(it, rebalances=it.rebalances + 1))

    def handed_over(self, took_s: float) -> None:
        """See `WorkerObserver`."""
        self._change(lambda it: replace(it, handovers=it.handovers + 1, handover_s=it.handover_s + took_s))

    def standing_by(self, reason: str) -> None:
        """See `WorkerObserver`."""
        self._change(lambda it: replace(it, stages={}, standing_by=reason))

    def members(self, found: FlowWorkers, at_ms: int) -> None:
        """See `WorkerObserver`."""
        self._change(lambda it: replace(it, members=found, members_ms=at_ms))

    def _change(self, change: Callable[[WorkerFigures], WorkerFigures]) -> None:
        with self._lock:
            self._own = change(self._own)
