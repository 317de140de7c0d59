"""The exit code of a worker that shares its flow: what a stop leaves behind, and whether its lanes have come far enough
to say that nothing waits."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from structlog.testing import capture_logs

from replicator.flow.group_worker import GroupWorker
from replicator.model.errors import (
    ConfigError,
    Fenced,
    Incident,
    ReplicatorError,
    Retriable,
    TakenOver,
    UnknownOutcome,
    Unsupported,
)
from tests.replicator.flow.fakes import opened
from tests.replicator.flow.shared_run import WAIT_S, Run, lanes_topic, running

__all__ = ["lanes_topic"]


@pytest.mark.parametrize("error", [Retriable("moved"), UnknownOutcome("given up")])
def test_an_incident_counts_where_a_stop_meets_a_lane_that_starts_again(error: BaseException) -> None:
    with running(settings="lanes: 1", members=list, stopped=1) as (run, group):
        group.assign(0)
        lane = run.lane()
        assert lane.told.wait(WAIT_S)
        lane.ends_by = error
        run.worker.stop()
        assert run.end() == Incident.exit_code


def test_what_a_stop_leaves_open_is_told_where_no_other_worker_takes_it() -> None:
    error = UnknownOutcome("the open transaction was given up")
    with running(settings="lanes: 1", members=list) as (run, group):
        group.assign(0)
        lane = run.lane()
        assert lane.told.wait(WAIT_S)
        lane.ends_by = error
        run.worker.stop()
        assert run.end() is error


def test_what_another_worker_takes_is_not_left_open() -> None:
    with running(settings="lanes: 1") as (run, group):
        group.assign(0)
        lane = run.lane()
        assert lane.told.wait(WAIT_S)
        run.worker.stop()
        lane.end(UnknownOutcome("the open transaction was given up"))
        assert run.end() == 0


def test_lanes_without_partitions_have_nothing_to_tell() -> None:
    run = Run("lanes: 16")
    run.start().assign(*range(16))
    lanes = [run.lane() for _ in range(16)]
    assert all(lane.told.wait(WAIT_S) for lane in lanes)
    assert any(not lane.plan.routes for lane in lanes)
    assert run.stop() == 0
    assert not run.worker.stopped_early


@pytest.mark.parametrize("assigned", [False, True])
def test_a_worker_without_lanes_has_come_far_once_the_group_has_said_so(
    assigned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before that a discovery says nothing."""
    discovered, handle = threading.Event(), GroupWorker._discovered
    goes_on = threading.Event()

    def seen(worker: GroupWorker, routing: Any) -> None:
        if goes_on.is_set():
            handle(worker, routing)
            discovered.set()

    monkeypatch.setattr(GroupWorker, "_discovered", seen)
    run = Run("lanes: 2, limits: {discovery_interval_ms: 100}")
    group = run.start()
    if assigned:
        group.assign()
    goes_on.set()
    assert discovered.wait(WAIT_S)
    assert run.stop() == 0
    assert run.worker.stopped_early is not assigned


def test_what_a_generation_has_left_stopped_counts_until_the_lanes_of_the_next_have_told() -> None:
    run = Run("lanes: 1", stopped=1)
    run.start().assign(0)
    lane = run.lane()
    assert lane.told.wait(WAIT_S)
    run.plane.state.control_topic = opened(3, before=run.plane.state.control_topic)
    lane.end(TakenOver.of_generation("generation 2 (live) has taken over from 1"))
    run.group()
    assert run.stop() == Incident.exit_code
    assert not run.worker.stopped_early


def test_a_stop_for_an_incident_says_so_also_where_another_worker_takes_the_lane() -> None:
    run = Run("lanes: 1", stopped=1, exit_on_incident=True)
    run.start().assign(0)
    lane = run.lane()
    assert lane.told.wait(WAIT_S)
    lane.end(Fenced("by a successor"))
    assert run.end() == Incident.exit_code


def test_a_lane_that_nobody_has_taken_leaves_its_incidents_to_the_code() -> None:
    """Fenced by the target, whose time for the transaction was over."""
    with running(settings="lanes: 1", members=list, stopped=1) as (run, group):
        group.assign(0)
        lane = run.lane()
        assert lane.told.wait(WAIT_S)
        lane.ends_by = Fenced("the transaction timed out")
        run.worker.stop()
        assert run.end() == Incident.exit_code


@pytest.mark.tier("default")
@pytest.mark.parametrize("error", [Unsupported("a way to log in"), ConfigError("the transaction timeout is too long")])
@pytest.mark.parametrize("lanes", [1, 2])
def test_an_incident_counts_where_another_error_ends_the_flow(lanes: int, error: ReplicatorError) -> None:
    """Of the lane that ends, or of another one."""
    with capture_logs() as logs, running(settings=f"lanes: {lanes}", members=list, stopped=1) as (run, group):
        group.assign(*range(lanes))
        made = [run.lane() for _ in range(lanes)]
        assert all(lane.told.wait(WAIT_S) for lane in made)
        made[-1].end(error)
        assert run.end() == Incident.exit_code
    told = [(it["detail"], it["exit_code"]) for it in logs if it["event"] == "flow_ended"]
    assert told == [(str(error), error.exit_code)]


@pytest.mark.tier("default")
def test_a_bug_is_told_though_an_incident_waits() -> None:
    bug = RuntimeError("a bug")
    with running(settings="lanes: 1", members=list, stopped=1) as (run, group):
        group.assign(0)
        lane = run.lane()
        assert lane.told.wait(WAIT_S)
        lane.end(bug)
        assert run.end() is bug
