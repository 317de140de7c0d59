"""A lane between two simulated clusters: run to the end of what there is to do, then compared record by record."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Collection, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import zip_longest
from typing import Any

import structlog

from replicator.config import Flow, load_text
from replicator.flow.first_offsets import resolve_starts
from replicator.lane.driver import DriverEvent, LaneDriver, Services
from replicator.lane.flow_decisions import FlowDecisions
from replicator.lane.partition import PartitionState
from replicator.lane.permit import UNASKED, FencePermit
from replicator.lane.plan import LanePlan
from replicator.lane.policy import LivePolicy, Policy
from replicator.lane.throttle import FlowThrottle
from replicator.model import checkpoint
from replicator.model.checkpoint import Stored
from replicator.model.commands import Command
from replicator.model.errors import Fatal, Incident, ReplicatorError
from replicator.model.origins import Origins
from replicator.model.partition import LogEnds, Partition
from replicator.model.route import Route
from replicator.model.transactions import Marker, OpenTransaction, ProducerState
from replicator.offset_map.section import topic_id_text
from replicator.offset_map.topic import MAP_PARTITIONS
from replicator.state import starts
from replicator.state.claims import Claims, read_claims
from replicator.state.control_topic import Control, fold
from replicator.state.decisions import AdoptedSides, OperatorDecision, decide, restarted
from replicator.state.generation import Generation, LaneAssignment, Phase
from replicator.state.occurrences import Occurrence
from replicator.state.origins import FoundOrigins
from tests.replicator.lane.fakes.cluster import FakeCluster
from tests.replicator.lane.fakes.plane import MAP, FakePlane
from tests.replicator.lane.fakes.reader import FakeReader

FLOW = """\
clusters:
  west: {properties: {bootstrap.servers: "w:1"}}
  east: {properties: {bootstrap.servers: "e:1"}}
flows:
  f:
    source: west
    target: east
    topics: ["^t.*", u]
    rename: "{topic}.copy"
    start: START
    limits: {recommit_interval_ms: RECOMMIT}
"""
CONTROL = Partition("__eos.f.control", 0)
CALLS_MAX = 20_000  # a lane that makes more has found no end


@cache
def flow_starting(start: str, recommit_ms: int) -> Flow:
    """The flow of all tests, with this `start` and interval between keep-alives."""
    return load_text(FLOW.replace("START", start).replace("RECOMMIT", str(recommit_ms)), env={}).flows["f"]


def _topic_id(cluster: int, number: int) -> str:
    """As brokers make them: the map has the 16 bytes."""
    return topic_id_text(bytes((cluster, number, *range(14))))


@dataclass
class FakeState:
    """The flow's own topics, as `lane.ports.StateReader` gives them."""

    target: FakeCluster
    current: Control
    lost: bool = False

    def control(self) -> Control:
        """The control topic."""
        self.target.fault("state.control")
        if self.lost:
            raise Incident("control_topic_lost", "it is not there", topic="__eos.f.control")
        return self.current

    def claims(self, partition: int | None = None) -> Claims:
        """The claims topic, or one partition of it."""
        self.target.fault("state.claims")
        records = zip_longest(self.target.claims, self.target.claims_partitions)
        return read_claims(record for record, at in records if None in (at, partition) or at == partition)

    def control_and_claims(self, lane: int) -> tuple[Control, Callable[[], Claims]]:
        """Both topics."""
        control = self.control()
        return control, lambda: self.claims(control.claims_partition(lane))


@dataclass
class FakeOrigins:
    """Where topics of the source come from; `unread`: what keeps that from being known."""

    source: FakeCluster
    found: dict[str, Origins] = field(default_factory=dict)
    unread: dict[str, ReplicatorError] = field(default_factory=dict)

    def origins(self, topic_ids: Mapping[str, str]) -> FoundOrigins:
        """As `state.source_claims` reads them."""
        self.source.fault("west.origins")
        return FoundOrigins({name: self.found[name] for name in topic_ids if name in self.found}, self.unread)


@dataclass
class FakeOpenTransactions:
    """Implements `lane.ports.OpenTransactions`."""

    target: FakeCluster

    def open_in(self, at: Partition) -> Sequence[OpenTransaction]:
        """As the leader says."""
        return self.target.open_in(at)

    def producer(self, transactional_id: str) -> ProducerState:
        """As the coordinator says."""
        return self.target.producer(transactional_id)

    def fence(self, transactional_id: str, timeout_ms: int) -> None:
        """The plane does it again."""

    def end(self, marker: Marker) -> None:
        """Write a marker."""
        self.target.end_open(marker)


@dataclass
class FakeConnections:
    """What one producer session works with."""

    plane: FakePlane
    source: FakeCluster
    target: FakeCluster
    state: FakeState
    origins: FakeOrigins

    @property
    def transactions(self) -> FakeOpenTransactions:
        """What is open in the target."""
        return FakeOpenTransactions(self.target)

    @property
    def map_log(self) -> FakeCluster:
        """Reads the map's topic."""
        return self.target

    @property
    def source_records(self) -> FakeReader:
        """Reads the source."""
        return FakeReader(self.source)

    @property
    def target_records(self) -> FakeReader:
        """Reads the target."""
        return FakeReader(self.target)

    def last_positions(self, partitions: Collection[Partition]) -> dict[Partition, Stored | None]:
        """Positions as they are."""
        return {at: self.target.position(at) for at in partitions}

    def close(self) -> None:
        """Close the plane."""
        self.plane.close()


@dataclass
class World:
    """Two clusters, one flow, and the lanes that a test starts. Time is simulated."""

    start: str = "earliest"
    time_s: float = 1_000.0
    calls: int = 0
    recommit_ms: int = 3_600_000
    throttle: FlowThrottle = field(default_factory=FlowThrottle)  # of all its lanes
    decisions: FlowDecisions = field(default_factory=FlowDecisions)  # the same
    idle_s_max: float = 30.0  # for so long nothing has happened: the lane is asked to stop
    actions: dict[int, Callable[[], None]] = field(default_factory=dict)  # before the n-th call of any kind
    faults: dict[int, Callable[[str], None]] = field(default_factory=dict)  # the same; told the call, may raise
    on: list[tuple[str, Callable[[], None]]] = field(default_factory=list)  # once, before the next call of that name
    trace: list[str] = field(default_factory=list)
    events: list[dict[str, object]] = field(default_factory=list)
    driver: LaneDriver | None = None
    permit: FencePermit = UNASKED  # of the next lane
    maps: bool = False  # whether the flow has an offset map
    listed_origins: dict[str, Origins] = field(default_factory=dict)  # as the last listing has found them

    def __post_init__(self) -> None:
        self.source, self.target = FakeCluster("west", self.call), FakeCluster("east", self.call)
        if self.maps:
            for number, cluster in enumerate((self.source, self.target), 1):
                cluster.name_id = partial(_topic_id, number)  # type: ignore[method-assign]
        self.flow, self.assignment = flow_starting(self.start, self.recommit_ms), LaneAssignment(1)
        listing = {"t": 2, "u": 1}
        self.state = FakeState(self.target, Control({1: Generation(1, Phase.OPEN, 1, partitions=listing)}))
        self.origins = FakeOrigins(self.source)
        self.planes: list[FakePlane] = []
        self._happened_s = self.time_s
        self.target.create(CONTROL.topic)
        for topic, partitions in listing.items():
            self.source.create(topic, partitions)
            self.target.create(f"{topic}.copy", partitions)
        if self.maps:
            self.target.create(MAP, MAP_PARTITIONS)

    def open_flow(self) -> None:
        """Open the flow as its set-up does: starts are resolved now and stored with the `open` record."""
        listing = {name: len(topic.logs) for name, topic in self.source.topics.items()}
        log = structlog.wrap_logger(None, processors=[self._log], wrapper_class=structlog.BoundLogger)
        written = starts.encode(resolve_starts(self.flow, self.source, listing, threading.Event(), log))
        prepared = Control().prepare(self.assignment, listing, self.now_ms())
        self.assignment = prepared.assignment
        opened = Control().apply(prepared).finish(self.now_ms(), len(written))
        self.state.current = fold([*written, *((record.key, record.encode()) for record in (prepared, *opened))])

    def resolve(self, command: Command, at: Partition, by: str = "ann", adopted: int = -1) -> OperatorDecision:
        """Write a decision about what is open of a partition, as `incident resolve` does."""
        (it,) = [it for it in self.occurrences() if it.is_open and it.source == at]
        decision = decide(it.id, command, self.occurrences(), self.state.current.decisions, by=by, why="w", now_ms=1)
        if not decision.adopts:
            return self.write(decision)
        to = Partition(f"{at.topic}.copy", at.partition)
        if command is Command.RESTART_TOPIC:
            source, target = self.source.log_ends([at])[at], self.target.log_ends([to])[to]
            assert isinstance(source, LogEnds)
            assert isinstance(target, LogEnds)
            return self.write(restarted(it, decision, source, target, read_claims(self.target.claims).claims[to]))
        sides = AdoptedSides(
            source_topic_id=self.source.topics[at.topic].topic_id,
            target_topic_id=self.target.topics[to.topic].topic_id,
            target_end=self.target.log(to).end,
        )
        return self.write(replace(decision, end=adopted, adopted=sides))

    def write(self, decision: OperatorDecision) -> OperatorDecision:
        """Put a decision into the control topic. Who watches it tells the lanes at once."""
        known = {**self.state.current.decisions, decision.occurrence: decision}
        self.state.current = replace(self.state.current, decisions=known)
        self.target.log(CONTROL).put("a decision")
        self.decisions.take(known)
        return decision

    def occurrences(self, name: str = "") -> list[Occurrence]:
        """Occurrences in the claims topic, of all kinds or of one."""
        return [it for it in read_claims(self.target.claims).occurrences if name in ("", it.name)]

    # Services of the lane

    def call(self, name: str) -> None:
        """Every call of the lane to its clusters and its plane passes here."""
        self.calls += 1
        self.trace.append(name)
        if self.calls > CALLS_MAX:
            raise Fatal(f"no end after {CALLS_MAX} calls: {self.trace[-20:]}")
        action = self.actions.pop(self.calls, None)
        if action is not None:
            action()
        fault = self.faults.pop(self.calls, None)
        if fault is not None:
            fault(name)
        for index, (wanted, once) in enumerate(self.on):
            if wanted == name:
                del self.on[index]
                once()
                break

    def now_s(self) -> float:
        """See `lane.ports.Clock`."""
        return self.time_s

    def now_ms(self) -> int:
        """See `lane.ports.Clock`."""
        return int(self.time_s * 1000)

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        """See `lane.ports.Clock`: time passes at once."""
        self.advance(timeout_s)
        return event.is_set()

    def advance(self, by_s: float) -> None:
        """Let time pass. When nothing has happened for long the lane is asked to stop."""
        self.time_s += by_s
        if (
            self.driver is not None
            and self.time_s - self._happened_s > self.idle_s_max
            and not self.on
            and not self.actions
        ):
            self.driver.stop()

    def _log(self, logger: object, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        if event.get("event") in ("committed", "incident", "waiting", "copying", "lane_started"):
            self._happened_s = self.time_s
        self.events.append(dict(event))
        raise structlog.DropEvent

    def _connect(self, plan: LanePlan, policy: Policy, stop: threading.Event) -> FakeConnections:
        routes = {route.source: route.target for route in plan.routes}
        plane = FakePlane(self.source, self.target, plan.transactional_id, routes, self.call, self.advance)
        self.planes.append(plane)
        return FakeConnections(plane, self.source, self.target, self.state, self.origins)

    # What tests do

    def routes(self) -> tuple[Route, ...]:
        """As the flow's set-up lists them now."""
        return tuple(
            Route(
                Partition(name, number),
                Partition(f"{name}.copy", number),
                topic.topic_id,
                self.target.topics[f"{name}.copy"].topic_id if f"{name}.copy" in self.target.topics else "",
                origins=self.listed_origins.get(name, frozenset()),
            )
            for name, topic in sorted(self.source.topics.items())
            for number in range(len(topic.logs))
        )

    def plan(self, owner: str = "me", routes: tuple[Route, ...] | None = None) -> LanePlan:
        """The flow's one lane."""
        routes = self.routes() if routes is None else routes
        plan = LanePlan(self.flow, 1, 0, owner, "west-id", routes, 1, self.assignment, target_cluster="east-id")
        return replace(plan, writes_map=self.maps)

    def lane(
        self, owner: str = "me", policy: Policy | None = None, plan: LanePlan | None = None
    ) -> tuple[LaneDriver, queue.SimpleQueue[DriverEvent]]:
        """Make a lane, and the queue in which its owner hears of it."""
        log = structlog.wrap_logger(None, processors=[self._log], wrapper_class=structlog.BoundLogger)
        services = Services(self._connect, self, lambda step: self.call(f"step.{step}"), log)
        services = replace(services, throttle=lambda flow: self.throttle, decisions=lambda flow: self.decisions)
        events: queue.SimpleQueue[DriverEvent] = queue.SimpleQueue()
        self.driver = LaneDriver(plan or self.plan(owner), policy or LivePolicy(), services, events, self.permit)
        self._happened_s = self.time_s
        return self.driver, events

    def run(
        self, owner: str = "me", policy: Policy | None = None, plan: LanePlan | None = None
    ) -> ReplicatorError | None:
        """Run a lane until there is nothing left to do, or until it ends; the error that it left with."""
        try:
            self.lane(owner, policy, plan)[0].drive()
        except ReplicatorError as error:
            return error
        finally:
            assert self.target.unclaimed() == [], "invariant 4: the first position is committed with its claim"
        return None

    @property
    def happened_s(self) -> float:
        """When anything happened last, such as a commit (monotonic)."""
        return self._happened_s

    def states(self) -> dict[Partition, PartitionState]:
        """The states of the last lane's partitions."""
        assert self.driver is not None
        return self.driver.states

    def told(self, event: str) -> list[dict[str, object]]:
        """Log events of this name."""
        return [found for found in self.events if found.get("event") == event]

    def incidents(self) -> dict[Partition, str]:
        """Names of incidents by partition, the last one of each."""
        return {Partition(str(e["topic"]), int(str(e["partition"]))): str(e["name"]) for e in self.told("incident")}

    def copied(self, at: Partition) -> list[str]:
        """What a read_committed reader finds on the target."""
        return [entry.value for _, entry in self.target.log(Partition(f"{at.topic}.copy", at.partition)).committed()]

    def position(self, at: Partition) -> int:
        """The committed position; -1 without one."""
        found = self.target.offsets.get(Partition(f"{at.topic}.copy", at.partition))
        return -1 if found is None else found.offset

    def owner(self, at: Partition) -> str | None:
        """Who the committed position says runs the partition; None without a position."""
        found = self.target.offsets.get(Partition(f"{at.topic}.copy", at.partition))
        return None if found is None else checkpoint.decode(found.metadata).owner

    def check_exact(self, source: dict[Partition, list[tuple[int, str]]]) -> None:
        """Each partition's target holds its source's committed records below its position: once, in order, no others.

        `source`: offsets and values by partition, as they stood before anybody deleted any.
        """
        for at, records in source.items():
            position = self.position(at)
            expected = [value for offset, value in records if offset < position]
            assert self.copied(at) == expected, f"{at} at {position}\n" + "\n".join(self.trace[-60:])
            committed = self.target.offsets.get(Partition(f"{at.topic}.copy", at.partition))
            if committed is not None and committed.metadata:
                assert checkpoint.decode(committed.metadata).count == len(expected)
