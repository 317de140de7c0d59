"""The flow's watch over its lanes: none dies alone, a stop is bounded, and nothing copies unwatched."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
import structlog

from replicator.flow.listing import Routing
from replicator.flow.parts import Parts
from replicator.flow.setup import Setup
from replicator.flow.topics import ControlPlane
from replicator.flow.worker import FlowWorker, margin_s, with_routes
from replicator.lane.driver import CountsChanged, LaneEnded
from replicator.lane.partitions import PartitionCounts
from replicator.lane.permit import FencePermit
from replicator.lane.plan import LanePlan
from replicator.model.errors import Fenced, Incident, ReplicatorError, TakenOver, UnknownOutcome, Unreachable
from replicator.state.control import Changer
from replicator.state.own_file import own_file
from tests.replicator.flow.fakes import FakePlane, config, flow, run_before, topic


@dataclass
class FakeLane:
    """A lane that copies until it is stopped, unless it `hangs`. A `slow` one isn't through with its start."""

    plan: LanePlan
    events: queue.SimpleQueue[Any]
    hangs: bool = False
    slow: bool = False
    joined: bool = False
    asked_s: float = 0.0
    plans: list[LanePlan] = field(default_factory=list)
    started: threading.Event = field(default_factory=threading.Event)
    reassigned: threading.Event = field(default_factory=threading.Event)
    asked: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        if not self.slow:
            self.tell(running=len(self.plan.routes))
        self.started.set()

    def stop(self) -> None:
        self.asked_s = time.monotonic()
        self.asked.set()
        if not self.hangs:
            self.end(None)

    def join(self, timeout_s: float) -> bool:
        self.joined = True
        return not self.hangs

    def reassign(self, plan: LanePlan) -> None:
        self.plan = plan
        self.plans.append(plan)
        self.reassigned.set()

    def forget(self) -> None:
        """Nobody watches it."""

    def tell(self, *, running: int = 0, waiting: int = 0, stopped: int = 0) -> None:
        self.events.put(CountsChanged(self.plan.lane, PartitionCounts(running, waiting, stopped), self.plan))

    def end(self, error: BaseException | None) -> None:
        self.events.put(LaneEnded(self.plan.lane, error))


class Run:
    """One worker in a thread, with its lanes."""

    def __init__(
        self,
        settings: str = "",
        *,
        hangs: bool = False,
        slow: bool = False,
        plane: FakePlane | None = None,
        exit_on_incident: bool = False,
    ) -> None:
        whole = config(f"lanes: 2, {settings}")
        self.flow = whole.flows["f"]
        self.plane = plane or run_before(FakePlane(self.flow, {"t1": topic("t1", 8), "t2": topic("t2", 8)}))
        self.lanes: dict[int, FakeLane] = {}
        self.hangs, self.slow = hangs, slow
        self.partitions = queue.SimpleQueue[Mapping[str, int]]()
        parts = Parts(
            plane=lambda flow: cast(ControlPlane, self.plane),
            lane=self._lane,
            partitions=lambda flow, partitions: self.partitions.put(partitions),
        )
        self.worker = FlowWorker(self.flow, whole, parts, structlog.get_logger(), exit_on_incident=exit_on_incident)
        self.result: int | BaseException | None = None
        self.alive = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _lane(self, plan: LanePlan, events: queue.SimpleQueue[Any], permit: FencePermit) -> FakeLane:
        self.lanes[plan.lane] = FakeLane(plan, events, self.hangs, self.slow)
        return self.lanes[plan.lane]

    def _run(self) -> None:
        try:
            self.result = self.worker.run(self.alive.set)
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            self.result = error

    def start(self) -> Run:
        self._thread.start()
        assert self.alive.wait(10), self.result
        return self

    def end(self) -> int | BaseException | None:
        self._thread.join(10)
        assert not self._thread.is_alive()
        return self.result


@contextmanager
def running(settings: str = "", *, hangs: bool = False, exit_on_incident: bool = False) -> Iterator[Run]:
    made = Run(settings, hangs=hangs, exit_on_incident=exit_on_incident).start()
    yield made
    made.worker.stop()


def test_a_flow_that_is_stopped_ends_cleanly() -> None:
    with running() as run:
        run.worker.stop()
        assert run.end() == 0
        assert not run.worker.stopped_early
        assert all(lane.asked.is_set() for lane in run.lanes.values())


def test_a_stop_before_all_lanes_are_through_with_their_start_is_told() -> None:
    run = Run(slow=True).start()
    run.lanes[0].tell(running=8)
    run.worker.stop()
    assert run.end() == 0
    assert run.worker.stopped_early


def test_lanes_share_the_partitions() -> None:
    with running() as run:
        sources = [route.source for lane in run.lanes.values() for route in lane.plan.routes]
        assert len(sources) == len(set(sources)) == 16
        assert {lane.plan.claim_partitions for lane in run.lanes.values()} == {2}
        owners = {lane.plan.owner for lane in run.lanes.values()}
    with running() as again:
        assert owners.isdisjoint(lane.plan.owner for lane in again.lanes.values()), "each attempt is somebody else"


@pytest.mark.parametrize(
    "error", [TakenOver("by another"), Incident("control_topic_lost", "gone"), ValueError("a bug"), Unreachable("away")]
)
def test_a_lane_never_dies_alone(error: BaseException) -> None:
    with running() as run:
        run.lanes[0].end(error)
        assert run.end() is error
        assert run.lanes[1].asked.is_set()


def fenced_first(monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[FakePlane, str], None]) -> Run:
    """A worker that somebody fences while it opens its generation, and does this then, once."""
    run, fences = Run(), iter([Fenced("by a command")])
    change = Setup.change

    def fenced(setup: Setup, ask: Callable[[Changer], Any]) -> Any:
        for error in fences:
            meanwhile(run.plane, setup._owner)
            raise error
        return change(setup, ask)

    monkeypatch.setattr(Setup, "change", fenced)
    monkeypatch.setattr("replicator.flow.retrying.CONTROL_PAUSE_S", 0.001)
    return run


def test_a_command_that_fences_a_process_at_its_start_does_not_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    run = fenced_first(monkeypatch, lambda plane, owner: None).start()
    run.worker.stop()
    assert run.end() == 0


@pytest.mark.parametrize("own", [True, False])
def test_a_generation_that_follows_is_another_process_unless_it_is_ones_own(
    monkeypatch: pytest.MonkeyPatch, own: bool
) -> None:
    """A command finishes what a process has begun, which was fenced before it could."""

    def begin_another(plane: FakePlane, owner: str) -> None:
        control = plane.state.control_topic
        assert control is not None
        assert control.open is not None
        by = owner if own else "another"
        control = control.apply(control.prepare(control.open.assignment, {}, 3, by=by, own=own_file(plane.flow)))
        for record in control.finish(4):
            control = control.apply(record)
        plane.state.control_topic = control

    run = fenced_first(monkeypatch, begin_another)
    if own:
        run.start().worker.stop()
        assert run.end() == 0
    else:
        run._thread.start()
        assert isinstance(run.end(), Fenced)


def test_of_several_errors_the_worst_counts() -> None:
    with running(hangs=True) as run:
        taken, bug = TakenOver("by another"), ValueError("a bug")
        run.lanes[0].end(taken)
        run.lanes[1].end(bug)
        assert run.end() is bug


def test_what_waits_for_a_decision_counts_more_than_records_that_a_stop_gave_up() -> None:
    with running() as run:
        run.lanes[0].tell(stopped=3)
        run.lanes[0].end(UnknownOutcome("the open transaction was given up"))
        assert run.end() == 4


def test_a_lane_that_ends_unasked_is_a_bug() -> None:
    with running() as run:
        run.lanes[1].end(None)
        assert isinstance(run.end(), RuntimeError)


def test_a_flow_of_which_everything_is_stopped_ends_with_4() -> None:
    with running() as run:
        run.lanes[0].tell(stopped=3)
        run.lanes[1].tell(stopped=5)
        assert run.end() == 4


def test_a_flow_of_which_something_waits_goes_on() -> None:
    with running() as run:
        run.lanes[0].tell(stopped=3)
        run.lanes[1].tell(stopped=4, waiting=1)
        run.worker.stop()
        assert run.end() == 4, "what is stopped needs a decision"


def test_the_first_incident_ends_the_flow_if_that_is_wanted() -> None:
    with running(exit_on_incident=True) as run:
        run.lanes[0].tell(running=3, waiting=1)
        run.lanes[1].tell(running=7, stopped=1)
        assert run.end() == 4
        assert all(lane.asked.is_set() for lane in run.lanes.values()), "what was copied is committed"


def test_how_many_partitions_topics_have_is_told_before_lanes_run_and_when_it_changes() -> None:
    with running("limits: {discovery_interval_ms: 100}") as run:
        assert run.partitions.get_nowait() == {"t1": 8, "t2": 8}
        run.plane.source["t1"] = topic("t1", 9)
        while run.partitions.get(timeout=10) != {"t1": 9, "t2": 8}:
            pass
        run.worker.stop()
        assert run.end() == 0


def test_lanes_whose_routes_changed_are_reassigned() -> None:
    with running("limits: {discovery_interval_ms: 100}") as run:
        run.plane.source["t1"] = topic("t1", 8, "another")
        for lane in run.lanes.values():
            assert lane.reassigned.wait(10)
            ids = {route.source_topic_id for route in lane.plan.routes if route.source.topic == "t1"}
            assert ids == {"another"}
        run.worker.stop()
        assert run.end() == 0
        assert all(len(lane.plans) == 1 for lane in run.lanes.values()), "once, as nothing else has changed"


def test_a_lost_control_topic_stops_all_lanes() -> None:
    with running("limits: {discovery_interval_ms: 100}") as run:
        run.plane.state.control_topic = None
        error = run.end()
        assert isinstance(error, Incident)
        assert error.name == "control_topic_lost"
        assert all(lane.asked.is_set() for lane in run.lanes.values())


def test_lanes_that_hang_bound_a_stop_all_the_same() -> None:
    with running("limits: {stop_timeout_ms: 400}", hangs=True) as run:
        began_s = time.monotonic()
        run.worker.stop()
        error = run.end()
        assert isinstance(error, Unreachable)
        assert "stop_timeout_ms" in str(error)
        assert time.monotonic() - began_s > 0.2, "it waited for its lanes"
        assert run.worker._stop_by is not None
        assert all(run.worker._stop_by - lane.asked_s < 0.4 for lane in run.lanes.values())
        assert all(lane.joined for lane in run.lanes.values())


def test_lanes_get_somewhat_less_time_than_the_process() -> None:
    with running(hangs=True) as run:
        began_s = time.monotonic()
        run.worker.stop()
        for lane in run.lanes.values():
            assert lane.asked.wait(10)
            lane.end(None)
        assert run.end() == 0
        assert run.worker._stop_by is not None
        assert run.worker._stop_by - began_s >= 9.4
        assert all(run.worker._stop_by - lane.asked_s <= 9.6 for lane in run.lanes.values())
    assert margin_s(flow("limits: {stop_timeout_ms: 1000}")) == 0.25


def test_what_ends_a_flow_before_its_lanes_is_raised_and_nothing_stays_open() -> None:
    plane = FakePlane(flow("lanes: 2"), {"t1": topic("t1")}, positions=True)
    run = Run(plane=plane)
    run._run()
    assert isinstance(run.result, ReplicatorError)
    assert "control_topic_lost" in str(run.result)
    assert plane.closed
    assert run.lanes == {}


def test_the_sizes_of_a_plan_are_those_of_its_lanes_targets() -> None:
    with running() as run:
        plan = run.lanes[0].plan
    routes = {route.source: route for route in plan.routes}
    sized = with_routes(plan, Routing(routes, {"a.t1": 70_000, "a.t2": 2_000_000}))
    assert (sized.batch_bytes_max, sized.record_bytes_max) == (70_000, 2_000_000)
    unknown = with_routes(plan, Routing(routes, {}))
    assert unknown.batch_bytes_max > 0
