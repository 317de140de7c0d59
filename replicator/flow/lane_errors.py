"""What an error means to a worker that shares its flow: whether another worker would meet the same. Pure. Used by
`flow.group_worker`."""

from __future__ import annotations

from replicator.model.errors import (
    Abortable,
    ConfigError,
    LocalFault,
    NotAllowed,
    Retriable,
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
