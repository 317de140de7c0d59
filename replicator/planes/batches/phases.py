"""The phases of a transactional producer session, and what may happen in each: one table. Pure data.

    new → initializing → ready → open → storing → stored → committing → ready
                                   any of these → failed → aborting → ready
                                                             any → over

Invariants that the table holds, each with a test that breaks it:
- Records are committed only with positions: COMMIT follows OFFSETS_STORED.
- After a failure there is no way to a commit but through an abort.
- After EndTxn was sent nothing but its answer counts: what is late says nothing of this transaction's outcome.
- `over` is left by nothing: only another session begins again (invariant 6).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple


class TxnPhase(Enum):
    """What a session is doing."""

    NEW = "new"
    INITIALIZING = "initializing"
    READY = "ready"
    OPEN = "open"
    STORING = "storing"
    STORED = "stored"
    COMMITTING = "committing"
    FAILED = "failed"
    ABORTING = "aborting"
    OVER = "over"


class TxnEvent(Enum):
    """What happens to a session: what the plane wants, then what answers say."""

    START = "start"
    WRITE = "write"
    STORE = "store"
    COMMIT = "commit"
    ABORT = "abort"
    """Something of the transaction may be known to its coordinator."""
    ABORT_UNSENT = "abort unsent"
    """Nothing of it was sent."""
    ABORT_UNSETTLED = "abort unsettled"
    """In the first protocol, while something that was sent may still be written: it would come under an epoch that goes
    on, behind the marker."""
    INITIALIZED = "initialized"
    ALL_STORED = "all stored"
    ENDED = "ended"
    FAILURE = "failure"
    """Of a write: the transaction can't be committed, but aborted."""
    LOSS = "loss"
    """Of a write: nothing more can be done in this session."""
    END_FAILURE = "end failure"
    """Of InitProducerId or EndTxn: it has certainly done nothing, and never will."""
    END_LOSS = "end loss"
    """Of InitProducerId or EndTxn: its outcome is unknown, or the session is lost."""


class TxnAction(Enum):
    """What is done with a move."""

    NOTHING = "nothing"
    SEND_INIT = "send InitProducerId"
    ADOPT = "take the producer id and epoch of the answer"
    SEND_OFFSETS = "send the offsets"
    SEND_COMMIT = "send EndTxn, commit"
    SEND_ABORT = "send EndTxn, abort"
    FORGET = "forget what was not sent"
    TELL_FAILURE = "tell that it must be aborted"
    TELL_OVER = "tell that the session is over"
    REFUSE = "raise: whoever calls has a bug"


class Move(NamedTuple):
    """Where an event leads, and what is done."""

    phase: TxnPhase
    action: TxnAction


_P, _E, _A = TxnPhase, TxnEvent, TxnAction
IN_TRANSACTION = (_P.OPEN, _P.STORING, _P.STORED)
WISHES = (_E.START, _E.WRITE, _E.STORE, _E.COMMIT, _E.ABORT, _E.ABORT_UNSENT, _E.ABORT_UNSETTLED)

_MOVES: dict[tuple[TxnPhase, TxnEvent], Move] = {
    (_P.NEW, _E.START): Move(_P.INITIALIZING, _A.SEND_INIT),
    (_P.INITIALIZING, _E.INITIALIZED): Move(_P.READY, _A.ADOPT),
    (_P.INITIALIZING, _E.END_FAILURE): Move(_P.OVER, _A.TELL_OVER),
    (_P.READY, _E.WRITE): Move(_P.OPEN, _A.NOTHING),
    (_P.OPEN, _E.WRITE): Move(_P.OPEN, _A.NOTHING),
    (_P.READY, _E.STORE): Move(_P.STORING, _A.SEND_OFFSETS),
    (_P.OPEN, _E.STORE): Move(_P.STORING, _A.SEND_OFFSETS),
    (_P.STORING, _E.ALL_STORED): Move(_P.STORED, _A.NOTHING),
    (_P.STORED, _E.COMMIT): Move(_P.COMMITTING, _A.SEND_COMMIT),
    (_P.COMMITTING, _E.ENDED): Move(_P.READY, _A.ADOPT),
    (_P.COMMITTING, _E.END_FAILURE): Move(_P.FAILED, _A.TELL_FAILURE),
    (_P.READY, _E.ABORT_UNSENT): Move(_P.READY, _A.FORGET),
    (_P.FAILED, _E.ABORT): Move(_P.ABORTING, _A.SEND_ABORT),
    (_P.FAILED, _E.ABORT_UNSENT): Move(_P.READY, _A.FORGET),
    (_P.FAILED, _E.ABORT_UNSETTLED): Move(_P.OVER, _A.TELL_OVER),
    (_P.ABORTING, _E.ENDED): Move(_P.READY, _A.ADOPT),
    (_P.ABORTING, _E.END_FAILURE): Move(_P.OVER, _A.TELL_OVER),
}
for _phase in IN_TRANSACTION:
    _MOVES[_phase, _E.ABORT] = Move(_P.ABORTING, _A.SEND_ABORT)
    _MOVES[_phase, _E.ABORT_UNSENT] = Move(_P.READY, _A.FORGET)
    _MOVES[_phase, _E.ABORT_UNSETTLED] = Move(_P.OVER, _A.TELL_OVER)
    _MOVES[_phase, _E.FAILURE] = Move(_P.FAILED, _A.TELL_FAILURE)
for _phase in (*IN_TRANSACTION, _P.FAILED):
    _MOVES[_phase, _E.LOSS] = Move(_P.OVER, _A.TELL_OVER)
for _phase in (_P.INITIALIZING, _P.COMMITTING, _P.ABORTING):
    _MOVES[_phase, _E.END_LOSS] = Move(_P.OVER, _A.TELL_OVER)
for _phase in _P:  # what comes late, and counts no more
    for _event in (_E.FAILURE, _E.LOSS, _E.ALL_STORED):
        if _phase not in (_P.NEW, _P.INITIALIZING):
            _MOVES.setdefault((_phase, _event), Move(_phase, _A.NOTHING))
for _event in _E:
    if _event not in WISHES:
        _MOVES.setdefault((_P.OVER, _event), Move(_P.OVER, _A.NOTHING))

MOVES: Mapping[tuple[TxnPhase, TxnEvent], Move] = {
    (phase, event): _MOVES.get((phase, event), Move(phase, _A.REFUSE)) for phase in _P for event in _E
}
"""Every phase with every event."""


class IllegalTxnStep(Exception):
    """An event that the table refuses in this phase: a bug of ours, never a broker's fault."""


def move(phase: TxnPhase, event: TxnEvent) -> Move:
    """Return where an event leads. Raises IllegalTxnStep."""
    found = MOVES[phase, event]
    if found.action is _A.REFUSE:
        raise IllegalTxnStep(f"{event.value} while {phase.value}")
    return found
