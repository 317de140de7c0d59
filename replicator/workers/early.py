"""Whether a worker that starts may open lanes before the group has assigned them. Pure.

A first member waits for the coordinator's group.initial.rebalance.delay.ms (3 s by default), and one that follows a
killed process for that one's session (10 s). Neither protects anybody while no other worker lives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

PROGRAM = "eos-replicate"


@dataclass(frozen=True, slots=True)
class WorkerClientId:
    """The client.id of a worker's group consumer: its host, process id, and what tells apart two processes that had
    the same process id."""

    host: str
    pid: int
    nonce: str

    def encode(self) -> str:
        """Write it as a client.id."""
        return "/".join((PROGRAM, self.host, str(self.pid), self.nonce))


def parsed(client_id: str) -> WorkerClientId | None:
    """Read a client.id; None for one that isn't a worker's."""
    parts = client_id.split("/")
    if len(parts) != 4 or parts[0] != PROGRAM or not all(parts) or not (parts[2].isascii() and parts[2].isdigit()):
        return None
    return WorkerClientId(parts[1], int(parts[2]), parts[3])


def may_open_early(members: Iterable[str], host: str, alive: Callable[[WorkerClientId], bool]) -> bool:
    """Tell whether nobody else can be running a lane, so that lanes may be opened before there is an assignment.

    Args:
        members: the client.id of each member that the coordinator knows.
        host: this worker's.
        alive: whether a process of this host still runs. It must say so too where it can't know.
    """
    found = [parsed(each) for each in members]
    return all(each is not None and each.host == host and not alive(each) for each in found)
