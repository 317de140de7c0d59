"""What the lanes of one process report of themselves: the figures behind metrics, health and the status page.

Lanes write from their own threads (`lane.ports.LaneObserver`), and requests over HTTP read from others. What is counted
stays for as long as the process runs, whatever flow or lane is started again: counters never go back.

Invariants
- A report costs a lane a few dictionary writes for each partition that it has copied, and never waits for a reader
  longer than that reader takes to copy numbers.
- Lanes of an earlier attempt to run a flow show nothing any more: the states of its partitions are those of the lanes
  that were made last.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from replicator.config import Flow
from replicator.groups.shown_groups import GroupObserver, GroupShown
from replicator.lane.driver import QueuedBytes, States
from replicator.lane.partition import PartitionState, Reason, Stopped, Waiting
from replicator.lane.plan import LanePlan
from replicator.lane.throttle import FlowThrottle
from replicator.model.checkpoint import UNREADABLE, Position
from replicator.model.commands import LOST, RECREATED
from replicator.model.partition import Partition
from replicator.observe.conditions import WELL, FlowConditions, ObservedConditions
from replicator.observe.worker_figures import ObservedWorker, WorkerFigures
from replicator.planes.contract import Copied
from replicator.schemas.shown import SchemaObserver, SchemasShown
from replicator.state.generation import LaneAssignment
from replicator.state.run_settings import Paused, RateLimit

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds of the histogram of how long transactions took."""


@dataclass(slots=True)
class PartitionFigures:
    """What was committed of one source partition since the process began. `position` is the next source offset, None
    until a lane has read or committed it; `committed_ms` the wall clock of the last commit of records, 0 without.
    `lost_records`: of `records`, how many `at_most_once` has lost."""

    records: int = 0
    bytes: int = 0
    position: int | None = None
    committed_ms: int = 0
    lost_records: int = 0


@dataclass(slots=True)
class LaneFigures:
    """What one lane of a flow has done since the process began. `took` counts transactions by the bound of `SECONDS`
    that they didn't exceed (behind the last: any longer), `took_s` is their sum. `queued_bytes` as of `Plane`."""

    sessions: int = 0
    fenced: int = 0
    aborts: Counter[str] = field(default_factory=Counter)
    took: list[int] = field(default_factory=lambda: [0] * (len(SECONDS) + 1))
    took_s: float = 0.0
    queued_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class HeartbeatFigures:
    """The newest heartbeat that has arrived at the target: how long it took from the source, and when it was written
    (wall clock)."""

    took_s: float
    written_ms: int


@dataclass(frozen=True, slots=True)
class GroupFigures:
    """Where consumer groups stood after the last round at `synced_ms` (wall clock)."""

    groups: Sequence[GroupShown]
    synced_ms: int


@dataclass(frozen=True, slots=True)
class FlowFigures:
    """A copy of one flow's figures at one moment. `states`: of the partitions that its lanes have now, None until they
    are known. `left`: partitions that a lane had when it ended, and of which nobody is known to have them since.
    `heartbeat`: None before the first one has arrived, and of a flow without. `worker`: None where
    the process doesn't share the flow. `groups`, `schemas`: None where this process doesn't sync any. `conditions`:
    what keeps the whole flow from copying. `paused`, `rates`: what operators have paused, and how fast is copied at
    most, by source topic; empty for the whole flow."""

    partitions: Mapping[Partition, PartitionFigures]
    lanes: Mapping[int, LaneFigures]
    states: Mapping[Partition, PartitionState | None]
    heartbeat: HeartbeatFigures | None = None
    worker: WorkerFigures | None = None
    groups: GroupFigures | None = None
    schemas: SchemasShown | None = None
    left: frozenset[Partition] = frozenset()
    conditions: FlowConditions = WELL
    paused: Mapping[str, Paused] = field(default_factory=dict)
    rates: Mapping[str, RateLimit] = field(default_factory=dict)


class ObservedFlow:
    """The figures of one flow, over all attempts to run it."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        """`now_ms`: the wall clock."""
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._partitions: dict[Partition, PartitionFigures] = {}
        self._lanes: dict[int, LaneFigures] = {}
        self._owner = ""  # of the attempt whose lanes show their states
        self._states: dict[int, States] = {}
        self._queues: dict[int, QueuedBytes] = {}
        self._assignment = LaneAssignment(1)  # of the lanes that were made last
        self._left: set[Partition] = set()  # had by lanes that have ended, and not been made again
        self._heartbeat: HeartbeatFigures | None = None
        self._worker: ObservedWorker | None = None
        self._groups: GroupFigures | None = None
        self._schemas: SchemasShown | None = None
        self._throttle = FlowThrottle()
        self.conditions = ObservedConditions(now_ms)

    def throttled(self, throttle: FlowThrottle) -> None:
        """Take up what lanes keep to that are made from now on. From any thread."""
        self._throttle = throttle

    def worker(self) -> ObservedWorker:
        """Take up that the flow is shared with other processes; counters go on over all attempts."""
        if self._worker is None:
            self._worker = ObservedWorker()
        return self._worker

    def heartbeat_seen(self, took_s: float, written_ms: int) -> None:
        """Take up a heartbeat that has arrived. From any thread."""
        self._heartbeat = HeartbeatFigures(took_s, written_ms)

    def records_lost(self, at: Partition, records: int) -> None:
        """Take up that so many records of a source partition were lost under `at_most_once`. From any thread."""
        with self._lock:
            self._partitions.setdefault(at, PartitionFigures()).lost_records += records

    def groups_synced(self, groups: Sequence[GroupShown] | None, *, done: bool = True) -> None:
        """Take up where consumer groups stand; None: this process doesn't sync them any more. From any thread.

        Args:
            done: whether the round has come to its end.
        """
        synced_ms = self._now_ms() if done else self._groups.synced_ms if self._groups is not None else 0
        self._groups = None if groups is None else GroupFigures(groups, synced_ms)

    def schemas_synced(self, schemas: SchemasShown | None) -> None:
        """Take up where schemas stand; None: this process doesn't sync them any more. From any thread."""
        self._schemas = schemas

    def lane(self, plan: LanePlan, states: States, queued_bytes: QueuedBytes = lambda: None) -> ObservedLane:
        """Take up a lane that was made. `states`: what its partitions do, and `queued_bytes` as of its plane; both are
        asked from any thread."""
        with self._lock:
            ended = [] if plan.owner == self._owner else list(self._states.values())
        left = _had(ended)
        with self._lock:
            if plan.owner != self._owner:
                self._owner, self._states, self._queues = plan.owner, {}, {}
            self._assignment = plan.assignment
            self._left = {at for at in self._left | left if plan.assignment.lane_of(*at) != plan.lane}
            self._states[plan.lane], self._queues[plan.lane] = states, queued_bytes
            figures = self._lanes.setdefault(plan.lane, LaneFigures())
        return ObservedLane(figures, self._partitions, self._lock, self._now_ms, lambda: self._over(plan.lane, states))

    def _over(self, lane: int, states: States) -> None:
        left = _had([states])
        with self._lock:
            if self._states.get(lane) is states:  # it was not made anew meanwhile
                del self._states[lane], self._queues[lane]
                self._left |= left

    def figures(self) -> FlowFigures:
        """Copy all of them."""
        with self._lock:
            partitions = {at: replace(figures) for at, figures in self._partitions.items()}
            lanes = {
                lane: replace(figures, aborts=Counter(figures.aborts), took=list(figures.took))
                for lane, figures in self._lanes.items()
            }
            for lane, queued_bytes in self._queues.items():
                lanes[lane].queued_bytes = queued_bytes()
            states = list(self._states.values())
            left = {at: self._assignment.lane_of(*at) for at in self._left}
        found: dict[Partition, PartitionState | None] = {}
        for each in states:
            found |= each()
        for at in partitions.keys() & found.keys():
            if lost(found[at]):
                partitions[at].position = None
        for at, state in found.items():
            if (offset := unreadable_at(state)) is not None:
                partitions.setdefault(at, PartitionFigures()).position = offset
        worker = None if self._worker is None else self._worker.figures
        nobodys = frozenset(
            at for at, lane in left.items() if at not in found and (worker is None or not worker.elsewhere(lane))
        )
        shown = self._heartbeat, worker, self._groups, self._schemas
        throttle = self._throttle
        set_ = throttle.settings.paused, throttle.rates()
        return FlowFigures(partitions, lanes, found, *shown, nobodys, self.conditions.now(), *set_)

    def partition_positions(self) -> dict[Partition, int | None]:
        """Return every partition that lanes have now, with its position in the source's log of now, None where it has
        none.
        """
        with self._lock:
            states = list(self._states.values())
        here = {at: state for each in states for at, state in each().items()}
        with self._lock:
            known = {at: self._partitions.get(at) for at in here}
        return {
            at: None if found is None or recreated(here[at]) or lost(here[at]) else found.position
            for at, found in known.items()
        }


def recreated(state: PartitionState | None) -> bool:
    """Tell whether either side has another topic than the position is of: then all that the source has is left to
    copy."""
    return isinstance(state, Stopped) and state.incident.name in RECREATED


def lost(state: PartitionState | None) -> bool:
    """Tell whether the target has no position any more: the one that a lane has read before is none."""
    return isinstance(state, Stopped) and state.incident.name in LOST and state.incident.offset < 0


def unreadable_at(state: PartitionState | None) -> int | None:
    """Return the offset that stands in place of a position, where that can't be read: how much is left to copy isn't
    known then. None: it can be."""
    return state.incident.offset if isinstance(state, Stopped) and state.incident.name in UNREADABLE else None


def _had(ended: Iterable[States]) -> set[Partition]:
    """List the partitions that lanes had when they ended, but for deleted topics: nobody copies those."""
    found = {at: state for each in ended for at, state in each().items()}
    return {at for at, it in found.items() if not (isinstance(it, Waiting) and it.reason is Reason.KEPT)}


class ObservedLane:
    """Implements `lane.ports.LaneObserver`: writes the figures of one lane, and of the partitions that it copies."""

    def __init__(
        self,
        figures: LaneFigures,
        partitions: dict[Partition, PartitionFigures],
        lock: threading.Lock,
        now_ms: Callable[[], int],
        over: Callable[[], None],
    ) -> None:
        """`partitions`: of the whole flow; `lock` is held while anything of these is written."""
        self._figures, self._partitions, self._lock, self._now_ms = figures, partitions, lock, now_ms
        self._over = over

    def session_began(self, positions: Mapping[Partition, int]) -> None:
        """See `LaneObserver`."""
        with self._lock:
            self._figures.sessions += 1
            for at, position in positions.items():
                self._of(at).position = position

    def on_committed(
        self, copied: Mapping[Partition, Copied], positions: Mapping[Partition, Position], took_s: float
    ) -> None:
        """See `LaneObserver`."""
        now_ms = self._now_ms()
        with self._lock:
            for at, position in positions.items():
                self._of(at).position = position.offset
            for at, done in copied.items():
                if done.records:
                    figures = self._of(at)
                    figures.records += done.records
                    figures.bytes += done.bytes
                    figures.committed_ms = now_ms
            if copied:
                bound = next((n for n, bound in enumerate(SECONDS) if took_s <= bound), len(SECONDS))
                self._figures.took[bound] += 1
                self._figures.took_s += took_s

    def aborted(self, kind: str) -> None:
        """See `LaneObserver`."""
        with self._lock:
            self._figures.aborts[kind] += 1

    def fenced(self) -> None:
        """See `LaneObserver`."""
        with self._lock:
            self._figures.fenced += 1

    def over(self) -> None:
        """See `LaneObserver`."""
        self._over()

    def _of(self, at: Partition) -> PartitionFigures:
        return self._partitions.setdefault(at, PartitionFigures())


class Figures:
    """Of all flows of the process."""

    def __init__(self, flows: Iterable[str], now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self.flows: Mapping[str, ObservedFlow] = {name: ObservedFlow(now_ms) for name in flows}

    def add(self, flows: Iterable[str]) -> None:
        """Take up more flows; one that is known goes on counting where it was."""
        self.flows = {**self.flows, **{name: ObservedFlow(self._now_ms) for name in flows if name not in self.flows}}

    def lane(self, plan: LanePlan, states: States, queued_bytes: QueuedBytes = lambda: None) -> ObservedLane:
        """Take up a lane, see `ObservedFlow.lane`."""
        return self.flows[plan.flow.name].lane(plan, states, queued_bytes)

    def worker(self, flow: Flow) -> ObservedWorker:
        """Return what is told of this process as one of several workers of a flow."""
        return self.flows[flow.name].worker()

    def heartbeats(self, flow: Flow) -> Callable[[float, int], None]:
        """Return what is told of a flow's heartbeats, see `ObservedFlow.heartbeat_seen`."""
        return self.flows[flow.name].heartbeat_seen

    def lost(self, flow: Flow) -> Callable[[Partition, int], None]:
        """Return what is told of a flow's lost records, see `ObservedFlow.records_lost`."""
        return self.flows[flow.name].records_lost

    def conditions(self, flow: Flow) -> ObservedConditions:
        """Return what is told of what keeps a whole flow from copying."""
        return self.flows[flow.name].conditions

    def throttled(self, flow: Flow, throttle: FlowThrottle) -> None:
        """Take up what the lanes of a flow keep to, see `ObservedFlow.throttled`."""
        self.flows[flow.name].throttled(throttle)

    def groups(self, flow: Flow) -> GroupObserver:
        """Return what is told of a flow's consumer groups, see `ObservedFlow.groups_synced`."""
        return self.flows[flow.name].groups_synced

    def schemas(self, flow: Flow) -> SchemaObserver:
        """Return what is told of a flow's schemas, see `ObservedFlow.schemas_synced`."""
        return self.flows[flow.name].schemas_synced
