"""A worker as a member of its group: when a lane may initialise its id, and who runs it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicator.workers.lane_stages import LaneEffect, LaneEvent, LaneStage
from replicator.workers.membership import (
    AWAY_S,
    LEAVING_S,
    OUTGOING_S,
    PROVE_AGAIN_S,
    RESTART_S,
    LaneAction,
    Membership,
    MembershipAction,
    WorkerAction,
)
from replicator.workers.proofs import ProofAnswer
from replicator.workers.worker_stages import WorkerEffect, WorkerStage

START, PROVE, FENCE, STOP = LaneEffect.START, LaneEffect.PROVE, LaneEffect.FENCE, LaneEffect.STOP
LAST = 0.999


def member(lanes: int = 1) -> Membership:
    made = Membership(lanes, jitter=lambda: LAST)
    assert made.subscribe(0.0) == [WorkerAction(WorkerEffect.SUBSCRIBE)]
    return made


def answer(number: int, error: str = "", *, lane: int = 0, after: str = "m", held: bool = True) -> ProofAnswer:
    return ProofAnswer(lane=lane, number=number, error=error, member_before="m", member_after=after, in_assignment=held)


def proving(made: Membership, lane: int = 0, now_s: float = 0.0) -> int:
    """The number of the proof that the lane waits for."""
    asked = made.lane_told(lane, LaneEvent.CONNECTED, now_s)
    assert [action.effect for action in asked] == [PROVE]
    assert isinstance(asked[0], LaneAction)
    return asked[0].proof


def running(lanes: int = 1) -> Membership:
    """A worker that runs all lanes."""
    made = member(lanes)
    made.assigned(range(lanes), 0.0)
    for lane in range(lanes):
        made.proof_answered(answer(proving(made, lane), lane=lane), 0.0)
        made.lane_told(lane, LaneEvent.INITIALISED, 0.0)
    assert made.all_held
    return made


def test_it_holds_what_it_shall_only_while_it_has_an_assignment() -> None:
    made = member(2)
    assert not made.all_held, "the group has said nothing yet"
    made.assigned((), 0.0)
    assert made.all_held, "others have the lanes"
    made = running()
    made.lost(1.0)
    assert not made.all_held
    made.lane_told(0, LaneEvent.FAILED, 2.0)
    assert made.lane_stage(0) is LaneStage.UNASSIGNED
    assert not made.all_held, "it has no lanes, and nobody else is known to"
    made.assigned((), 3.0)
    assert made.all_held
    made.stop(4.0)
    assert not made.all_held


def test_a_lane_is_proved_before_it_initialises() -> None:
    made = member()
    assert made.assigned({0}, 0.0) == [LaneAction(0, START)]
    assert not made.may_initialise(0)
    number = proving(made)
    assert not made.may_initialise(0)
    assert made.proof_answered(answer(number), 1.0) == [LaneAction(0, FENCE)]
    assert made.may_initialise(0)
    assert made.lane_told(0, LaneEvent.INITIALISED, 1.0) == []
    assert made.lane_stage(0) is LaneStage.RUNNING
    assert not made.may_initialise(0)


@pytest.mark.parametrize(
    "refused",
    [
        {"error": "ILLEGAL_GENERATION"},
        {"error": "REBALANCE_IN_PROGRESS"},
        {"error": "REQUEST_TIMED_OUT"},
        {"after": "n"},
        {"after": ""},
        {"held": False},
    ],
    ids=str,
)
def test_what_proves_nothing_is_asked_again(refused: dict[str, object]) -> None:
    made = member()
    made.assigned({0}, 0.0)
    number = proving(made)
    assert made.proof_answered(answer(number, **refused), 1.0) == []  # type: ignore[arg-type]
    assert made.due_s == 1.0 + PROVE_AGAIN_S
    again = made.tick(1.0 + PROVE_AGAIN_S)
    assert again == [LaneAction(0, PROVE, number + 1)]
    assert made.proof_answered(answer(number), 2.0) == [], "of the former proof"
    assert made.proof_answered(answer(number + 1), 2.0) == [LaneAction(0, FENCE)]


def test_a_proof_that_was_begun_before_a_doubt_proves_nothing() -> None:
    made = member()
    made.assigned({0}, 0.0)
    first = proving(made)
    made.lost(0.0)
    made.lane_told(0, LaneEvent.STOPPED, 0.0)
    made.assigned({0}, 0.0)
    assert made.proof_answered(answer(first), 0.0) == []
    second = proving(made)
    assert made.proof_answered(answer(first), 0.0) == []
    again = made.member_changed(0.0)
    assert again == [LaneAction(0, PROVE, second + 1)]
    assert made.proof_answered(answer(second), 0.0) == []
    assert not made.may_initialise(0)


def test_an_answer_that_comes_after_its_proof_was_given_up_says_nothing() -> None:
    """A coordinator that was restarted accepts what was sent to it half a minute before; another one knows nobody."""
    made = member()
    made.assigned({0}, 0.0)
    first = proving(made)
    made.proof_answered(answer(first, "REQUEST_TIMED_OUT"), 5.0)
    assert made.proof_answered(answer(first), 5.05) == []
    assert not made.may_initialise(0)
    assert made.tick(6.0) == [LaneAction(0, PROVE, first + 1)]
    made.lost(6.0)
    made.lane_told(0, LaneEvent.STOPPED, 6.0)
    made.assigned({0}, 7.0)
    assert made.proof_answered(answer(first + 1, "UNKNOWN_MEMBER_ID"), 7.0) == []
    assert made.lane_stage(0) is LaneStage.CONNECTING, "it is the former member that is unknown"


def test_without_a_member_id_nothing_is_proved() -> None:
    made = member()
    made.assigned({0}, 0.0)
    nobody = ProofAnswer(lane=0, number=proving(made), error="", member_before="", member_after="", in_assignment=True)
    assert made.proof_answered(nobody, 0.0) == []
    assert not made.may_initialise(0)


def test_a_doubt_takes_a_permission_back() -> None:
    made = member()
    made.assigned({0}, 0.0)
    made.proof_answered(answer(proving(made)), 0.0)
    assert made.may_initialise(0)
    assert [action.effect for action in made.member_changed(0.0)] == [PROVE]
    assert not made.may_initialise(0)


@pytest.mark.parametrize("error", ["UNKNOWN_MEMBER_ID", "FENCED_INSTANCE_ID"])
def test_no_member_any_more_means_that_all_lanes_are_lost(error: str) -> None:
    made = running(2)
    made.lane_told(0, LaneEvent.FENCED, 0.0)
    assert made.tick(RESTART_S) == [LaneAction(0, START)]
    assert made.proof_answered(answer(proving(made), error), 1.0) == [LaneAction(0, STOP)]
    assert made.lane_stage(1) is LaneStage.DETACHED


def test_a_fenced_lane_proves_before_it_starts_again() -> None:
    made = running()
    assert made.lane_told(0, LaneEvent.FENCED, 0.0) == []
    assert made.due_s is not None
    assert RESTART_S / 2 < made.due_s <= RESTART_S
    assert made.tick(made.due_s) == [LaneAction(0, START)]
    assert not made.may_initialise(0)
    assert proving(made) > 1


def test_a_series_of_failures_waits_longer_until_it_went_well() -> None:
    made, waits = running(), []
    for _ in range(3):
        made.lane_told(0, LaneEvent.FAILED, 0.0)
        waits.append(made.due_s)
        made.tick(10.0)
    assert waits == sorted(set(waits))  # type: ignore[type-var]
    made.went_well(0)
    made.lane_told(0, LaneEvent.FAILED, 0.0)
    assert made.due_s == waits[0]


def test_a_revoked_lane_goes_on_until_it_is_fenced_or_its_time_is_over() -> None:
    made = running()
    assert made.revoked([0], 5.0) == []
    assert made.lane_stage(0).copies
    assert made.due_s == 5.0 + OUTGOING_S
    assert made.tick(5.0 + OUTGOING_S) == [LaneAction(0, STOP)]
    made = running()
    made.revoked([0], 5.0)
    assert made.lane_told(0, LaneEvent.FENCED, 6.0) == []
    assert made.lane_stage(0) is LaneStage.UNASSIGNED
    assert made.due_s is None


def test_a_lost_lane_goes_on_for_as_long_as_no_assignment_says_otherwise() -> None:
    made = running()
    assert made.lost(5.0) == []
    assert made.lane_stage(0).copies
    assert made.due_s is None
    assert made.assigned([], 50.0) == []
    assert made.due_s == 50.0 + OUTGOING_S
    assert made.lost(51.0) == [], "without a member's knowledge the time is not counted"
    assert made.due_s is None
    assert made.assigned([0], 60.0) == [], "it goes on as it is"
    assert made.lane_stage(0) is LaneStage.RUNNING


def test_a_lane_that_was_taken_away_never_initialises_again() -> None:
    for lost in (False, True):
        made = running()
        if lost:
            made.lost(0.0)
        else:
            made.revoked([0], 0.0)
        assert made.lane_told(0, LaneEvent.CONNECTED, 0.0) == [LaneAction(0, STOP)]
        assert not made.may_initialise(0)


def test_early_lanes_initialise_once_without_a_proof() -> None:
    made = member(2)
    assert made.open_early(0.0) == [LaneAction(0, START), LaneAction(1, START)]
    assert made.lane_told(0, LaneEvent.CONNECTED, 0.0) == [LaneAction(0, FENCE)]
    assert made.may_initialise(0)
    made.lane_told(0, LaneEvent.INITIALISED, 0.0)
    assert made.lane_stage(0) is LaneStage.DETACHED
    assert made.lane_told(0, LaneEvent.CONNECTED, 0.0) == [LaneAction(0, STOP)], "not a second time"
    assert made.assigned([0, 1], 3.0) == [], "lane 0 ends first; lane 1 connects already"
    assert made.lane_told(0, LaneEvent.STOPPED, 3.0) == [LaneAction(0, START)]
    assert [action.effect for action in made.lane_told(1, LaneEvent.CONNECTED, 3.0)] == [PROVE]


def test_early_lanes_that_others_get_go_on_until_they_are_fenced() -> None:
    made = member(2)
    made.open_early(0.0)
    for lane in (0, 1):
        made.lane_told(lane, LaneEvent.CONNECTED, 0.0)
        made.lane_told(lane, LaneEvent.INITIALISED, 0.0)
    assert made.assigned([0], 3.0) == []
    assert (made.lane_stage(0), made.lane_stage(1)) == (LaneStage.RUNNING, LaneStage.OUTGOING)


def test_a_cause_of_this_process_leaves_the_group_and_comes_back_later() -> None:
    made = running(2)
    assert made.lane_told(0, LaneEvent.BROKEN, 0.0) == [WorkerAction(WorkerEffect.UNSUBSCRIBE)]
    assert made.stage is WorkerStage.AWAY
    assert made.lane_stage(1) is LaneStage.DETACHED, "it goes on until somebody fences it"
    assert made.assigned([0, 1], 0.1) == [], "what was under way when it left"
    assert made.due_s is not None
    assert AWAY_S / 2 < made.due_s <= AWAY_S
    assert made.tick(made.due_s) == [WorkerAction(WorkerEffect.SUBSCRIBE)]
    assert made.assigned([0, 1], 9.0) == [LaneAction(0, START)]
    assert made.lane_stage(1) is LaneStage.RUNNING


def test_a_cause_in_the_clusters_leaves_nothing() -> None:
    made = running(2)
    assert made.lane_told(0, LaneEvent.FAILED, 0.0) == []
    assert made.stage is WorkerStage.SUBSCRIBED
    assert made.lane_stage(0) is LaneStage.BACKING_OFF


def test_a_stop_waits_for_successors_but_not_for_long() -> None:
    made = running(2)
    made.revoked([0], 0.0)
    assert made.stop(1.0) == [WorkerAction(WorkerEffect.UNSUBSCRIBE)]
    assert made.due_s == 1.0 + LEAVING_S
    assert made.lane_told(1, LaneEvent.FENCED, 2.0) == []
    assert made.tick(1.0 + LEAVING_S) == [LaneAction(0, STOP)], "though it was revoked before"
    assert made.lane_told(0, LaneEvent.STOPPED, 7.0) == [WorkerAction(WorkerEffect.FINISHED)]
    assert made.stage is WorkerStage.GONE


def test_a_stop_of_the_only_worker_waits_for_nobody() -> None:
    made = running()
    made.stop(1.0, alone=True)
    assert made.tick(1.0) == [LaneAction(0, STOP)]


def test_a_stop_before_anything_runs_is_done_at_once() -> None:
    made = member()
    assert made.stop(0.0) == [WorkerAction(WorkerEffect.UNSUBSCRIBE), WorkerAction(WorkerEffect.FINISHED)]


def test_standing_by_runs_nothing_and_goes_on_later() -> None:
    made = running()
    assert made.stand_by("job", 0.0) == [WorkerAction(WorkerEffect.UNSUBSCRIBE), LaneAction(0, STOP)]
    assert made.standing_by == "job"
    assert made.subscribe(1.0) == [WorkerAction(WorkerEffect.SUBSCRIBE)]
    assert made.standing_by == ""
    assert made.assigned([0], 2.0) == []
    assert made.lane_told(0, LaneEvent.STOPPED, 2.0) == [LaneAction(0, START)]


def test_another_generation_starts_each_assigned_lane_anew() -> None:
    made = running(2)
    made.revoked([1], 0.0)
    assert made.changed(0.0) == [LaneAction(0, STOP), LaneAction(1, STOP)]
    assert made.lane_told(0, LaneEvent.STOPPED, 1.0) == [LaneAction(0, START)]
    assert made.lane_told(1, LaneEvent.STOPPED, 1.0) == []


EVENTS = st.one_of(
    st.tuples(st.just("assigned"), st.frozensets(st.integers(0, 1))),
    st.tuples(st.just("revoked"), st.frozensets(st.integers(0, 1))),
    st.tuples(st.sampled_from(["lost", "doubt", "stop", "stand by", "subscribe", "early", "changed"]), st.none()),
    st.tuples(st.just("tick"), st.floats(0, 100)),
    st.tuples(st.just("answer"), st.tuples(st.integers(0, 1), st.sampled_from(["", "UNKNOWN_MEMBER_ID", "X"]))),
    st.tuples(
        st.just("lane"),
        st.tuples(
            st.integers(0, 1),
            st.sampled_from(
                [
                    LaneEvent.CONNECTED,
                    LaneEvent.INITIALISED,
                    LaneEvent.FENCED,
                    LaneEvent.FAILED,
                    LaneEvent.BROKEN,
                    LaneEvent.STOPPED,
                ]
            ),
        ),
    ),
)


@given(st.lists(EVENTS, max_size=40))
def test_whatever_happens_a_lane_initialises_by_a_proof_after_the_last_doubt(events: list[tuple[str, object]]) -> None:
    """And once it was told to stop, or is assigned and has ended, what must follow does."""
    made, now_s, doubted, begun = member(2), 0.0, [0, 0], [dict[int, int](), dict[int, int]()]
    early = [False, False]
    number = [0, 0]
    for step, (what, detail) in enumerate(events, 1):
        actions = _do(made, what, detail, now_s, number)
        if what == "tick":
            assert isinstance(detail, float)
            now_s += detail
            actions = made.tick(now_s)
        if what in ("lost", "doubt", "stop", "stand by", "changed", "revoked"):
            doubted = (
                [step, step]
                if not isinstance(detail, frozenset)
                else [step if lane in detail else doubted[lane] for lane in (0, 1)]
            )
        for action in actions:
            if not isinstance(action, LaneAction):
                continue
            lane = action.lane
            if action.effect is PROVE:
                number[lane], begun[lane][action.proof] = action.proof, step
            elif action.effect is FENCE:
                proved = what == "answer" and begun[lane][number[lane]] >= doubted[lane]
                assert proved or (what == "lane" and not early[lane]), (step, what)
                early[lane] = early[lane] or not proved
            elif action.effect is START and made.lane_stage(lane) is LaneStage.EARLY:
                early[lane] = False
        stages = [made.lane_stage(lane) for lane in (0, 1)]
        if LaneStage.BACKING_OFF in stages or LaneStage.OUTGOING in stages:
            assert made.due_s is not None
        if made.stage in (WorkerStage.AWAY, WorkerStage.STANDING_BY, WorkerStage.LEAVING, WorkerStage.GONE):
            assert not any(stage.assigned for stage in stages)


def _do(made: Membership, what: str, detail: object, now_s: float, number: list[int]) -> list[MembershipAction]:
    if isinstance(detail, frozenset):
        return made.assigned(detail, now_s) if what == "assigned" else made.revoked(detail, now_s)
    if what == "answer" and isinstance(detail, tuple):
        lane, error = detail
        return made.proof_answered(answer(number[lane], error, lane=lane), now_s) if number[lane] else []
    if what == "lane" and isinstance(detail, tuple):
        lane, event = detail
        return made.lane_told(lane, event, now_s)
    if what == "stand by":
        return made.stand_by("job", now_s)
    calls: dict[str, Callable[[float], list[MembershipAction]]] = {
        "lost": made.lost,
        "doubt": made.member_changed,
        "stop": made.stop,
        "subscribe": made.subscribe,
        "early": made.open_early,
        "changed": made.changed,
    }
    return calls[what](now_s) if what in calls else []
