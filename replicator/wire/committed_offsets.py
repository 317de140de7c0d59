"""Reads what a group has committed, as it stands, whatever transaction is open over it. Used by `last_positions` and by
`flow.group_members`.

A client of librdkafka takes more round trips, and threads, for the few questions that are asked here.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection
from contextlib import closing

from replicator.config import Cluster, Flow
from replicator.model.errors import Fatal, ReplicatorError, Unreachable
from replicator.model.partition import Committed, Partition
from replicator.wire import offset_fetch
from replicator.wire.any_broker import body_at
from replicator.wire.connection import Connection, ConnectionLost
from replicator.wire.leader_questions import ATTEMPT_S, LeaderQuestions
from replicator.wire.response_limits import BadResponse

_GROUP, _ONE_KEY = 0, 3  # FindCoordinator's key type, and its version


class CommittedOffsets(LeaderQuestions):
    """Asks the coordinator of one group. Used by one thread; close it."""

    def __init__(self, flow: Flow, cluster: Cluster, group: str, stop: threading.Event, role: str) -> None:
        """See `LeaderQuestions`."""
        super().__init__(flow, cluster, stop, role)
        self._group, self._doing = group, f"read the offsets of group {group!r}"
        self._ready: Connection | None = None  # for the first question

    def connect(self) -> None:
        """Connect to the coordinator. What is wrong with that, the first question meets again."""
        try:
            self._ready = self._connected()
        except ReplicatorError:
            return

    def close(self) -> None:
        """See `LeaderQuestions`."""
        super().close()
        if self._ready is not None:
            self._ready.close()
            self._ready = None

    def read_committed_positions(self, partitions: Collection[Partition]) -> dict[Partition, Committed]:
        """Return what is committed of these partitions; offset -1: nothing.

        Raises Retriable, Unreachable, NotAllowed: of single partitions too; Unsupported.
        """
        return self._again(lambda: self._asked(partitions))

    def _asked(self, partitions: Collection[Partition]) -> dict[Partition, Committed]:
        ready, self._ready = self._ready or self._connected(), None
        with closing(ready) as connection:
            connection.version(offset_fetch.API)
            request = offset_fetch.request(self._client_id, self._group, partitions, stable=False)
            deadline_s = time.monotonic() + ATTEMPT_S
            data = connection.receive(connection.send(request, deadline_s), deadline_s)
            if data is None:
                raise ConnectionLost(f"{connection.where}: no answer in time")
            try:
                body_at(data, connection)
                answer = offset_fetch.read(data)
            except BadResponse as bad:
                raise Unreachable(f"{connection.where}: answers with {bad}") from bad
        self._check(answer.code, self._doing, f"Read and Describe on group {self._group!r}")
        for at in partitions:
            if at not in answer.by_partition:
                raise Fatal(f"{self._doing}: {at} was asked for, and not answered")
            self._check(answer.by_partition[at][0], f"{self._doing} in {at}", f"Describe on topic {at.topic!r}")
        return {at: answer.by_partition[at][1] for at in partitions}

    def _connected(self) -> Connection:
        fields = {"key": self._group, "key_type": _GROUP}
        answer = self._ask_any("find_coordinator", lambda _: fields, highest=_ONE_KEY)
        self._check(answer.error_code, self._doing, f"Read and Describe on group {self._group!r}")
        return self._connect((answer.host, int(answer.port)))
