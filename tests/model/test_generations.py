"""Invariants 1 and 2: no record twice, none missing, none out of order, and the copy can always go on.

The protocol as designed is explored to its end. Then parts of it are left out, one at a time, and the explorer must
find what they are there for. A part that turns out to be needed only together with another one is listed as such.
"""

from __future__ import annotations

import pytest

from tests.budget import budget
from tests.model.explore import Explored, explore
from tests.model.generations import OPENED, Model, copied_all, first, growing
from tests.model.rules import Rules
from tests.model.worker_steps import CHECKED, COPYING
from tests.model.world import Record, Worker, World

pytestmark = pytest.mark.tier("extended")  # all states of the model

STATES_MAX = 700_000
GENERATIONS, STATES_MIN = budget((2, 30_000), (3, 400_000))
GROWING, GROWING_MIN = budget((1, 4_000), (2, 200_000))  # generations of a source that grows, and their states

# What is left out, what a reader of the target sees then.
ESSENTIAL = {
    "unstable_read": "doubled",
    "no_check": "doubled",
    "check_before_fence": "doubled",
    "position_before_fence": "doubled",
    "start_under_preparing": "doubled",
    "id_by_host": "doubled",
    "no_fencing": "doubled",
    "fence_first_lane_only": "doubled",
    "fence_before_preparing": "doubled",
    "no_preparing": "doubled",
    "no_wait_for_preparing": "doubled",
    "no_control_fencing": "unreadable",
    "resume_after_unknown_end": "doubled",
    "no_rewind_after_abort": "lost",
    "position_outside_before": "lost",
    "position_outside_after": "doubled",
    "no_partition_verification": "doubled",
}
FOUND_LATE = ("check_before_fence", "start_under_preparing")
"""What is explored longest until it goes wrong."""
HALF_DONE: tuple[Record, ...] = (*OPENED, (2, "preparing", 1, 0))
# Each of a pair stands in for the other; without both, records are doubled. With the control topic at the beginning;
# over a half-done change a worker of the generation before it runs.
SECOND_LINES = (
    ("wait_for_answer_only", "check_stable_end_only", first(OPENED), 2),
    (
        "overtake_half_done",
        "fence_previous_only",
        first(HALF_DONE)._replace(workers=(Worker(), Worker(CHECKED, 1, 1))),
        3,
    ),
)


def _explore(rules: Rules, *, edges: bool = False) -> Explored[World]:
    return explore(first(OPENED), Model(rules, 2).steps, states_max=STATES_MAX, keep_edges=edges)


def test_as_designed_nothing_breaks_and_progress_is_always_possible() -> None:
    """Two workers, two changers, from an empty control topic on: all of it."""
    explored = explore(first(), Model(Rules(), GENERATIONS).steps, states_max=STATES_MAX, keep_edges=True)
    assert explored.found is None, str(explored.found)
    assert len(explored.states) > STATES_MIN, "the model has lost most of its behaviour"
    stuck = explored.stuck(copied_all)
    assert stuck is None, str(stuck)


@pytest.mark.parametrize(
    ("left_out", "kind"),
    [
        pytest.param(*it, id=it[0], marks=pytest.mark.tier("full") if it[0] in FOUND_LATE else ())
        for it in ESSENTIAL.items()
    ],
)
def test_each_part_is_needed(left_out: str, kind: str) -> None:
    """The explorer finds the record that is doubled or lost, and how."""
    found = _explore(Rules(**{left_out: True})).found
    assert found is not None, f"nothing breaks without it: {left_out}"
    assert found.kind == kind, str(found)


@pytest.mark.tier("full")
@pytest.mark.parametrize(("one", "other", "start", "generations"), SECOND_LINES, ids=["fresh", "half_done"])
def test_of_each_pair_one_part_is_needed(one: str, other: str, start: World, generations: int) -> None:
    """Either alone may be missing; without both, records are doubled."""
    for alone in (one, other):
        found = explore(start, Model(Rules(**{alone: True}), generations).steps, states_max=STATES_MAX).found
        assert found is None, str(found)
    both = explore(start, Model(Rules(**{one: True, other: True}), generations).steps, states_max=STATES_MAX).found
    assert both is not None
    assert both.kind == "doubled", str(both)


def test_a_half_done_change_must_be_finished_by_whoever_finds_it() -> None:
    explored = _explore(Rules(abandon_half_done=True), edges=True)
    assert explored.found is None, str(explored.found)
    stuck = explored.stuck(copied_all)
    assert stuck is not None
    assert any("preparing" in step for step in stuck.trace), str(stuck)


LOST_UNDER = {  # the control topic has just been lost; who still runs, with which position
    "a worker": first()._replace(position=(0, 1), workers=(Worker(), Worker(COPYING, 1, 1, position=0))),
    "a worker further on": first()._replace(
        copied=1, position=(1, 1), workers=(Worker(), Worker(COPYING, 1, 1, position=1))
    ),
    "nobody": first()._replace(copied=1, position=(1, 1)),
}


@pytest.mark.parametrize("lost", LOST_UNDER.values(), ids=LOST_UNDER)
def test_a_lost_control_topic_is_not_begun_anew_over_positions(lost: World) -> None:
    """Made anew it would begin again at generation 1, and not know the id of a lane that still runs."""
    found = explore(lost, Model(Rules(), 2).steps, states_max=STATES_MAX).found
    assert found is None, str(found)


def test_begun_anew_over_positions_two_generations_live_at_once() -> None:
    model = Model(Rules(begin_over_positions=True), 2)
    found = explore(LOST_UNDER["a worker"], model.steps, states_max=STATES_MAX).found
    assert found is not None
    assert found.kind == "doubled", str(found)


def test_a_position_newer_than_the_control_topic_stops_a_worker() -> None:
    """The second line, should it be begun anew all the same: at generation 1, while a lane of generation 2 runs."""
    lost = first()._replace(position=(0, 2), workers=(Worker(), Worker(COPYING, 2, 0, position=0)))
    model = Model(Rules(begin_over_positions=True), 2, one_lane=True)
    found = explore(lost, model.steps, states_max=STATES_MAX).found
    assert found is None, str(found)
    model = Model(Rules(begin_over_positions=True, ignore_newer_position=True), 2, one_lane=True)
    found = explore(lost, model.steps, states_max=STATES_MAX).found
    assert found is not None
    assert found.kind == "doubled", str(found)


def test_a_start_that_is_stored_with_the_open_record_loses_nothing() -> None:
    """Invariant 4, while the source grows from before the first change on: what is written after `open` is copied."""
    explored = explore(growing(), Model(Rules(), GROWING).steps, states_max=STATES_MAX, keep_edges=True)
    assert explored.found is None, str(explored.found)
    assert len(explored.states) > GROWING_MIN, "the model has lost most of its behaviour"
    stuck = explored.stuck(copied_all)
    assert stuck is None, str(stuck)


def test_a_start_that_is_resolved_at_admission_loses_records() -> None:
    found = explore(growing(), Model(Rules(resolve_at_admission=True), 1).steps, states_max=STATES_MAX).found
    assert found is not None
    assert found.kind == "lost", str(found)


def test_every_switch_is_used() -> None:
    """A rule that no test leaves out proves nothing."""
    elsewhere = {"abandon_half_done", "ignore_newer_position", "begin_over_positions", "resolve_at_admission"}
    used = {*ESSENTIAL, *(name for pair in SECOND_LINES for name in pair[:2]), *elsewhere}
    assert used == set(Rules.__dataclass_fields__)
