"""Who a worker is in its flow's group, and who else: whether it may open lanes before the group has assigned them. All
I/O of `workers.early`. Used by `flow.group_worker`."""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Callable
from pathlib import Path

import structlog

from replicator.model.errors import ReplicatorError
from replicator.workers.early import WorkerClientId, may_open_early


def own_client_id() -> WorkerClientId:
    """Name this process and this attempt."""
    return WorkerClientId(socket.gethostname(), os.getpid(), uuid.uuid4().hex[:12])


def is_alone(own: WorkerClientId, members: Callable[[], list[str]], log: structlog.stdlib.BoundLogger) -> bool | None:
    """Tell whether the group has no other members than dead processes of this host; None where it can't be asked.
    `members` asks the target for the client.id of each."""
    try:
        found = members()
    except ReplicatorError as error:
        log.info("members_unknown", reason=str(error))
        return None
    others = [each for each in found if each != own.encode()]
    return may_open_early(others, own.host, lambda other: _alive(other, own))


def _alive(other: WorkerClientId, own: WorkerClientId) -> bool:
    """Return whether a process of this host still runs. One with this process's own number has ended: numbers are given
    again, and in a container every process may have the same."""
    if other.pid == own.pid:
        return other.nonce == own.nonce
    try:
        os.kill(other.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return b"eos-replicate" in _command(other.pid) or b"cli.main" in _command(other.pid)


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b"eos-replicate"  # where that can't be read it may be one
