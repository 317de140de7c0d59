"""Other flows' claims on the source, read for all lanes of a flow in this process together. Made by `flow.wiring`.

Each lane looks after it has claimed partitions, and hundreds of lanes do so at the same time: to list the topics of a
large cluster for each of them would take longer than the rest of the start.

Invariant: what a lane is given was read after it had asked, so after its claims were committed.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

from replicator.clock import RealClock
from replicator.config import Flow
from replicator.flow.topics import reading_topics
from replicator.lane.ports import Clock
from replicator.model.errors import ReplicatorError
from replicator.state.origins import FoundOrigins, OriginsById, of_topics
from replicator.state.source_claims import SourceClaims


class SharedOrigins:
    """Implements `lane.ports.OriginsReader`. Used by all lanes of a flow; whoever asks first reads, the others wait."""

    def __init__(self, flow: Flow, clock: Clock | None = None) -> None:
        self._flow, self._clock, self._lock = flow, clock or RealClock(), threading.Lock()
        self._began_s = float("-inf")  # when what is kept began to be read
        self._found: OriginsById = {}
        self._unread: Mapping[str, ReplicatorError] = {}

    def origins(self, topic_ids: Mapping[str, str]) -> FoundOrigins:
        """Find the origins of topics with these ids. Raises Retriable, Unreachable, NotAllowed."""
        asked_s = self._clock.now_s()
        with self._lock:
            if self._began_s <= asked_s:
                began_s = self._clock.now_s()
                self._found, self._unread = self._read()
                self._began_s = began_s
            return FoundOrigins(of_topics(self._found, topic_ids), self._unread)

    def _read(self) -> tuple[OriginsById, Mapping[str, ReplicatorError]]:
        """Read the claims, with a connection of its own: this happens when partitions are new."""
        with reading_topics(self._flow, self._flow.source) as reader:
            return SourceClaims(self._flow, reader).read()
