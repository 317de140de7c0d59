"""A worker that shares its flow, and has another flow file than the others: whose settings hold."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from replicator.model.errors import TakenOver
from replicator.observe.conditions import ObservedConditions
from replicator.state.control import Changer, Proposal, Propose
from replicator.state.control_topic import Control
from replicator.state.generation import Generation, Kind, LaneAssignment
from replicator.state.own_file import own_file
from replicator.workers.settings import OwnFile
from tests.replicator.flow.fakes import config, opened
from tests.replicator.flow.shared_run import WAIT_S, Run, lanes_topic

__all__ = ["lanes_topic"]


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
    assert (lane.plan.flow, lane.plan.assignment) == (run.flow, LaneAssignment(3, dealt={"t1": 8}))
    run.plane.state.control_topic = opened(2, {}, OTHER, run.plane.state.control_topic)
    with capture_logs() as logs:
        lane.end(TakenOver.of_generation("another one follows"))
        run.group().assign(0)
        follows = run.lane()
    assert (follows.plan.generation, follows.plan.assignment) == (3, LaneAssignment(2, dealt={"t1": 8}))
    assert follows.plan.flow.commit.interval_ms == 500
    assert {route.target.topic for route in follows.plan.routes} == {"other-t1"}
    assert follows.plan.flow.source.properties == run.flow.source.properties
    warned = [line for line in logs if line["event"] == "file_is_older"]
    assert [line["differs"] for line in warned] == [["commit.interval_ms", "lanes", "rename"]]
    assert [(it.assignment.lanes, it.own) for it in changes.proposed] == [(3, own_file(run.flow, "ca"))]
    assert run.stop() == 0


def test_a_file_that_the_flow_has_had_before_is_not_proposed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two supervisors with two files would otherwise replace each other's generation at each start."""
    told = ObservedConditions(lambda: 0)
    changes, run = Changes(monkeypatch), Run("lanes: 3", conditions=lambda flow: told)
    changes.run = run
    had = opened(3, {"t1": 8}, own_file(run.flow))
    run.plane.state.control_topic = opened(2, {}, OTHER, had)
    run.start().assign(0)
    assert (plan := run.lane().plan).assignment == LaneAssignment(2, dealt={"t1": 8})
    assert plan.flow.commit.interval_ms == 500
    assert changes.proposed == []
    said = told.now().other_settings
    assert "generation 2, which differ in commit.interval_ms, lanes, rename." in said
    assert said.endswith("eos-replicate apply --flow f -c FILE")
    assert not told.now(), "it is copied all the same"
    assert run.stop() == 0


def test_a_higher_revision_is_proposed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    changes, run = Changes(monkeypatch), Run("lanes: 3, revision: 7")
    changes.run = run
    had = opened(3, {"t1": 8}, own_file(config("lanes: 3").flows["f"]))
    run.plane.state.control_topic = opened(2, {}, OTHER, had)
    run.start().assign(0)
    assert run.lane().plan.assignment == LaneAssignment(3, dealt={"t1": 8})
    opened_ = run.plane.state.control_topic.open
    assert opened_ is not None
    assert (opened_.number, opened_.revision, opened_.settings_hash) == (3, 7, own_file(run.flow).hash)
    assert run.stop() == 0


def test_a_file_that_names_another_source_cluster_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same names, but another cluster: nothing is listed or written, not even a proposal. `apply` takes it."""
    changes, run = Changes(monkeypatch), Run("lanes: 3, limits: {discovery_interval_ms: 100}")
    changes.run = run
    theirs = replace(OTHER, source_cluster="another-id")
    run.plane.state.control_topic = opened(2, {"t1": 8}, theirs)
    run.plane.state.asked.clear()
    with capture_logs() as logs:
        run._thread.start()
        while not (found := [line["reason"] for line in logs if line["event"] == "standing_by"]):
            threading.Event().wait(0.01)
        assert "copied from another-id" in found[0]
        assert set(run.plane.state.asked) == {"control", "claims"}
        assert changes.proposed == []
        own = own_file(run.flow, source_cluster="ca")
        run.plane.state.control_topic = opened(3, {}, own, run.plane.state.control_topic)
        run.group().assign(0)
        assert run.lane().plan.generation == 2
    assert run.stop() == 0


@pytest.mark.parametrize("same_file", [True, False])
def test_another_clusters_worker_that_was_first_is_not_followed(
    monkeypatch: pytest.MonkeyPatch, same_file: bool
) -> None:
    """Two workers begin a flow at once, between clusters that only have the same names. Whoever comes second has read
    before that nobody's cluster is known; it runs nothing, and replaces nothing, until the flow is copied from its
    cluster."""
    run = Run("lanes: 3, limits: {discovery_interval_ms: 100}")
    theirs = replace(own_file(run.flow) if same_file else OTHER, source_cluster="another-id")
    run.plane.state.control_topic = before = opened(2, {"t1": 8})
    first = opened(2, {}, theirs, before)

    def ensure(_: Changer, propose: Propose, *__: object) -> tuple[Generation, bool]:
        run.plane.state.control_topic = first
        assert propose(first) is None, "the other's generation is replaced"
        assert first.open is not None
        return first.open, False

    monkeypatch.setattr(Changer, "ensure", ensure)
    with capture_logs() as logs:
        run._thread.start()
        while not (found := [line["reason"] for line in logs if line["event"] == "standing_by"]):
            assert run.result is None, run.result
            assert run.groups.empty(), "it shares the lanes of a flow that is copied from another cluster"
            threading.Event().wait(0.01)
        assert "copied from another-id" in found[0]
        run.plane.state.control_topic = opened(3, {}, own_file(run.flow, source_cluster="ca"), first)
        run.group().assign(0)
        assert run.lane().plan.generation == 3
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


@pytest.mark.tier("default")
def test_a_failover_that_was_undone_at_once_does_not_end_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has seen that the flow is failed over; when it looks how to keep the positions, that is over."""
    changes, run = Changes(monkeypatch), Run("lanes: 2")
    changes.run = run
    before = opened(2, {"t1": 8}, own_file(run.flow))
    frozen = before.apply(before.prepare(LaneAssignment(1), {}, 3, Kind.FROZEN, "an operator"))
    for record in frozen.finish(4):
        frozen = frozen.apply(record)
    run.plane.state.control_topic = frozen

    def undone(*_: object) -> bool:
        run.plane.state.control_topic = opened(2, {}, own_file(run.flow), frozen)
        return False

    run.worker._parts = replace(run.worker._parts, frozen=undone)
    run.start().assign(0)
    assert run.lane().plan.generation == 3
    assert run.stop() == 0
