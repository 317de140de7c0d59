"""What each event does to one lane of a worker, as one table of stages and events. Pure; applied by `membership`.

The group only suggests who runs a lane: safety stays with the transactional id (invariants 1 and 2). These stages keep
workers from fencing each other for ever, and each lane with somebody who runs it. `tests/model/workers` explores them.

- A lane initialises its transactional id, which fences whoever has it, only in STARTING. STARTING is entered from
  PROVING alone, by a proof that was begun after the last doubt, or from EARLY, where the whole group was found empty.
- Once initialised, a lane that the group takes away goes on until it is fenced (OUTGOING, DETACHED): its successor
  needs no pause, and a coordinator that is down stops no copying. It never initialises again.
- A lane that is assigned is running, or on its way there: whatever ends it, it is started again.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto


class LaneStage(Enum):
    """Where a lane stands in this worker."""

    UNASSIGNED = auto()
    """It isn't ours, and nothing of it runs."""
    CONNECTING = auto()
    """Ours. Its clients connect."""
    PROVING = auto()
    """Ours. It is connected, and waits until the membership is proved."""
    STARTING = auto()
    """Ours and proved: it may initialise its transactional id, once."""
    RUNNING = auto()
    """Ours. It has initialised its id: it starts, and copies."""
    BACKING_OFF = auto()
    """Ours. It has ended, and is started again when its back-off is over."""
    OUTGOING = auto()
    """Given to another worker. It goes on until that one fences it, or its time is over."""
    DETACHED = auto()
    """The group hasn't said who runs it. It goes on until it is fenced, or an assignment says."""
    EARLY = auto()
    """The group was found empty. Its clients connect before there is an assignment."""
    EARLY_STARTING = auto()
    """The same; it may initialise its transactional id, once."""
    STOPPING = auto()
    """Not ours. It was asked to stop, and has not ended yet."""
    RESTARTING = auto()
    """Ours. It was asked to stop, has not ended yet, and starts again then."""

    @property
    def assigned(self) -> bool:
        """Whether the group has given it to this worker."""
        return self in ASSIGNED

    @property
    def copies(self) -> bool:
        """Whether it has initialised its id, and nobody has asked it to stop."""
        return self in (LaneStage.RUNNING, LaneStage.OUTGOING, LaneStage.DETACHED)

    @property
    def may_initialise(self) -> bool:
        """Whether it may initialise its transactional id now. A lane asks right before it does."""
        return self in (LaneStage.STARTING, LaneStage.EARLY_STARTING)


ASSIGNED = frozenset(
    {
        LaneStage.CONNECTING,
        LaneStage.PROVING,
        LaneStage.STARTING,
        LaneStage.RUNNING,
        LaneStage.BACKING_OFF,
        LaneStage.RESTARTING,
    }
)


class LaneEvent(Enum):
    """What happens to a lane. The first four are the group's, the next three the proof's, the next six the lane's own,
    the others the worker's."""

    ASSIGNED = auto()
    """The group gives it to this worker."""
    REVOKED = auto()
    """The group gives it to another worker, or this one leaves the group to stop."""
    LOST = auto()
    """This worker is a member no more: expelled, without a coordinator, or by leaving for a while."""
    LEFT_OUT = auto()
    """This worker has a new assignment, and it is not in it."""
    PROVED = auto()
    """The proof was accepted, and begun after the last doubt."""
    UNPROVED = auto()
    """It was refused for a cause that passes, or has timed out."""
    DOUBTED = auto()
    """The member id is another one: what was asked under the former one proves nothing."""
    CONNECTED = auto()
    """Its clients are connected: it wants to initialise its id."""
    INITIALISED = auto()
    """It has initialised its id."""
    FENCED = auto()
    """It has ended: somebody else has initialised its id."""
    FAILED = auto()
    """It has ended by something that every worker would meet: a cluster is away, a right is missing."""
    BROKEN = auto()
    """It has ended by something of this process alone: another worker could run it."""
    STOPPED = auto()
    """It has ended without an error."""
    EARLY = auto()
    """The group was found empty, or with dead processes of this host only."""
    CHANGED = auto()
    """The flow has another generation, or other settings."""
    STOP = auto()
    """This worker shall run nothing of the flow for now."""
    DUE = auto()
    """What its stage waits for is over: a back-off, the time of an outgoing lane."""


class LaneEffect(Enum):
    """What a transition brings about besides the new stage."""

    START = auto()
    """Begin a producer session: connect its clients."""
    PROVE = auto()
    """Begin a proof. One that is under way counts no more."""
    PROVE_LATER = auto()
    """The same after a short pause."""
    FENCE = auto()
    """Let the lane initialise its transactional id, once."""
    STOP = auto()
    """Ask it to end; before it initialises its id, if it has not done so."""
    BACK_OFF = auto()
    """DUE comes when its next back-off is over."""
    LIMIT = auto()
    """DUE comes when the time of an outgoing lane is over."""
    LEAVE = auto()
    """Leave the group, with back-off: another worker can run it."""


_S, _E, _F = LaneStage, LaneEvent, LaneEffect
Transition = tuple[LaneStage, tuple[LaneEffect, ...]]


def _row(stays: LaneStage, changes: Mapping[LaneEvent, Transition]) -> Mapping[LaneEvent, Transition]:
    return {event: changes.get(event, (stays, ())) for event in LaneEvent}


_STOP: Transition = (_S.STOPPING, (_F.STOP,))
_AGAIN: Transition = (_S.BACKING_OFF, (_F.BACK_OFF,))
_START: Transition = (_S.CONNECTING, (_F.START,))
_PROVE: Transition = (_S.PROVING, (_F.PROVE,))
_LEAVE: Transition = (_S.UNASSIGNED, (_F.LEAVE,))
_OVER: Transition = (_S.UNASSIGNED, ())
_ENDS = (_E.FENCED, _E.FAILED, _E.STOPPED)
_UNINITIALISED = {  # ours, with a session that has not initialised its id
    **dict.fromkeys((_E.REVOKED, _E.LOST, _E.LEFT_OUT, _E.STOP), _STOP),
    **dict.fromkeys(_ENDS, _AGAIN),
    _E.BROKEN: _LEAVE,
    _E.CHANGED: (_S.RESTARTING, (_F.STOP,)),
    _E.CONNECTED: _PROVE,
    _E.INITIALISED: (_S.RUNNING, ()),
}
_UNOWNED = {  # not ours, but copying: it may never initialise its id again, so its end is the end
    **dict.fromkeys((_E.CONNECTED, _E.CHANGED, _E.STOP), _STOP),
    **dict.fromkeys((*_ENDS, _E.BROKEN), _OVER),
    _E.ASSIGNED: (_S.RUNNING, ()),
}

TRANSITIONS: Mapping[LaneStage, Mapping[LaneEvent, Transition]] = {
    _S.UNASSIGNED: _row(_S.UNASSIGNED, {_E.ASSIGNED: _START, _E.EARLY: (_S.EARLY, (_F.START,))}),
    _S.CONNECTING: _row(_S.CONNECTING, _UNINITIALISED),
    _S.PROVING: _row(
        _S.PROVING,
        {
            **_UNINITIALISED,
            _E.PROVED: (_S.STARTING, (_F.FENCE,)),
            _E.UNPROVED: (_S.PROVING, (_F.PROVE_LATER,)),
            _E.DOUBTED: _PROVE,
            _E.DUE: _PROVE,
        },
    ),
    _S.STARTING: _row(_S.STARTING, {**_UNINITIALISED, _E.DOUBTED: _PROVE}),
    _S.RUNNING: _row(
        _S.RUNNING,
        {
            **_UNINITIALISED,
            **dict.fromkeys((_E.REVOKED, _E.LEFT_OUT), (_S.OUTGOING, (_F.LIMIT,))),
            _E.LOST: (_S.DETACHED, ()),
            _E.STOP: _STOP,
        },
    ),
    _S.BACKING_OFF: _row(
        _S.BACKING_OFF,
        {
            **dict.fromkeys((_E.REVOKED, _E.LOST, _E.LEFT_OUT, _E.STOP), _OVER),
            **dict.fromkeys((_E.DUE, _E.CHANGED), _START),
        },
    ),
    _S.OUTGOING: _row(_S.OUTGOING, {**_UNOWNED, _E.LOST: (_S.DETACHED, ()), _E.DUE: _STOP}),
    _S.DETACHED: _row(
        _S.DETACHED, {**_UNOWNED, **dict.fromkeys((_E.REVOKED, _E.LEFT_OUT), (_S.OUTGOING, (_F.LIMIT,)))}
    ),
    _S.EARLY: _row(
        _S.EARLY,
        {
            **dict.fromkeys((_E.LEFT_OUT, _E.REVOKED, _E.CHANGED, _E.STOP), _STOP),
            **dict.fromkeys((*_ENDS, _E.BROKEN), _OVER),
            _E.ASSIGNED: (_S.CONNECTING, ()),
            _E.CONNECTED: (_S.EARLY_STARTING, (_F.FENCE,)),
            _E.INITIALISED: (_S.DETACHED, ()),
        },
    ),
    _S.EARLY_STARTING: _row(
        _S.EARLY_STARTING,
        {
            **dict.fromkeys((_E.LEFT_OUT, _E.REVOKED, _E.CHANGED, _E.STOP, _E.CONNECTED), _STOP),
            **dict.fromkeys((*_ENDS, _E.BROKEN), _OVER),
            _E.ASSIGNED: (_S.STARTING, ()),
            _E.INITIALISED: (_S.DETACHED, ()),
        },
    ),
    _S.STOPPING: _row(_S.STOPPING, {**dict.fromkeys((*_ENDS, _E.BROKEN), _OVER), _E.ASSIGNED: (_S.RESTARTING, ())}),
    _S.RESTARTING: _row(
        _S.RESTARTING,
        {
            **dict.fromkeys((_E.REVOKED, _E.LOST, _E.LEFT_OUT, _E.STOP), (_S.STOPPING, ())),
            **dict.fromkeys(_ENDS, _START),
            _E.BROKEN: _LEAVE,
        },
    ),
}
"""For each stage and each event: the stage after it, and what it brings about."""
