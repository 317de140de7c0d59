"""Several workers: nothing is lost or doubled, every lane is run again, and nobody fences anybody for ever.

The rules as designed are explored with all that may happen to workers, their coordinator and their clusters. Then each
part is left out, and the explorer must find what it is there for. What turns out to be needed only together with
another part is listed as such, and so is what nothing of this rests on.

The program's own tables, its judgement of proofs and its decision about settings are what is explored.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.budget import budget
from tests.model.explore import Explored, explore
from tests.model.workers.model import OPENED, WorkersModel, first, running
from tests.model.workers.rules import WorkerRules
from tests.model.workers.world import GenerationRecord, World

pytestmark = pytest.mark.tier("default")  # all states of the smaller worlds

STATES_MAX = 1_000_000
SAME, OTHER, NEW = (0, 0), (0, 1), (1, 1)
"""Which file each worker has: that of the open generation, with two lanes, or another one, with one lane."""
JOB = (OPENED._replace(job=True),)


def _explore(
    kinds: str,
    rules: WorkerRules | None = None,
    *,
    files: tuple[int, ...] = SAME,
    log: tuple[GenerationRecord, ...] = (OPENED,),
    start: World | None = None,
    generations: int = 1,
    disturbances: int = -1,
    takeovers_max: int = 2,
) -> tuple[WorkersModel, Explored[World]]:
    """All that is reached by these kinds of disturbances, as many as there are, or at most so many."""
    model = WorkersModel(rules, frozenset(kinds.split()), files, takeovers_max)
    world = start or first(len(files), generations, log)
    explored = explore(
        world._replace(disturbances=disturbances),
        model.steps,
        states_max=STATES_MAX,
        keep_edges=True,
        counts=lambda label: not label.startswith("!"),
    )
    return model, explored


def _holds(model: WorkersModel, explored: Explored[World], states_min: int) -> None:
    """No property is broken, and from everywhere every lane can be run again without any further disturbance."""
    assert explored.found is None, str(explored.found)
    assert len(explored.states) > states_min, "the model has lost most of its behaviour"
    stuck = explored.stuck(model.held)
    assert stuck is None, str(stuck)


WORLDS = {  # what happens besides starts: as often as it may; how many states there are at least
    "kill": 500,
    "kill leave": 1_000,
}
LARGE_WORLDS = {
    "kill coordinator": 5_000,
    "kill broken": 2_000,
    "kill early": 3_000,
    "kill clusters": 1_500,
    "kill freeze": 30_000,
    "kill freeze clusters": 60_000,
    "kill freeze early reply": 40_000,
    "kill freeze leave coordinator": 100_000,
}


@pytest.mark.parametrize(("kinds", "states_min"), WORLDS.items(), ids=WORLDS)
def test_two_workers_share_two_lanes(kinds: str, states_min: int) -> None:
    _holds(*_explore(kinds), states_min)


@pytest.mark.tier("full")
@pytest.mark.parametrize(("kinds", "states_min"), LARGE_WORLDS.items(), ids=LARGE_WORLDS)
def test_two_workers_share_two_lanes_and_wake_up_again(kinds: str, states_min: int) -> None:
    """With SIGSTOP and SIGCONT at any instant: at most two takeovers of a lane after each."""
    _holds(*_explore(kinds), states_min)


def test_two_workers_with_two_files_change_from_two_lanes_to_one() -> None:
    """One generation for the new file, whoever dies in between; the older file is followed by nobody any more."""
    _holds(*_explore("kill", files=OTHER, generations=2, disturbances=3), 1_000)


@pytest.mark.tier("full")
def test_two_workers_change_lanes_and_wake_up_again() -> None:
    _holds(*_explore("kill freeze", files=OTHER, generations=2, disturbances=budget(4, -1)), 10_000)
    _holds(*_explore("kill", files=OTHER, generations=2), 5_000)


def test_two_workers_with_the_same_new_file_propose_it_once() -> None:
    _holds(*_explore("kill", files=NEW, generations=2), 800)


@pytest.mark.tier("full")
def test_a_job_hands_the_flow_over_before_a_file_is_proposed() -> None:
    _holds(*_explore("kill", files=OTHER, generations=3, log=JOB), 5_000)


@pytest.mark.tier("long")
@pytest.mark.parametrize("files", [(0, 0, 0), (0, 1, 1)], ids=["same", "other"])
def test_three_workers(files: tuple[int, ...]) -> None:
    """Bounded: starts, kills and stops by SIGSTOP are counted."""
    generations = 1 + max(files)
    most = budget(4 - max(files), 5 - max(files))
    _holds(*_explore("kill freeze", files=files, generations=generations, disturbances=most), 20_000)


@pytest.mark.tier("long")
def test_everything_happens_to_two_workers() -> None:
    """Bounded, with all kinds of disturbances."""
    kinds = "kill freeze leave coordinator clusters broken reply early"
    _holds(*_explore(kinds, disturbances=budget(4, 6)), 20_000)


def _fails(kind: str, kinds: str, *left_out: str, **world: object) -> None:
    """Without these parts the explorer finds this, or that a lane can't be run any more."""
    rules = WorkerRules(**dict.fromkeys(left_out, True))
    model, explored = _explore(kinds, rules, **world)  # type: ignore[arg-type]
    found = explored.found or explored.stuck(model.held)
    assert found is not None, f"nothing breaks without {left_out}"
    assert found.kind == kind, str(found)


def test_without_a_proof_two_workers_fence_each_other_for_ever() -> None:
    """The one that was stopped doesn't know yet that it is no member."""
    _fails("duel", "freeze", "no_proof")


@pytest.mark.tier("full")
def test_a_proof_begun_before_the_last_doubt_is_none() -> None:
    _fails("duel", "freeze", "any_proof", disturbances=3)


@pytest.mark.tier("full")
def test_a_member_proves_nothing_of_a_lane_that_the_group_has_taken_away() -> None:
    """Unless the group's thread itself forbids what it has taken away: either is enough, both are done."""
    both = ("membership_is_enough", "permission_outlives_revoke")
    _fails("duel", "kill", *both)
    for one in both:
        _holds(*_explore("kill", WorkerRules(**{one: True})), 500)


def test_an_outgoing_lane_that_initialises_fences_its_successor() -> None:
    _fails("duel", "kill", "outgoing_initialises")


def test_a_lane_that_ends_with_the_membership_stops_copying_while_the_coordinator_is_down() -> None:
    _fails("copying stops", "coordinator", "lost_stops")


@pytest.mark.tier("full")
def test_an_assigned_lane_that_stays_ended_is_run_by_nobody() -> None:
    _fails("stuck", "kill freeze", "stays_ended", disturbances=3)


def test_a_worker_that_keeps_a_lane_that_it_can_not_run_keeps_it_from_all_others() -> None:
    _fails("stuck", "broken", "broken_stays")


def test_for_a_cause_in_the_clusters_one_worker_after_another_would_leave() -> None:
    _fails("everybody left", "clusters", "cluster_cause_leaves")


def test_an_early_lane_that_initialises_again_fences_for_ever() -> None:
    _fails("duel", "early", "early_again")


def test_lanes_opened_early_beside_others_take_over_what_runs() -> None:
    _fails("duel", "early", "early_beside_others", start=running(), takeovers_max=0)
    _holds(*_explore("early", start=running(), takeovers_max=0), 50)


@pytest.mark.tier("full")
def test_an_early_lane_that_does_not_check_the_generation_doubles_records() -> None:
    _fails("doubled", "kill early", "early_unchecked", files=OTHER, generations=2)


def test_files_that_are_proposed_whenever_another_is_open_take_turns() -> None:
    _fails("files take turns", "kill", "proposes_always", files=OTHER, generations=2)


def test_files_that_are_proposed_not_only_at_a_start_take_turns() -> None:
    _fails("files take turns", "", "proposes_any_time", files=OTHER, generations=2)


def test_a_worker_that_judges_once_proposes_a_file_again() -> None:
    _fails("two generations for one file", "", "decides_once", files=NEW, generations=3)


@pytest.mark.tier("full")
def test_a_worker_that_runs_its_own_file_leaves_partitions_to_nobody() -> None:
    _fails("stuck", "kill", "runs_own_file", files=OTHER, generations=2)


def test_a_file_that_replaces_any_generation_cuts_a_job_short() -> None:
    _fails("a job is cut short", "", "replaces_jobs", files=OTHER, generations=3, log=JOB)


@pytest.mark.tier("full")
def test_a_change_that_only_its_beginner_finishes_is_never_finished() -> None:
    _fails("stuck", "kill", "only_its_beginner_finishes", files=OTHER, generations=2)


def test_a_change_that_is_finished_otherwise_than_prepared_drops_a_file() -> None:
    _fails("a proposed file is dropped", "kill", "finishes_with_own_file", files=OTHER, generations=2)


@pytest.mark.tier("full")
def test_a_change_that_is_finished_without_its_checks_doubles_records() -> None:
    _fails("doubled", "kill freeze", "finishes_unfenced", files=OTHER, generations=2, disturbances=4)


def test_changers_that_do_not_wait_fence_each_other_for_ever() -> None:
    """Before either has written anything: so the wait begins with the fencing, not with what is half done."""
    _fails("duel of changers", "", "fenced_changer_insists", files=NEW, generations=2)


@pytest.mark.tier("full")
def test_a_half_done_change_may_be_finished_at_once_only_by_those_who_wait_when_fenced() -> None:
    world = {"files": OTHER, "generations": 2}
    _fails("duel of changers", "kill", "finishes_at_once", "fenced_changer_insists", **world)
    _holds(*_explore("", WorkerRules(finishes_at_once=True), files=OTHER, generations=2), 300)


NOT_NEEDED = {  # nothing of the above rests on these; each has another reason
    "ignore_member_id": "kill freeze",  # `lost` comes before another member id in the flow's queue, and is a doubt
    "outgoing_has_no_end": "kill leave",  # its successor fences it, and so does the next generation
}


@pytest.mark.tier("full")
@pytest.mark.parametrize(("left_out", "kinds"), NOT_NEEDED.items(), ids=NOT_NEEDED)
def test_what_nothing_rests_on(left_out: str, kinds: str) -> None:
    most = 3 if "freeze" in kinds else -1
    _holds(*_explore(kinds, WorkerRules(**{left_out: True}), disturbances=most), 500)


def test_every_switch_is_used() -> None:
    """A rule that no test leaves out proves nothing."""
    text = Path(__file__).read_text()
    assert [name for name in WorkerRules.__dataclass_fields__ if not re.search(rf"\b{name}\b", text)] == []
