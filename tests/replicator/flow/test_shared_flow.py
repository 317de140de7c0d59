"""A worker that shares its flow: which lanes it runs, when one may initialise its id, and what ends what."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest
import structlog
from structlog.testing import capture_logs

from replicator.flow import shared_flow
from replicator.flow.shared_flow import SharedFlow
from replicator.flow.topics import ControlPlane
from replicator.flow.worker import Parts
from replicator.kafka.group_events import (
    GroupEvent,
    LanesTopicUnfit,
)
from replicator.lane.permit import FencePermit
from replicator.lane.plan import LanePlan
from replicator.model.errors import Fenced, Incident, TakenOver, Unreachable
from replicator.state.control import Changer, Proposal, Propose
from replicator.state.control_topic import Control
from replicator.state.generation import Generation, Kind, LaneAssignment
from replicator.state.own_file import own_file
from replicator.workers.early import WorkerClientId
from replicator.workers.settings import OwnFile
from tests.replicator.flow.fakes import FakePlane, config, opened, run_before, topic
from tests.replicator.flow.shared_fakes import FakeGroup, FakeLane

WAIT_S = 10.0


class Run:
    """One worker in a thread, with its lanes and its group."""

    def __init__(self, settings: str = "lanes: 2", members: Callable[[], list[str]] = lambda: ["other"]) -> None:
        whole = config(settings)
        self.flow = whole.flows["f"]
        self.plane = run_before(FakePlane(self.flow, {"t1": topic("t1", 8)}))
        self.lanes: queue.SimpleQueue[FakeLane] = queue.SimpleQueue()
        self.made: list[FakeLane] = []
        self.groups: queue.SimpleQueue[FakeGroup] = queue.SimpleQueue()
        self.duties: queue.SimpleQueue[threading.Event] = queue.SimpleQueue()
        parts = Parts(
            plane=lambda flow: cast(ControlPlane, self.plane),
            lane=self._lane,
            duties=lambda flow, ended, failed: self.duties.put(ended),
            group=self._group,
            members=lambda flow: members(),
        )
        self.worker = SharedFlow(self.flow, whole, parts, structlog.get_logger())
        self.result: int | BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _lane(self, plan: LanePlan, events: queue.SimpleQueue[Any], permit: FencePermit) -> FakeLane:
        made = FakeLane(plan, events, permit)
        self.lanes.put(made)
        self.made.append(made)
        return made

    def _group(self, flow: object, lanes: int, client_id: str, tell: Callable[[GroupEvent], None]) -> FakeGroup:
        made = FakeGroup(tell)
        self.groups.put(made)
        return made

    def _run(self) -> None:
        try:
            self.result = self.worker.run()
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            self.result = error

    def start(self) -> FakeGroup:
        self._thread.start()
        return self.group()

    def group(self) -> FakeGroup:
        found = self.groups.get(timeout=WAIT_S)
        assert found.subscribed.wait(WAIT_S)
        return found

    def lane(self) -> FakeLane:
        return self.lanes.get(timeout=WAIT_S)

    def stop(self) -> int | BaseException | None:
        """Stop it, and let its successors fence its lanes."""
        self.worker.stop()
        for lane in self.made:
            lane.end(Fenced("by a successor"))
        return self.end()

    def end(self) -> int | BaseException | None:
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()
        return self.result


@pytest.fixture(autouse=True)
def lanes_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lanes topic is there, and nobody else is in the group."""
    monkeypatch.setattr(shared_flow, "foreign_members", lambda flow, admin: [])
    monkeypatch.setattr(FakePlane, "make_lanes_topic", lambda self, lanes: None, raising=False)


@contextmanager
def running(**how: Any) -> Iterator[tuple[Run, FakeGroup]]:
    run = Run(**how)
    yield run, run.start()
    run.stop()


def test_it_runs_the_lanes_that_it_is_given() -> None:
    with running() as (run, group):
        group.assign(1)
        lane = run.lane()
        assert lane.fenced.wait(WAIT_S)
        assert lane.plan.lane == 1
        assert {lane.plan.assignment.lane_of(*route.source) for route in lane.plan.routes} == {1}
        assert run.lanes.empty()
        assert run.stop() == 0
        assert lane.forgotten.is_set()


def test_a_lane_initialises_its_id_only_once_it_is_proved() -> None:
    """REBALANCE_IN_PROGRESS proves nothing: it asks again."""
    with running() as (run, group):
        group.error = "REBALANCE_IN_PROGRESS"
        group.assign(0)
        lane = run.lane()
        assert group.proved.wait(WAIT_S)
        group.proved.clear()
        assert group.proved.wait(WAIT_S)
        assert not lane.fenced.is_set()
        group.error = ""
        assert lane.fenced.wait(WAIT_S)


def test_a_lane_that_is_taken_away_copies_until_it_is_fenced() -> None:
    with running() as (run, group):
        group.assign(0, 1)
        first, second = sorted((run.lane(), run.lane()), key=lambda lane: lane.plan.lane)
        assert first.fenced.wait(WAIT_S)
        assert second.fenced.wait(WAIT_S)
        group.revoke(1)
        group.assign(0)
        second.end(Fenced("by another worker"))
        assert second.forgotten.wait(WAIT_S)
        assert not first.asked.is_set()
        assert run.lanes.empty()


def test_a_fenced_lane_that_is_still_its_own_is_started_again() -> None:
    with running() as (run, group):
        group.assign(0)
        lane = run.lane()
        assert lane.fenced.wait(WAIT_S)
        lane.end(Fenced("a transaction timed out"))
        assert run.lane().fenced.wait(WAIT_S)


def test_a_cause_in_the_clusters_ends_no_other_lane() -> None:
    with running() as (run, group):
        group.assign(0, 1)
        lanes = [run.lane(), run.lane()]
        assert all(lane.fenced.wait(WAIT_S) for lane in lanes)
        lanes[0].end(Unreachable("away"))
        again = run.lane()
        assert again.plan.lane == lanes[0].plan.lane
        assert not lanes[1].asked.is_set()


@pytest.mark.parametrize("error", [Incident("control_topic_lost", "gone"), RuntimeError("a bug")])
def test_an_incident_of_the_flow_or_a_bug_ends_it(error: BaseException) -> None:
    with running() as (run, group):
        group.assign(0, 1)
        lanes = [run.lane(), run.lane()]
        assert all(lane.fenced.wait(WAIT_S) for lane in lanes)
        lanes[0].end(error)
        assert run.end() is error
        assert lanes[1].asked.is_set()


def test_partitions_without_lanes_are_an_incident() -> None:
    with running() as (run, group):
        group.tell(LanesTopicUnfit(frozenset({2})))
        error = run.end()
        assert isinstance(error, Incident)
        assert error.name == "lanes_topic_unfit"


def test_the_worker_with_lane_0_has_the_duties() -> None:
    with running() as (run, group):
        group.assign(1)
        assert run.lane().fenced.wait(WAIT_S)
        group.assign(0, 1)
        assert run.lane().fenced.wait(WAIT_S)
        duty = run.duties.get(timeout=WAIT_S)
        group.revoke(0)
        assert duty.wait(WAIT_S)
        assert run.duties.empty()


def test_a_lone_worker_opens_its_lanes_early() -> None:
    """Nobody is in the group, or only processes of this host that have ended."""
    with running(members=list) as (run, group):
        lanes = [run.lane(), run.lane()]
        assert all(lane.fenced.wait(WAIT_S) for lane in lanes)
        assert not group.proved.is_set()
        group.assign(0, 1)
        shown = {group.proofs_asked.get(timeout=WAIT_S) for _ in range(2)}
        assert shown == {0, 1}, "others shall see who runs them"
        group.assign(0)  # another worker has joined meanwhile: it gets lane 1, and fences this one
        [given_away] = [lane for lane in lanes if lane.plan.lane == 1]
        given_away.end(Fenced("by another worker"))
        assert given_away.forgotten.wait(WAIT_S)
        assert run.lanes.empty()


def test_it_opens_none_early_beside_others() -> None:
    other = WorkerClientId("another-host", 1, "x").encode()
    with running(members=lambda: [other]) as (run, group):
        group.assign(0)
        run.lane()
        assert group.proved.wait(WAIT_S)


def test_a_group_that_cannot_be_asked_is_none_that_is_empty() -> None:
    def away() -> list[str]:
        raise Unreachable("away")

    with running(members=away) as (run, group):
        group.assign(0)
        run.lane()
        assert group.proved.wait(WAIT_S)


def test_after_another_generation_it_goes_on_under_that_one() -> None:
    """Somebody has opened one with three lanes: all lanes end, and those of the new generation follow."""
    with running() as (run, group):
        group.assign(0)
        lane = run.lane()
        assert lane.fenced.wait(WAIT_S)
        run.plane.state.control_topic = opened(3, before=run.plane.state.control_topic)
        with capture_logs() as logs:
            lane.end(TakenOver.of_generation("generation 2 (live) has taken over from 1"))
            again = run.group()
            again.assign(2)
            follows = run.lane()
            assert follows.fenced.wait(WAIT_S)
        assert (follows.plan.generation, follows.plan.lane, follows.plan.claim_partitions) == (2, 2, 3)
        assert [line["own_lanes"] for line in logs if line["event"] == "lanes_followed"] == [2]


class Changes:
    """In the place of `Changer.ensure`: what is proposed is opened, in a control topic in memory."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.proposed: list[Proposal] = []
        self.run: Run | None = None
        monkeypatch.setattr(Changer, "ensure", lambda _, propose, *__: self._ensure(propose))

    def _ensure(self, propose: Propose) -> tuple[Generation, bool]:
        assert self.run is not None
        control = self.run.plane.state.control_topic or Control()
        while (proposal := propose(control)) is not None:
            self.proposed.append(proposal)
            control = opened(proposal.assignment.lanes, own=proposal.own, before=control)
        self.run.plane.state.control_topic = control
        assert control.open is not None
        return control.open, True


OTHER = own_file(config("lanes: 2, commit: {interval_ms: 500}, rename: 'other-{topic}'").flows["f"])
"""The same flow, as another worker's file has it."""


def test_a_file_that_is_new_to_the_flow_is_proposed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """At its start. When another worker has opened another file's settings later, it runs those."""
    changes, run = Changes(monkeypatch), Run("lanes: 3")
    changes.run = run
    run.plane.state.control_topic = opened(2, {"t1": 8}, OTHER)
    group = run.start()
    group.assign(0)
    lane = run.lane()
    assert lane.fenced.wait(WAIT_S)
    assert (lane.plan.flow, lane.plan.assignment) == (run.flow, LaneAssignment(3))
    run.plane.state.control_topic = opened(2, {}, OTHER, run.plane.state.control_topic)
    with capture_logs() as logs:
        lane.end(TakenOver.of_generation("another one follows"))
        run.group().assign(0)
        follows = run.lane()
    assert (follows.plan.generation, follows.plan.assignment) == (3, LaneAssignment(2))
    assert follows.plan.flow.commit.interval_ms == 500
    assert {route.target.topic for route in follows.plan.routes} == {"other-t1"}
    assert follows.plan.flow.source.properties == run.flow.source.properties
    warned = [line for line in logs if line["event"] == "file_is_older"]
    assert [line["differs"] for line in warned] == [["commit.interval_ms", "lanes", "rename"]]
    assert [(it.assignment.lanes, it.own) for it in changes.proposed] == [(3, own_file(run.flow))]
    assert run.stop() == 0


def test_a_file_that_the_flow_has_had_before_is_not_proposed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two supervisors with two files would otherwise replace each other's generation at each start."""
    changes, run = Changes(monkeypatch), Run("lanes: 3")
    changes.run = run
    had = opened(3, {"t1": 8}, own_file(run.flow))
    run.plane.state.control_topic = opened(2, {}, OTHER, had)
    run.start().assign(0)
    assert (plan := run.lane().plan).assignment == LaneAssignment(2)
    assert plan.flow.commit.interval_ms == 500
    assert changes.proposed == []
    assert run.stop() == 0


def test_a_higher_revision_is_proposed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    changes, run = Changes(monkeypatch), Run("lanes: 3, revision: 7")
    changes.run = run
    had = opened(3, {"t1": 8}, own_file(config("lanes: 3").flows["f"]))
    run.plane.state.control_topic = opened(2, {}, OTHER, had)
    run.start().assign(0)
    assert run.lane().plan.assignment == LaneAssignment(3)
    opened_ = run.plane.state.control_topic.open
    assert opened_ is not None
    assert (opened_.number, opened_.revision, opened_.settings_hash) == (3, 7, own_file(run.flow).hash)
    assert run.stop() == 0


def test_settings_of_a_newer_version_are_not_run() -> None:
    """It stands by, and runs nothing, until a version has opened settings that it knows."""
    run = Run("lanes: 2, limits: {discovery_interval_ms: 100}")
    own = own_file(run.flow)
    newer = OwnFile(hash="", settings=own.settings.replace('"lanes":2', '"lanes":2,"teleport":true'))
    run.plane.state.control_topic = opened(2, {}, newer, opened(2, {"t1": 8}, own))
    with capture_logs() as logs:
        run._thread.start()
        while not (found := [line["reason"] for line in logs if line["event"] == "standing_by"]):
            threading.Event().wait(0.01)
        assert "doesn't know: teleport" in found[0]
        run.plane.state.control_topic = opened(2, {}, own, run.plane.state.control_topic)
        run.group().assign(0)
        assert run.lane().plan.generation == 3
    assert run.stop() == 0


def test_it_stands_by_while_a_job_has_the_flow() -> None:
    run = Run("lanes: 2, limits: {discovery_interval_ms: 100}")
    before = opened(2, {"t1": 8}, own_file(run.flow))
    job = before.apply(before.prepare(LaneAssignment(1), {}, 3, Kind.BACKFILL, "job"))
    for record in job.finish(4):
        job = job.apply(record)
    run.plane.state.control_topic = job
    with capture_logs() as logs:
        run._thread.start()
        while not any(line["event"] == "standing_by" for line in logs):
            threading.Event().wait(0.01)
        back = job.apply(job.prepare(LaneAssignment(2), {}, 5))
        for record in back.finish(6):
            back = back.apply(record)
        run.plane.state.control_topic = back
        run.group().assign(0)
        assert run.lane().plan.generation == 3
    assert run.stop() == 0


def test_a_stop_while_it_stands_by_ends_it() -> None:
    run = Run()
    before = opened(2, {"t1": 8})
    run.plane.state.control_topic = before.apply(before.prepare(LaneAssignment(1), {}, 3, Kind.REPAIR, "job"))
    run._thread.start()
    run.worker.stop()
    assert run.end() == 0


def test_rounds_on_spark_that_take_over_end_it() -> None:
    with running() as (run, group):
        group.assign(0)
        lane = run.lane()
        assert lane.fenced.wait(WAIT_S)
        before = opened(2, {"t1": 8})
        rounds = before.apply(before.prepare(LaneAssignment(2), {}, 3, Kind.ROUNDS, "spark"))
        for record in rounds.finish(4):
            rounds = rounds.apply(record)
        run.plane.state.control_topic = rounds
        lane.end(TakenOver.of_generation("generation 2 (rounds) has taken over from 1"))
        assert isinstance(run.end(), TakenOver)
