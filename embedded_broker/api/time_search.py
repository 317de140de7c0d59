"""Finds records by their time in a partition's log, for ListOffsets.

A batch's header says only what its latest record's time is, and may be wrong, so records are looked through: in slices,
between which others have their turn. A large body is decompressed in a thread, and nothing of it is kept.
"""

from __future__ import annotations

from typing import Protocol

from embedded_broker.produce.batch_checks import BatchChecks
from embedded_broker.runtime.fair_share import Share
from kafka_records.batch import BatchHeader
from kafka_records.lengths import first_at

BATCH_STEPS, BYTES_A_STEP = 50, 10_000
Found = tuple[int, int] | None
"""(offset, timestamp) of a record; None if there is none."""


class Log(Protocol):
    """What is looked through: a `storage.Partition`, or its log. It may change between two calls."""

    @property
    def log_start(self) -> int: ...

    def batch_at_time(self, timestamp_ms: int, offset_min: int) -> tuple[BatchHeader, bytes] | None:
        """See PartitionLog.batch_at_time."""

    def latest_batch(self) -> BatchHeader | None:
        """See PartitionLog.latest_batch."""


class TimeSearch:
    """Searches for one request. All methods raise CorruptBatch when records can't be decoded, and what the log does."""

    def __init__(self, checks: BatchChecks, share: Share) -> None:
        """`checks` decompresses."""
        self._checks, self._share = checks, share

    async def latest(self, log: Log) -> Found:
        """Find the first record with the highest timestamp; the batch's last if all share it by LogAppendTime, as in
        Kafka's DefaultRecordBatch.offsetOfMaxTimestamp."""
        latest = log.latest_batch()
        if latest is None:
            return None
        if latest.is_log_append_time:
            return latest.last_offset, latest.max_timestamp
        return await self.first_at(log, latest.max_timestamp, latest.base_offset)

    async def first_at(self, log: Log, timestamp_ms: int, offset_min: int) -> Found:
        """Find the first record at or after a time, from `offset_min` on."""
        while (batch := log.batch_at_time(timestamp_ms, offset_min)) is not None:
            header, data = batch
            await self._share.spent(BATCH_STEPS + len(data) // BYTES_A_STEP)
            async with self._checks.body(header, data) as body:
                steps = first_at(header, body, timestamp_ms, max(offset_min, log.log_start))
                found: Found = None
                while True:
                    try:
                        spent = next(steps)
                    except StopIteration as end:
                        found = end.value
                        break
                    await self._share.spent(2 * spent)
            if found is not None:
                return found
            offset_min = header.last_offset + 1
        return None
