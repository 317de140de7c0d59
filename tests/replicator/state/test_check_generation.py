"""Under which control topic the lanes of a generation may run."""

from __future__ import annotations

import pytest

from replicator.model.errors import Incident, TakenOver
from replicator.state.control_topic import Control, check_generation
from replicator.state.generation import Kind, LaneAssignment

TWO = LaneAssignment(2)


def opened(generations: int, assignment: LaneAssignment = TWO, kind: Kind = Kind.LIVE) -> Control:
    control = Control()
    for _ in range(generations):
        control = control.apply(control.prepare(assignment, {}, 1, kind))
        for record in control.finish(2):
            control = control.apply(record)
    return control


def test_the_open_generation_may_run() -> None:
    check_generation(opened(2), 2, TWO)


def test_a_closed_one_was_taken_over() -> None:
    with pytest.raises(TakenOver, match=r"generation 3 \(backfill\) has taken over from 2"):
        check_generation(opened(3, kind=Kind.BACKFILL), 2, TWO)


def test_one_that_is_being_replaced_was_taken_over() -> None:
    control = opened(2)
    with pytest.raises(TakenOver, match=r"generation 3 .* is being prepared"):
        check_generation(control.apply(control.prepare(TWO, {}, 3)), 2, TWO)


def test_the_same_number_with_another_cut_is_another_generation() -> None:
    """Two control topics one after the other: the second began at 1 again."""
    with pytest.raises(TakenOver, match="open with 3 lanes, not open with 2"):
        check_generation(opened(1, LaneAssignment(3)), 1, TWO)
    preparing = Control().apply(Control().prepare(TWO, {}, 1))
    with pytest.raises(TakenOver, match="is preparing"):
        check_generation(preparing, 1, TWO)


def test_a_control_topic_that_does_not_know_the_generation_is_an_incident() -> None:
    with pytest.raises(Incident, match="control_topic_behind"):
        check_generation(opened(1), 2, TWO)


def test_running_lanes_go_on_while_another_generation_is_only_being_prepared() -> None:
    control = opened(2)
    preparing = control.apply(control.prepare(TWO, {}, 3))
    check_generation(preparing, 2, TWO, running=True)
    with pytest.raises(TakenOver, match="being prepared"):
        check_generation(preparing, 1, TWO, running=True)
    taken = preparing
    for record in preparing.finish(4):
        taken = taken.apply(record)
    with pytest.raises(TakenOver, match="has taken over"):
        check_generation(taken, 2, TWO, running=True)
