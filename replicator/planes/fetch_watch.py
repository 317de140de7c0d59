"""Finds that answers with records don't arrive: they take longer than is waited for, or their connection breaks.

Such an answer is dropped, and the same is asked for again, see `kafka.fetch_size`. Of librdkafka (2.16) only the log
tells it. A broker that is frozen or dead is none of that: its connection isn't made again. Used by both engines.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from replicator.kafka.fetch_size import FetchSize
from replicator.model.errors import Retriable

LATE_MAX = 2
"""Answers that were too late before less is asked for: one is late of a broker that is frozen, too."""
LATE_S = 900.0
"""For how long one counts."""
BREAKS_MAX = 3
"""Connections that break one after the other with nothing having been read between: one alone says that a broker was
restarted."""
LATE, BROKEN, UP = "Timed out FetchRequest in flight", "Disconnected", "in state UP"


class FetchWatch:
    """Of one source reader, and used in its thread."""

    def __init__(self, cluster: str, fetch_size: FetchSize, now_s: Callable[[], float] = time.monotonic) -> None:
        """`cluster`: the source's name in the flow file."""
        self._cluster, self._fetch_size, self._now_s = cluster, fetch_size, now_s
        self.step = fetch_size.step
        self._late_s: list[float] = []
        self._breaks = 0
        self._why = ""

    def line(self, text: str) -> None:
        """Take a line of librdkafka's log."""
        if LATE in text:
            self.late()
        elif BROKEN in text and UP in text:
            self.broke()

    def late(self) -> None:
        """Note that an answer was given up."""
        now_s = self._now_s()
        self._late_s = [*(at_s for at_s in self._late_s if at_s > now_s - LATE_S), now_s]
        if len(self._late_s) >= LATE_MAX:
            self._why = "they take longer than they are waited for"

    def broke(self) -> None:
        """Note that a connection broke with an answer under way."""
        self._breaks += 1
        if self._breaks >= BREAKS_MAX:
            self._why = "the connection breaks"

    def arrived(self) -> None:
        """Note that records have arrived."""
        self._breaks = 0

    def check(self) -> None:
        """Raise Retriable where another reader shall ask for less at once than this one, or can ask for more."""
        why, self._why = self._why, ""
        if why:
            self._late_s.clear()
            self._breaks = 0
            if self._fetch_size.failed(self.step):
                raise Retriable(
                    f"cluster {self._cluster!r}: answers with records don't arrive ({why}): less is asked for at once"
                )
        if self._fetch_size.grows(self.step):
            raise Retriable(f"cluster {self._cluster!r}: answers with records arrive: more is asked for at once")
