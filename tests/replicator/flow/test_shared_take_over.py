"""A worker that takes its flow over from a job (`run --take-over`): whose settings hold, and for how long it may."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest
from structlog.testing import capture_logs
from structlog.typing import EventDict

from replicator.model.errors import TakenOver
from replicator.state.control_topic import Control
from replicator.state.generation import Kind, LaneAssignment
from replicator.state.own_file import own_file
from replicator.workers.settings import OwnFile
from tests.replicator.flow.fakes import config, opened
from tests.replicator.flow.shared_run import WAIT_S, Run, lanes_topic
from tests.replicator.flow.test_shared_settings import OTHER, Changes

__all__ = ["lanes_topic"]
SETTINGS = "lanes: 3, limits: {discovery_interval_ms: 100}"


def of_job(before: Control) -> Control:
    """A backfill has opened the next generation after `before`, and was killed."""
    control = before.apply(before.prepare(LaneAssignment(1), {}, 3, Kind.BACKFILL))
    for record in control.finish(4):
        control = control.apply(record)
    return control


def stands_by(logs: Sequence[EventDict], run: Run) -> str:
    """Return why it does, once it does."""
    while not (found := [str(line["reason"]) for line in logs if line["event"] == "standing_by"]):
        assert run.result is None, run.result
        threading.Event().wait(0.01)
    return found[0]


def test_the_settings_that_hold_outlast_a_job_that_a_worker_with_an_older_file_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The job has taken them on. Whoever ends it after it was killed may do so on any machine."""
    changes, run = Changes(monkeypatch), Run(SETTINGS, take_over=True)
    changes.run = run
    had = opened(3, {"t1": 8}, own_file(run.flow))
    run.plane.state.control_topic = of_job(opened(2, {}, OTHER, had))
    with capture_logs() as logs:
        run.start().assign(0)
        plan = run.lane().plan
    assert (plan.generation, plan.assignment.lanes) == (4, 2)
    assert plan.flow.commit.interval_ms == 500
    assert [line["generation"] for line in logs if line["event"] == "file_is_older"] == [4]
    assert [it.own for it in changes.proposed] == [None]
    assert run.stop() == 0


def test_a_file_that_is_new_to_the_flow_is_proposed_by_whoever_ends_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    changes, run = Changes(monkeypatch), Run(SETTINGS, take_over=True)
    changes.run = run
    older = own_file(config("lanes: 1").flows["f"])
    run.plane.state.control_topic = of_job(opened(2, {}, OTHER, opened(1, {"t1": 8}, older)))
    run.start().assign(0)
    plan = run.lane().plan
    assert (plan.generation, plan.assignment.lanes, plan.flow) == (4, 3, run.flow)
    assert run.stop() == 0


def test_settings_of_a_newer_version_are_not_replaced_by_whoever_ends_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    changes, run = Changes(monkeypatch), Run(SETTINGS, take_over=True)
    changes.run = run
    own = own_file(run.flow)
    newer = OwnFile(hash="newer", settings=own.settings.replace('"lanes":3', '"lanes":3,"teleport":true'))
    run.plane.state.control_topic = of_job(opened(2, {}, newer, opened(2, {"t1": 8}, own)))
    with capture_logs() as logs:
        run.begin()
        assert "doesn't know: teleport" in stands_by(logs, run)
    assert changes.proposed == []
    assert run.stop() == 0


def test_a_later_job_is_stood_by_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The option may stand in a unit file: it is for the job that the flow was left to before the worker's start."""
    changes, run = Changes(monkeypatch), Run(SETTINGS, take_over=True)
    changes.run = run
    run.plane.state.control_topic = of_job(opened(2, {"t1": 8}, OTHER))
    run.start().assign(0)
    lane = run.lane()
    assert lane.fenced.wait(WAIT_S)
    taken = run.plane.state.control_topic
    assert taken is not None
    run.plane.state.control_topic = of_job(taken)
    with capture_logs() as logs:
        lane.end(TakenOver.of_generation("a job has the flow"))
        assert "backfill" in stands_by(logs, run)
    assert len(changes.proposed) == 1
    run.plane.state.control_topic = opened(3, {}, own_file(run.flow), run.plane.state.control_topic)
    run.group().assign(0)
    assert run.lane().plan.generation == 5
    assert run.stop() == 0
