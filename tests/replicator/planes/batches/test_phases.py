"""The table of a producer session, walked whole."""

from __future__ import annotations

import pytest

from replicator.planes.batches.phases import (
    IN_TRANSACTION,
    MOVES,
    WISHES,
    IllegalTxnStep,
    Move,
    TxnAction,
    TxnEvent,
    TxnPhase,
    move,
)

pytestmark = pytest.mark.tier("default")

P, E, A = TxnPhase, TxnEvent, TxnAction


def reached(without: set[TxnEvent], start: TxnPhase = P.NEW) -> set[TxnPhase]:
    """All phases on ways that avoid some events."""
    found, new = {start}, [start]
    while new:
        here = new.pop()
        for event in set(E) - without:
            made = MOVES[here, event]
            if made.action is not A.REFUSE and made.phase not in found:
                found.add(made.phase)
                new.append(made.phase)
    return found


def test_every_event_is_decided_in_every_phase() -> None:
    assert MOVES.keys() == {(phase, event) for phase in P for event in E}
    for (phase, event), made in MOVES.items():
        if made.action is A.REFUSE:
            assert made.phase is phase
            with pytest.raises(IllegalTxnStep, match=event.value):
                move(phase, event)
        else:
            assert move(phase, event) == made
        if made.action is A.NOTHING and made.phase is phase:  # passed over: an answer that is late, or another write
            assert event in (E.FAILURE, E.LOSS, E.ALL_STORED) or phase is P.OVER or (phase, event) == (P.OPEN, E.WRITE)


def test_every_phase_can_be_reached_and_left_but_over() -> None:
    assert reached(set()) == set(P)
    for phase in set(P) - {P.OVER}:
        assert P.OVER in reached(set(), phase)
    assert reached(set(), P.OVER) == {P.OVER}
    assert {MOVES[P.OVER, event].action for event in WISHES} == {A.REFUSE}


def test_records_are_committed_with_positions_only() -> None:
    assert P.COMMITTING not in reached({E.ALL_STORED})
    assert [phase for phase in P if MOVES[phase, E.COMMIT].action is not A.REFUSE] == [P.STORED]


def test_after_a_failure_there_is_only_an_abort() -> None:
    assert reached({E.ABORT, E.ABORT_UNSENT, E.ABORT_UNSETTLED, E.LOSS}, P.FAILED) == {P.FAILED}
    for phase in IN_TRANSACTION:
        assert MOVES[phase, E.FAILURE] == Move(P.FAILED, A.TELL_FAILURE)


def test_once_the_end_is_sent_its_answer_alone_counts() -> None:
    for phase in (P.COMMITTING, P.ABORTING):
        for event in (E.FAILURE, E.LOSS, E.ALL_STORED):
            assert MOVES[phase, event] == Move(phase, A.NOTHING)
        assert MOVES[phase, E.END_LOSS] == Move(P.OVER, A.TELL_OVER)
        assert {MOVES[phase, event].action for event in WISHES} == {A.REFUSE}
