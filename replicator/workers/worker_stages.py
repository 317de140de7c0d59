"""What each event does to a worker of one flow as a member of its group, as one table. Pure; applied by `membership`.

A worker that can't run a lane for a cause of its own process leaves the flow's group, with back-off, so that another
one gets the lane; its other lanes go on until they are fenced. A cause in the clusters is no reason to leave: every
other worker would meet it, and leave in turn.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto


class WorkerStage(Enum):
    """Where a worker stands."""

    CREATED = auto()
    """It has not subscribed yet."""
    SUBSCRIBED = auto()
    """It is a member of the group, or on its way."""
    AWAY = auto()
    """It has left for a cause of its own process, and subscribes again when its back-off is over."""
    STANDING_BY = auto()
    """It runs nothing, because a job has the flow or it can't follow the flow's settings."""
    LEAVING = auto()
    """It was asked to stop: its lanes go on until they are fenced, or a short time is over."""
    GONE = auto()
    """All its lanes have ended."""


class WorkerEvent(Enum):
    """What happens to a worker."""

    SUBSCRIBE = auto()
    """It knows the flow's open generation, and may run it."""
    LOCAL_CAUSE = auto()
    """It can't run a lane, and another worker could."""
    DUE = auto()
    """Its back-off is over."""
    STAND_BY = auto()
    """It shall run nothing for now."""
    STOP = auto()
    """It was asked to stop."""
    ALL_ENDED = auto()
    """Nothing of any lane runs."""


class WorkerEffect(Enum):
    """What a transition brings about besides the new stage."""

    SUBSCRIBE = auto()
    """Subscribe to the lanes topic."""
    UNSUBSCRIBE = auto()
    """Leave the group."""
    DETACH = auto()
    """Each lane is lost: those that copy go on until they are fenced."""
    DROP = auto()
    """Each lane is to stop at once."""
    RELEASE = auto()
    """Each lane is revoked, with the short time that a stop leaves it."""
    BACK_OFF = auto()
    """DUE comes when the next back-off is over."""
    FINISHED = auto()
    """Nothing is left to wait for."""


_S, _E, _F = WorkerStage, WorkerEvent, WorkerEffect
WorkerTransition = tuple[WorkerStage, tuple[WorkerEffect, ...]]


def _row(stays: WorkerStage, changes: Mapping[WorkerEvent, WorkerTransition]) -> Mapping[WorkerEvent, WorkerTransition]:
    return {event: changes.get(event, (stays, ())) for event in WorkerEvent}


_JOIN: WorkerTransition = (_S.SUBSCRIBED, (_F.SUBSCRIBE,))

WORKER_TRANSITIONS: Mapping[WorkerStage, Mapping[WorkerEvent, WorkerTransition]] = {
    _S.CREATED: _row(
        _S.CREATED,
        {_E.SUBSCRIBE: _JOIN, _E.STAND_BY: (_S.STANDING_BY, (_F.DROP,)), _E.STOP: (_S.LEAVING, (_F.RELEASE,))},
    ),
    _S.SUBSCRIBED: _row(
        _S.SUBSCRIBED,
        {
            _E.LOCAL_CAUSE: (_S.AWAY, (_F.UNSUBSCRIBE, _F.DETACH, _F.BACK_OFF)),
            _E.STAND_BY: (_S.STANDING_BY, (_F.UNSUBSCRIBE, _F.DROP)),
            _E.STOP: (_S.LEAVING, (_F.UNSUBSCRIBE, _F.RELEASE)),
        },
    ),
    _S.AWAY: _row(
        _S.AWAY,
        {
            _E.DUE: _JOIN,
            _E.STAND_BY: (_S.STANDING_BY, (_F.DROP,)),
            _E.STOP: (_S.LEAVING, (_F.RELEASE,)),
        },
    ),
    _S.STANDING_BY: _row(_S.STANDING_BY, {_E.SUBSCRIBE: _JOIN, _E.STOP: (_S.LEAVING, (_F.RELEASE,))}),
    _S.LEAVING: _row(_S.LEAVING, {_E.ALL_ENDED: (_S.GONE, (_F.FINISHED,))}),
    _S.GONE: _row(_S.GONE, {}),
}
"""For each stage and each event: the stage after it, and what it brings about."""
