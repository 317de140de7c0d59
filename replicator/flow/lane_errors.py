"""What an error means to a worker that shares its flow: whether another worker would meet the same. Pure. Used by
`flow.group_worker`."""

from __future__ import annotations

from replicator.model.errors import (
    Abortable,
    ConfigError,
    Fenced,
    LocalFault,
    NotAllowed,
    Retriable,
    TakenOver,
    UnknownOutcome,
    Unreachable,
)

IN_THE_CLUSTERS = (Unreachable, NotAllowed, Retriable, UnknownOutcome, Abortable)
"""After these a lane is started again: every other worker would meet the same."""
LASTING = (NotAllowed, ConfigError)
"""For these the group takes no worker before somebody changes something."""


def is_local(error: BaseException | None) -> bool:
    """Tell whether it is this process alone that can't run a lane, so that another worker shall have it."""
    no_thread = isinstance(error, RuntimeError) and "can't start new thread" in str(error)
    return no_thread or isinstance(error, LocalFault | OSError | MemoryError)


def ends_flow(error: BaseException | None) -> bool:
    """Tell whether a lane's error ends the flow here: no other worker takes the lane, and it isn't started again."""
    goes_on = error is None or isinstance(error, (Fenced, TakenOver, *IN_THE_CLUSTERS)) or is_local(error)
    return not goes_on
