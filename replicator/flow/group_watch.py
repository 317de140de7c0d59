"""What a flow's discovery does where the flow is shared: it looks who the members of its group are, and of the workers
only the one that has lane 0 sets configs and ACLs. Made by `flow.shared_flow`; `flow.group_worker` says what has
changed.

Target topics are made by whichever worker finds them absent first: a lane would have to wait for another process
otherwise, and to make one twice does nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from replicator.config import Flow
from replicator.flow.group_members import FlowWorkers, read_workers
from replicator.flow.topics import ControlPlane
from replicator.model import names
from replicator.model.errors import Incident
from replicator.state.generation import Generation


class GroupWatch:
    """Of one generation. Looked after by the thread of discovery, told by the flow's."""

    def __init__(
        self, flow: Flow, plane: ControlPlane, generation: Generation, seen: Callable[[FlowWorkers, int], None]
    ) -> None:
        """`seen` is told of all workers, and when they were so (wall clock, in ms)."""
        self._flow, self._plane, self._generation, self._seen = flow, plane, generation, seen
        self._changed, self._leads = threading.Event(), threading.Event()

    def changed(self) -> None:
        """Note that lanes were given to another worker, or begun by this one: look at the members soon."""
        self._changed.set()

    def lead(self, leads: bool) -> None:
        """Say whether this worker has lane 0."""
        (self._leads.set if leads else self._leads.clear)()

    @property
    def leads(self) -> bool:
        """Whether this worker does what one of the flow's has to do."""
        return self._leads.is_set()

    @property
    def due(self) -> bool:
        """Whether something has changed since the members were looked at."""
        return self._changed.is_set()

    def look(self) -> list[Incident]:
        """Read the members, show them, and return those that are no workers. Raises Unreachable, NotAllowed,
        Retriable."""
        self._changed.clear()
        found = read_workers(self._flow, self._plane, self._generation)
        self._seen(found, time.time_ns() // 1_000_000)
        return foreign(self._flow, found)

    def make_topic(self) -> None:
        """Make the topic that the workers share out again where it was deleted while they run: without it none of them
        is a member, and nobody gets the lanes of one that ends.

        Raises Incident `lanes_topic_unfit`, Unreachable, NotAllowed, Retriable.
        """
        self._plane.make_lanes_topic(self._generation.lanes)


def foreign(flow: Flow, found: FlowWorkers) -> list[Incident]:
    """Return the members of the group that are no workers, as incidents. Pure."""
    group = names.workers_group(flow.name)
    return [
        Incident("foreign_group_member", f"group {group!r} has the member {it.host!r} at {it.address}")
        for it in found.workers
        if it.pid is None
    ]
