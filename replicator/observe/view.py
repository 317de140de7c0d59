"""What the process shows of its flows at one moment: one view, from which metrics, health and pages are made.

Put together when it is asked for, from the lanes' figures, the ends of the source and the daemon's stages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from replicator.flow.group_members import FlowWorkers
from replicator.flow.restarts import Stage
from replicator.lane.partition import Copying, PartitionState, Reason, Stopped, Waiting
from replicator.model.partition import Partition
from replicator.observe.conditions import WELL, FlowConditions
from replicator.observe.figures import (
    Figures,
    GroupFigures,
    HeartbeatFigures,
    LaneFigures,
    PartitionFigures,
    recreated,
    unreadable_at,
)
from replicator.observe.lag import Lag, LagWatch
from replicator.observe.worker_figures import WorkerFigures
from replicator.schemas.shown import SchemasShown
from replicator.state.run_settings import Paused, RateLimit


class Doing(IntEnum):
    """What a partition does, as the number that metrics have."""

    UNDECIDED = 0
    """Its lane has just begun, and has not said anything of it yet; or has ended, and nobody is known to have it."""
    COPYING = 1
    WAITING = 2
    STOPPED = 3
    GONE = 4
    """This process has nothing to do with it any more: its topic has gone, isn't selected any more, or another worker
    has its lane. What was counted of it stays."""
    PAUSED = 5
    """By an operator."""
    FAILED_OVER = 6
    """Its topic was, by a command."""


@dataclass(frozen=True, slots=True)
class PartitionView:
    """One source partition. `kind`: why it waits, or the incident that stopped it; empty while it is copied. `lag` is
    None where it isn't known. `excluded`: the flow file has the flow copy it no more; what was counted of it stays."""

    at: Partition
    doing: Doing
    kind: str
    detail: str
    figures: PartitionFigures
    lag: Lag | None
    excluded: bool = False


@dataclass(frozen=True, slots=True)
class FlowView:
    """One flow. `partitions` are sorted. `heartbeat`, `worker`, `groups`, `schemas`, `conditions`, `paused` and
    `rates` as of `FlowFigures`; nothing is paused or limited of a flow that doesn't run. `taken_out`: topics of
    those that are no longer in the flow file. `cause`: why it has ended,
    until it runs again."""

    name: str
    source: str
    target: str
    stage: Stage
    partitions: tuple[PartitionView, ...]
    lanes: Mapping[int, LaneFigures]
    heartbeat: HeartbeatFigures | None = None
    worker: WorkerFigures | None = None
    groups: GroupFigures | None = None
    schemas: SchemasShown | None = None
    conditions: FlowConditions = WELL
    cause: str = ""
    paused: Mapping[str, Paused] = field(default_factory=dict)
    rates: Mapping[str, RateLimit] = field(default_factory=dict)
    taken_out: tuple[str, ...] = ()

    @property
    def workers(self) -> FlowWorkers | None:
        """All processes that share the flow; None where it isn't shared, or that isn't known yet."""
        return None if self.worker is None else self.worker.members

    @property
    def lanes_run(self) -> bool:
        """Whether the flow runs, and each lane of it that this process has, whatever becomes of its partitions."""
        return self.stage is Stage.RUNNING and (self.worker is None or self.worker.all_held)

    @property
    def counts(self) -> Counter[Doing]:
        """How many partitions do what, but for those that the flow file excludes by now."""
        return Counter(partition.doing for partition in self.partitions if not partition.excluded)

    @property
    def records(self) -> int:
        """How many records were committed since the process began."""
        return sum(each.figures.records for each in self.partitions)

    @property
    def bytes(self) -> int:
        """Bytes of keys, values and headers of those records."""
        return sum(each.figures.bytes for each in self.partitions)

    @property
    def lost_records(self) -> int:
        """How many of those records `at_most_once` has lost."""
        return sum(each.figures.lost_records for each in self.partitions)

    @property
    def lag_records(self) -> int | None:
        """Of all partitions together that have a position or are stopped, but for topics that have gone or were failed
        over: those no copying will catch up with. None where it isn't known of one that is copied, or of none, and of a
        flow that doesn't run or was failed over.

        One that waits may have nobody who can be asked, and is told of by itself.
        """
        lags = self._lags()
        return None if lags is None else sum(lag.records for lag in lags)

    @property
    def lag_seconds(self) -> float | None:
        """The largest of all partitions; None as for `lag_records`."""
        lags = self._lags()
        return None if lags is None else max((lag.seconds for lag in lags), default=0.0)

    def _lags(self) -> list[Lag] | None:
        if self.conditions.by_failover or self.stage is not Stage.RUNNING:
            return None
        here = (one for one in self.partitions if one.doing not in (Doing.GONE, Doing.FAILED_OVER))
        placed = [one for one in here if one.figures.position is not None or one.doing is Doing.STOPPED]
        known = [partition.lag for partition in placed if partition.lag is not None]
        unknown = [partition for partition in placed if partition.lag is None]
        missing = any(partition.doing not in (Doing.WAITING, Doing.STOPPED) for partition in unknown)
        return None if missing or (unknown and not known) else known

    @property
    def ready(self) -> bool:
        """Whether both clusters answer, its lanes run and each of their partitions is copied, but for those that an
        operator has paused or failed over. A flow that was failed over as a whole, or is about to be, isn't."""
        if not self.lanes_run or self.conditions:
            return False
        well = (Doing.COPYING, Doing.GONE, Doing.PAUSED, Doing.FAILED_OVER)
        return all(each.doing in well for each in self.partitions)


class Views:
    """Makes views of the flows of one process. From any thread."""

    def __init__(
        self,
        clusters: Mapping[str, tuple[str, str]],
        figures: Figures,
        lags: Mapping[str, LagWatch],
        stages: Callable[[], Mapping[str, Stage]],
        causes: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        """By flow: the names of its `clusters`, its `figures`, its `lags`, where the daemon says that it stands, and
        why those have ended that don't run."""
        self._stages, self._causes, self._figures = stages, causes, figures
        self.take(clusters, lags)

    def take(
        self,
        clusters: Mapping[str, tuple[str, str]],
        lags: Mapping[str, LagWatch],
        selects: Callable[[str, str], bool] = lambda flow, topic: True,
    ) -> None:
        """Show these flows from now on. `selects`: whether a flow's file still has it copy a source topic."""
        self._watched, self._selects = (clusters, lags), selects

    def flows(self) -> list[FlowView]:
        """Return all flows as they are now, in the order of the file."""
        stages, causes = self._stages(), self._causes()
        clusters, lags = self._watched
        return [
            self._flow(name, stages[name], causes.get(name, ""), clusters[name], lags.get(name))
            for name in clusters
            if name in stages
        ]

    def _flow(self, name: str, stage: Stage, cause: str, clusters: tuple[str, str], watch: LagWatch | None) -> FlowView:
        found = self._figures.flows[name].figures()
        conditions = found.conditions
        shown = found.states if stage is Stage.RUNNING else dict.fromkeys(found.partitions)
        left = dict.fromkeys(found.left) if stage is Stage.RUNNING else {}
        if conditions.failed_over:  # no lane runs anywhere
            left, shown = {}, {}
        shown = {**left, **shown}
        # Whoever has one of those by now may be ahead: its position of then says nothing of what is left to copy.
        positions = {
            at: None if recreated(shown.get(at)) or (known := found.partitions.get(at)) is None else known.position
            for at in found.partitions.keys() | {at for at, state in shown.items() if state is not None}
            if at not in left and unreadable_at(shown.get(at)) is None
        }  # of others nobody has read yet whether they have one, or nobody can
        lags = watch.lags(positions) if watch is not None else {}
        nobodys = (Doing.FAILED_OVER if conditions.failed_over else Doing.GONE, "", "")
        partitions = tuple(
            PartitionView(
                at,
                *(_doing(shown[at], conditions) if at in shown else nobodys),
                found.partitions.get(at, PartitionFigures()),
                lags.get(at),
                at not in shown and not self._selects(name, at.topic),
            )
            for at in sorted(found.partitions.keys() | shown.keys())
        )
        acts = stage is Stage.RUNNING and not conditions.by_failover
        settings = (found.paused, found.rates) if acts else ({}, {})
        named = {at for it in settings for at in it if at}
        return FlowView(
            name,
            *clusters,
            stage,
            partitions,
            found.lanes,
            found.heartbeat,
            found.worker,
            found.groups,
            found.schemas,
            conditions,
            cause,
            *settings,
            tuple(sorted(at for at in named if not self._selects(name, at))),
        )


def _doing(state: PartitionState | None, conditions: FlowConditions) -> tuple[Doing, str, str]:
    """Say what a partition does. Its lane finds out later than who watches the clusters that one of them is away, and
    says that it copies until then: nothing is copied meanwhile."""
    if isinstance(state, Copying) and conditions.unreachable_ms:
        return (
            Doing.WAITING,
            Reason.NO_ANSWER.value,
            f"no broker of {' or '.join(sorted(conditions.unreachable_ms))} answers",
        )
    if isinstance(state, Copying):
        return Doing.COPYING, "", ""
    if isinstance(state, Waiting) and state.reason is Reason.PAUSED:
        return Doing.PAUSED, state.reason.value, state.detail
    if isinstance(state, Waiting) and state.reason is Reason.FAILED_OVER:
        return Doing.FAILED_OVER, state.reason.value, state.detail
    if isinstance(state, Waiting) and state.reason is Reason.KEPT:
        return Doing.GONE, state.reason.value, state.detail
    if isinstance(state, Waiting):
        return Doing.WAITING, state.reason.value, state.detail
    if isinstance(state, Stopped):
        return Doing.STOPPED, state.incident.name, state.incident.detail
    return Doing.UNDECIDED, "", ""
