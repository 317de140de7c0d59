"""Compacts an internal log by a snapshot: appends all live records again, then removes everything before them.

Each coordinator has one `Compactor` for its log.

1. The live records are appended in one step of the event loop, so that no other record is appended between them.
2. They are made durable.
3. The log start is raised to the first of them.
A crash after 1 or 2 leaves the old records and some or all of the new ones: replaying them gives the same state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from embedded_broker.coordinators.background import Background
from embedded_broker.coordinators.ports import Host
from embedded_broker.storage.disk_space import suppress_disk_full
from embedded_broker.wire.records import encode

Records = Sequence[tuple[bytes, bytes | None]]

RECORDS_DEAD_MAX = 50_000
CHECK_INTERVAL_MS = 10_000
RETRY_INTERVAL_MS = 250
BATCH_RECORDS = 500


class Compactor:
    """Watches one internal log."""

    def __init__(self, host: Host, background: Background, topic: str, live: Callable[[], Records | None]) -> None:
        """
        Args:
            host: the broker.
            background: of the coordinator that owns the log.
            topic: the internal topic.
            live: all records that count, as of the last append; None if that can't be said just now.
        """
        self._host, self._background, self._topic, self._live = host, background, topic, live
        self._live_count = 0

    def check(self) -> None:
        """Compact if most of the log is dead; called again by itself."""
        interval_ms = CHECK_INTERVAL_MS
        log = self._host.internal_log(self._topic)
        if self._host.has_disk_space and log.log_end - log.log_start >= 2 * self._live_count + RECORDS_DEAD_MAX:
            records = self._live()
            if records is None:
                interval_ms = RETRY_INTERVAL_MS
            else:
                with suppress_disk_full():  # what has been written again says the same as what it repeats
                    start = self._rewrite(records)
                    self._background.spawn(f"compact {self._topic}", self._cut(start))
        self._background.schedule(("compact", self._topic), interval_ms, self.check)

    def _rewrite(self, records: Records) -> int:
        log = self._host.internal_log(self._topic)
        start, now_ms = log.log_end, self._host.clock.now_ms()
        for first in range(0, len(records), BATCH_RECORDS):
            log.append(encode(records[first : first + BATCH_RECORDS], now_ms))
        self._live_count = len(records)
        return start

    async def _cut(self, start: int) -> None:
        log = self._host.internal_log(self._topic)
        await self._host.durable(log)
        with suppress_disk_full():
            await self._host.trim(log, start)
