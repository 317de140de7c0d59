"""The two tables of stages and events: complete, and what each of them rules out."""

from __future__ import annotations

from replicator.workers import diagram
from replicator.workers.lane_stages import TRANSITIONS, LaneEffect, LaneEvent, LaneStage
from replicator.workers.worker_stages import WORKER_TRANSITIONS, WorkerEvent, WorkerStage


def test_both_tables_know_every_event_in_every_stage() -> None:
    assert set(TRANSITIONS) == set(LaneStage)
    assert all(set(row) == set(LaneEvent) for row in TRANSITIONS.values())
    assert set(WORKER_TRANSITIONS) == set(WorkerStage)
    assert all(set(row) == set(WorkerEvent) for row in WORKER_TRANSITIONS.values())


def test_a_lane_may_initialise_only_by_a_proof_or_where_the_group_was_empty() -> None:
    entered = {
        (stage, event)
        for stage, row in TRANSITIONS.items()
        for event, (after, _) in row.items()
        if after.may_initialise and not stage.may_initialise
    }
    assert entered == {(LaneStage.PROVING, LaneEvent.PROVED), (LaneStage.EARLY, LaneEvent.CONNECTED)}


def test_assigned_means_that_it_runs_or_is_on_its_way() -> None:
    """Nothing but the group, a cause of this process or its end takes a lane out of the stages that are assigned."""
    out = {
        event
        for stage, row in TRANSITIONS.items()
        for event, (after, _) in row.items()
        if stage.assigned and not after.assigned
    }
    assert out == {LaneEvent.REVOKED, LaneEvent.LOST, LaneEvent.LEFT_OUT, LaneEvent.STOP, LaneEvent.BROKEN}


def test_every_end_of_an_assigned_lane_is_answered() -> None:
    for stage, row in TRANSITIONS.items():
        for event in (LaneEvent.FENCED, LaneEvent.FAILED, LaneEvent.STOPPED):
            if stage.assigned and stage is not LaneStage.BACKING_OFF:
                after, effects = row[event]
                assert effects == (LaneEffect.BACK_OFF,) or effects == (LaneEffect.START,), (stage, event)
                assert after.assigned


def test_the_page_has_the_tables() -> None:
    page = diagram.PAGE.read_text()
    assert diagram.written(page) == page, "run python -m replicator.workers.diagram"
