"""Compacts an internal log: appends all live records again, then removes what is before them.

Each coordinator has one `Compactor` for its log.

1. The live records are appended again, a few at a time, between which requests are handled and append records of their
   own. What is repeated is read from memory in the same step of the event loop in which it is appended.
2. They are made durable.
3. The log start is raised: to where the log ended when 1 began, or to the first record that still waited for its
   transaction's marker or for the disk, if that is before it.

Invariants
- A repeated record says what held when it was appended, so it never takes back a newer one. All that was written since
  the pass began is behind the new log start.
- A crash within 1, or after it or 2, leaves the old records and some or all of the new ones: replaying them gives the
  same state.
- An offset that is repeated may stand behind a record of a transaction that has not ended, and is the newer one if that
  is committed. So each repeated record can say at which offset it stood (`ORIGIN`), and counts as if it still did.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from embedded_broker.coordinators.background import Background
from embedded_broker.coordinators.ports import CoordinatorHost
from embedded_broker.storage.disk_space import suppress_disk_full
from kafka_records.records import Record, encode, encode_with_headers

Records = Sequence[tuple[bytes, bytes | None]]

RECORD_STEPS = 20
"""What it costs to encode and append one record, in steps of `Thresholds.slice_steps`."""
PART_BYTES_MAX = 256 * 1024
"""Of a part, or the records of one group more."""
ORIGIN = b"eos.origin"
"""Header of a repeated record: where it stood, 8 bytes. Kafka's own readers of these topics look at no header."""


@dataclass(frozen=True, slots=True)
class LiveRecords:
    """Some of what counts of a log, as of the moment at which an iterator gives it."""

    records: Records = ()
    """Those whose place in the log doesn't matter."""
    placed: Sequence[tuple[bytes, bytes, int]] = ()
    """Key, value and original offset of those whose place decides which of two is the newer one."""

    def __len__(self) -> int:
        return len(self.records) + len(self.placed)

    @property
    def size_bytes(self) -> int:
        """Of keys and values."""
        size_bytes = sum(len(key) + len(value or b"") for key, value in self.records)
        return size_bytes + sum(len(key) + len(value) for key, value, _ in self.placed)


def origin_of(record: Record) -> int:
    """Return the offset at which a record counts: where it stands, or where it stood before it was repeated."""
    for name, value in record.headers:
        if name == ORIGIN and value is not None:
            return int.from_bytes(value, "big")
    return record.offset


class Compactor:
    """Watches one internal log."""

    def __init__(
        self,
        host: CoordinatorHost,
        background: Background,
        topic: str,
        live: Callable[[], Iterator[LiveRecords]],
        needed_from: Callable[[], int | None] = lambda: None,
        is_settled: Callable[[], bool] = lambda: True,
    ) -> None:
        """
        Args:
            host: the broker.
            background: of the coordinator that owns the log.
            topic: the internal topic.
            live: what counts, part after part. A part is what memory says when it is asked for, and is appended in the
                same step; what is new since the first part need not be among them.
            needed_from: the first offset that must stay beside a repetition that begins now; None if there is none.
            is_settled: whether all that memory says has been appended; nothing is repeated otherwise.
        """
        self._host, self._background, self._topic = host, background, topic
        self._thresholds = host.thresholds
        self._live, self._needed_from, self._is_settled = live, needed_from, is_settled
        self._live_count = self._live_bytes = 0
        self._is_compacting = False

    def check(self) -> None:
        """Compact if most of what can go is dead; called again by itself."""
        interval_ms = self._thresholds.compaction_interval_ms
        log = self._host.internal_log(self._topic)
        can_go = self._cut(log.log_end) - log.log_start
        is_idle = self._host.has_disk_space and not self._is_compacting
        is_long = can_go >= 2 * self._live_count + self._thresholds.dead_records_max
        is_large = can_go > 0 and log.size_bytes >= 3 * self._live_bytes + self._thresholds.dead_bytes_max
        if is_idle and (is_long or is_large):
            self._is_compacting = True  # a slow disk must not be given the same again before it is done
            self._background.spawn(f"compact {self._topic}", self._compact())
        self._background.schedule(("compact", self._topic), interval_ms, self.check)

    async def _compact(self) -> None:
        try:
            with suppress_disk_full():  # what has been written again says the same as what it repeats
                cut = self._cut(self._host.internal_log(self._topic).log_end)
                if await self._rewrite(self._live()):
                    await self._trim(cut)
        finally:
            self._is_compacting = False

    def _cut(self, start: int) -> int:
        """Return the log start after a repetition that begins at `start`."""
        needed = self._needed_from()
        return start if needed is None else min(start, needed)

    async def _rewrite(self, live: Iterator[LiveRecords]) -> bool:
        """Append all that `live` gives, part by part; whether that is all that counts."""
        share = self._host.fair_share.request()
        count = size_bytes = 0
        while self._is_settled() and not self._background.is_stopping:
            part = next(live, None)
            if part is None:
                self._live_count, self._live_bytes = count, size_bytes
                return True
            self._append(part)
            count, size_bytes = count + len(part), size_bytes + part.size_bytes
            await share.spent(len(part) * RECORD_STEPS)
            if self._thresholds.compaction_pause_ms:
                await asyncio.sleep(self._thresholds.compaction_pause_ms / 1000)
        return False

    def _append(self, part: LiveRecords) -> None:
        log = self._host.internal_log(self._topic)
        now_ms, count = self._host.clock.now_ms(), self._thresholds.snapshot_batch_records
        for first in range(0, len(part.records), count):
            log.append(encode(part.records[first : first + count], now_ms))
        for first in range(0, len(part.placed), count):
            some = part.placed[first : first + count]
            placed = [(key, value, ((ORIGIN, origin.to_bytes(8, "big")),)) for key, value, origin in some]
            log.append(encode_with_headers(placed, now_ms))

    async def _trim(self, offset: int) -> None:
        log = self._host.internal_log(self._topic)
        await self._host.durable(log)
        await self._host.trim(log, offset)
