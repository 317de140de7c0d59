"""Compacts an internal log by a snapshot: appends all live records again, then removes what is before them.

Each coordinator has one `Compactor` for its log.

1. The live records are appended in one step of the event loop, so that no other record is appended between them.
2. They are made durable.
3. The log start is raised: to the first of them, or to the first record that still waits for its transaction's marker
   or for the disk, if that is before them.
A crash after 1 or 2 leaves the old records and some or all of the new ones: replaying them gives the same state. What
stands between the new log start and the snapshot may be newer than what the snapshot repeats, so each repeated record
can say at which offset it stood (`ORIGIN`), and counts as if it still did.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from embedded_broker.coordinators.background import Background
from embedded_broker.coordinators.ports import Host
from embedded_broker.storage.disk_space import suppress_disk_full
from kafka_records.records import Record, encode, encode_with_headers

Records = Sequence[tuple[bytes, bytes | None]]

RETRY_INTERVAL_MS = 250
ORIGIN = b"eos.origin"
"""Header of a repeated record: where it stood, 8 bytes. Kafka's own readers of these topics look at no header."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that counts of a log, as of one moment."""

    records: Records
    """Those whose place in the log doesn't matter."""
    placed: Sequence[tuple[bytes, bytes, int]] = field(default=())
    """Key, value and original offset of those whose place decides which of two is the newer one."""


def origin_of(record: Record) -> int:
    """The offset at which a record counts: where it stands, or where it stood before snapshots repeated it."""
    for name, value in record.headers:
        if name == ORIGIN and value is not None:
            return int.from_bytes(value, "big")
    return record.offset


class Compactor:
    """Watches one internal log."""

    def __init__(
        self,
        host: Host,
        background: Background,
        topic: str,
        live: Callable[[], Snapshot | None],
        needed_from: Callable[[], int | None] = lambda: None,
    ) -> None:
        """
        Args:
            host: the broker.
            background: of the coordinator that owns the log.
            topic: the internal topic.
            live: what counts as of the last append; None if that can't be said just now.
            needed_from: the first offset that must stay beside a snapshot taken now; None if there is none.
        """
        self._host, self._background, self._topic = host, background, topic
        self._thresholds = host.thresholds
        self._live, self._needed_from = live, needed_from
        self._live_count = self._live_bytes = 0
        self._is_trimming = False

    def check(self) -> None:
        """Compact if most of what can go is dead; called again by itself."""
        interval_ms = self._thresholds.compaction_interval_ms
        log = self._host.internal_log(self._topic)
        can_go = self._cut(log.log_end) - log.log_start
        is_idle = self._host.has_disk_space and not self._is_trimming
        is_long = can_go >= 2 * self._live_count + self._thresholds.dead_records_max
        is_large = can_go > 0 and log.size_bytes >= 3 * self._live_bytes + self._thresholds.dead_bytes_max
        if is_idle and (is_long or is_large):
            snapshot = self._live()
            if snapshot is None:
                interval_ms = RETRY_INTERVAL_MS
            else:
                with suppress_disk_full():  # what has been written again says the same as what it repeats
                    cut = self._cut(log.log_end)
                    self._rewrite(snapshot)
                    self._is_trimming = True  # a slow disk must not be given the same again before it is done
                    self._background.spawn(f"compact {self._topic}", self._trim(cut))
        self._background.schedule(("compact", self._topic), interval_ms, self.check)

    def _cut(self, start: int) -> int:
        """The log start after a snapshot at `start`."""
        needed = self._needed_from()
        return start if needed is None else min(start, needed)

    def _rewrite(self, snapshot: Snapshot) -> None:
        log = self._host.internal_log(self._topic)
        now_ms, count = self._host.clock.now_ms(), self._thresholds.snapshot_batch_records
        for first in range(0, len(snapshot.records), count):
            log.append(encode(snapshot.records[first : first + count], now_ms))
        for first in range(0, len(snapshot.placed), count):
            some = snapshot.placed[first : first + count]
            placed = [(key, value, ((ORIGIN, origin.to_bytes(8, "big")),)) for key, value, origin in some]
            log.append(encode_with_headers(placed, now_ms))
        self._live_count = len(snapshot.records) + len(snapshot.placed)
        self._live_bytes = sum(len(key) + len(value or b"") for key, value in snapshot.records)
        self._live_bytes += sum(len(key) + len(value) for key, value, _ in snapshot.placed)

    async def _trim(self, offset: int) -> None:
        log = self._host.internal_log(self._topic)
        try:
            await self._host.durable(log)
            with suppress_disk_full():
                await self._host.trim(log, offset)
        finally:
            self._is_trimming = False
