"""A lane that runs without a proof is proved once for others to see, and again after another assignment."""

from __future__ import annotations

from replicator.flow.shown_lanes import ShownLanes
from replicator.workers.proofs import ProofAnswer


def answer(lane: int, number: int, error: str = "") -> ProofAnswer:
    return ProofAnswer(lane=lane, number=number, error=error, member_before="m", member_after="m", in_assignment=True)


def test_each_lane_is_proved_once() -> None:
    shown = ShownLanes()
    asked = dict(shown.to_show([0, 1]))
    assert asked.keys() == {0, 1}
    assert len(set(asked.values())) == 2
    assert list(shown.to_show([0, 1])) == []
    for lane, number in asked.items():
        shown.answered(answer(lane, number))
    shown.try_again()
    assert list(shown.to_show([0, 1])) == []


def test_what_was_refused_is_asked_again_after_another_assignment() -> None:
    shown = ShownLanes()
    ((lane, number),) = shown.to_show([0])
    shown.answered(answer(lane, number, "REBALANCE_IN_PROGRESS"))
    assert list(shown.to_show([0])) == []
    shown.try_again()
    assert [lane for lane, _ in shown.to_show([0])] == [0]


def test_a_proof_for_the_fence_shows_the_lane_too_until_it_begins_anew() -> None:
    shown = ShownLanes()
    shown.started(0)
    shown.answered(answer(0, 7))
    assert list(shown.to_show([0])) == []
    shown.started(0)
    assert [lane for lane, _ in shown.to_show([0])] == [0]
