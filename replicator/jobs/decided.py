"""Which partitions of a flow in rounds wait for a task, because an operator has decided about their incidents.

The lane of a task acts on a decision when it begins (`lane.decisions`): here it is only found that there is one whose
occurrence is open. That is read again when something new stands in the control topic, which is asked about once a
second, and from time to time while any is left: a lane postpones what can't be done now.
"""

from __future__ import annotations

import time
from collections.abc import Set as AbstractSet

import structlog

from replicator.config import Flow
from replicator.jobs.clients import JobClients
from replicator.lane.decisions import AGAIN_S
from replicator.model import names
from replicator.model.errors import ReplicatorError, Retriable, Unreachable
from replicator.model.partition import LogEnds, Partition

LOOK_S = 1.0  # between two looks at the control topic
NONE: AbstractSet[Partition] = frozenset()


class DecidedPartitions:
    """Those of one flow. Use from one thread."""

    def __init__(self, flow: Flow, clients: JobClients, log: structlog.stdlib.BoundLogger) -> None:
        self._clients, self._log = clients, log
        self._control = Partition(names.control_topic(flow.name), 0)
        self._ends: LogEnds | ReplicatorError | None = None  # of the control topic, before it was read last
        self._looked_s = self._again_s = float("-inf")
        self.left = False
        """Whether any decision waited when they were read last: what a lane has postponed is tried again."""
        self._unread = ""  # why they could not be read last

    def due(self) -> AbstractSet[Partition]:
        """Find the source partitions of which a task is to be tried now. Raises NotAllowed, and Incident of the flow's
        own topics."""
        now_s = time.monotonic()
        if now_s < self._looked_s + LOOK_S:
            return NONE
        self._looked_s = now_s
        try:
            ends = self._clients.plane.target_logs.log_ends([self._control])[self._control]
            if isinstance(ends, LogEnds) and ends.stable < ends.end:
                return NONE  # somebody writes to it just now, and whoever reads it waits for that
            if ends == self._ends and not (self.left and now_s >= self._again_s):
                return NONE
            found = self._read()
        except (Retriable, Unreachable) as error:
            if self._unread != str(error):
                self._log.warning("decisions_unread", reason=str(error))
            self._unread = str(error)
            return NONE
        self._ends, self._unread = ends, ""
        self.left, self._again_s = bool(found), now_s + AGAIN_S
        return found

    def _read(self) -> AbstractSet[Partition]:
        decisions = self._clients.state.control().decisions
        if not decisions:
            return NONE
        return {it.source for it in self._clients.state.claims().occurrences if it.is_open and it.id in decisions}
