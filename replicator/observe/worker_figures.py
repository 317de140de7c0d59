"""What a worker that shares its flow reports of itself as a member of the flow's group. Written by the flow's thread
(`flow.group_worker`), read by requests over HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from replicator.workers.lane_stages import LaneStage


@dataclass(frozen=True, slots=True)
class WorkerFigures:
    """Of one flow. `stages`: of the lanes that this worker has, or that still run here. `rebalances`: assignments since
    the process began; `handovers`: how many lanes it has begun to run, and `handover_s` how long that took in all, each
    from its assignment. `standing_by`: why it runs nothing; empty: it doesn't stand by."""

    stages: Mapping[int, LaneStage] = field(default_factory=dict)
    rebalances: int = 0
    handovers: int = 0
    handover_s: float = 0.0
    standing_by: str = ""

    @property
    def all_held(self) -> bool:
        """Whether the group has given this worker its lanes, and each of them has initialised its transactional id."""
        if self.standing_by or not self.rebalances:
            return False
        return all(it is LaneStage.RUNNING for it in self.stages.values() if it.assigned)


class ObservedWorker:
    """Implements `flow.worker.WorkerObserver`."""

    def __init__(self) -> None:
        self.figures = WorkerFigures()
        """As they are now; replaced as a whole with each report."""

    def stages(self, stages: Mapping[int, LaneStage]) -> None:
        """See `WorkerObserver`."""
        self.figures = replace(self.figures, stages=stages, standing_by="")

    def rebalanced(self) -> None:
        """See `WorkerObserver`."""
        self.figures = replace(self.figures, rebalances=self.figures.rebalances + 1)

    def handed_over(self, took_s: float) -> None:
        """See `WorkerObserver`."""
        before = self.figures
        self.figures = replace(before, handovers=before.handovers + 1, handover_s=before.handover_s + took_s)

    def standing_by(self, reason: str) -> None:
        """See `WorkerObserver`."""
        self.figures = replace(self.figures, stages={}, standing_by=reason)
