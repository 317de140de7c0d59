"""Checks a client's batch before it is appended: `BatchChecks`, called by the handler of Produce for each partition.

Follows org.apache.kafka.storage.internals.log.LogValidator, with one difference: of the records inside a batch only the
lengths are checked, unless a rule of the topic needs more (null keys in compacted topics, limits of timestamps).

What a batch may cost is bounded by its bytes: how many records there can be in them, and how much may come out of them.
A body that is large when decompressed is decompressed in a thread, one at a time; its records, as any batch's, are
looked at in slices, between which other requests are handled (`fair_share`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from embedded_broker.runtime.fair_share import Share
from embedded_broker.runtime.workers import OneByOne, Threads, Workers
from embedded_broker.storage.log_config import UNBOUNDED_MS, LogConfig
from embedded_broker.wire.checked_batch import CheckedBatch
from kafka_records.batch import (
    HEADER_BYTES,
    BatchHeader,
    Buffer,
    CorruptBatch,
    UnsupportedMagic,
    check_crc,
    read_header,
)
from kafka_records.compression import ZSTD, DecodedTooLarge
from kafka_records.lengths import begins_at_base_timestamp, lengths, look_through
from kafka_records.rebuild import recompressed
from kafka_records.records import Body, body_of

DECODED_BYTES_MAX = 48 * 1024 * 1024
"""A batch of max.message.bytes as it is by default may become 48 times as large."""
KEPT_BYTES_MAX = 64 * 1024 * 1024
"""Of batches that were taken before, when the limit was this."""
RECORD_ERRORS_MAX = 10_000
NO_TIMESTAMP = -1
SPREAD_MS_MAX = 3_600_000
"""Between the first and the last record of a batch, without a closer look."""
BATCH_STEPS, BYTES_A_STEP = 20, 2_000


class RecordError(NamedTuple):
    """What is wrong with one record of a batch (KIP-467)."""

    place: int
    message: str


class BatchRejected(Exception):
    """A batch that isn't appended; `error_code` is the protocol's reason, `records` are those it lies in, if any."""

    def __init__(self, error_code: ErrorCode, detail: str, records: tuple[RecordError, ...] = ()) -> None:
        super().__init__(detail)
        self.error_code, self.records = error_code, records


class BatchChecks:
    """Checks batches; the broker has one."""

    def __init__(self, at_once_bytes_max: int, workers: Callable[[int, str], Workers] = Threads) -> None:
        """
        Args:
            at_once_bytes_max: what is decompressed on the event loop.
            workers: makes a pool of threads, given their number and a name.
        """
        self._at_once_bytes_max = at_once_bytes_max
        self._thread = OneByOne(workers, "decompression")
        # Held until the records are checked, too, so that one large body is in memory at a time.
        self._large = asyncio.Lock()

    async def check(
        self, header: BatchHeader, records: Buffer, config: LogConfig, now_ms: int, share: Share
    ) -> CheckedBatch:
        """Return a batch that may be appended.

        Args:
            header: what `whole` has read of `records`.
            records: a partition's records in a request.
            config: of the topic.
            now_ms: wall time.
            share: of the request.

        Raises BatchRejected.
        """
        size_bytes = header.size_bytes
        if size_bytes > config.message_bytes_max:
            raise BatchRejected(
                ErrorCode.message_too_large, f"{size_bytes} bytes, the topic takes {config.message_bytes_max}"
            )
        if size_bytes > config.segment_bytes:
            raise BatchRejected(
                ErrorCode.record_list_too_large, f"{size_bytes} bytes, a segment has {config.segment_bytes}"
            )
        _check_header(header, config)
        await share.spent(BATCH_STEPS + size_bytes // BYTES_A_STEP)
        try:
            check_crc(records)
            body = body_of(header, records, self._at_once_bytes_max)
        except DecodedTooLarge:
            return await self._check_large(header, records, config, now_ms, share)
        except CorruptBatch as error:
            raise BatchRejected(ErrorCode.corrupt_message, str(error)) from error
        return await self._checked(header, records, body, config, now_ms, share)

    async def _check_large(
        self, header: BatchHeader, records: Buffer, config: LogConfig, now_ms: int, share: Share
    ) -> CheckedBatch:
        async with self._large:
            try:
                body = await self._thread.run(partial(body_of, header, records, DECODED_BYTES_MAX))
            except CorruptBatch as error:
                raise BatchRejected(ErrorCode.corrupt_message, str(error)) from error
            return await self._checked(header, records, body, config, now_ms, share)

    async def _checked(
        self,
        header: BatchHeader,
        records: Buffer,
        body: Body,
        config: LogConfig,
        now_ms: int,
        share: Share,
    ) -> CheckedBatch:
        """Return the batch with the largest timestamp that its records have."""
        max_timestamp = await _check_body(header, body, config, now_ms, share)
        batch = CheckedBatch(header, records)
        if max_timestamp != header.max_timestamp:
            batch = batch.with_max_timestamp(max_timestamp)
        codec = config.compression
        if codec is None or codec == batch.header.compression:
            return batch
        # Compressing takes longer than all else, so a thread does it.
        return CheckedBatch.of(await self._thread.run(partial(recompressed, batch.header, body, codec)))

    @asynccontextmanager
    async def body(self, header: BatchHeader, batch: bytes) -> AsyncIterator[Body]:
        """Yield the decompressed body of a batch that is kept. Of all that are large one is in memory at a time, until
        the end of its block. Raises CorruptBatch."""
        try:
            body = body_of(header, batch, self._at_once_bytes_max)
        except DecodedTooLarge:
            async with self._large:
                yield await self._thread.run(partial(body_of, header, batch, KEPT_BYTES_MAX))
        else:
            yield body

    def stop(self) -> None:
        """End the thread."""
        self._thread.stop()


def whole(records: Buffer | None, *, zstd: bool) -> BatchHeader:
    """Return the header of the one batch that a partition's records in a request must be.

    Args:
        records: a partition's records in a request.
        zstd: whether the request's version knows zstd (KIP-110).

    Raises BatchRejected.
    """
    if not records:
        raise BatchRejected(ErrorCode.invalid_record, "no batch")
    try:
        header = read_header(records)
    except UnsupportedMagic as error:
        raise BatchRejected(ErrorCode.invalid_record, f"{error} is not taken: only v2 is") from error
    except CorruptBatch as error:
        short = len(records) < HEADER_BYTES
        raise BatchRejected(ErrorCode.invalid_record if short else ErrorCode.corrupt_message, str(error)) from error
    size_bytes = header.size_bytes
    if size_bytes > len(records):
        raise BatchRejected(ErrorCode.invalid_record, f"a batch of {size_bytes} bytes in {len(records)}")
    if size_bytes < len(records):
        raise BatchRejected(ErrorCode.invalid_record, "more than one batch for a partition")
    if header.compression == ZSTD and not zstd:
        raise BatchRejected(ErrorCode.unsupported_compression_type, "zstd needs Produce 7 or later")
    return header


def _check_header(header: BatchHeader, config: LogConfig) -> None:
    if header.base_offset != 0:
        raise BatchRejected(ErrorCode.invalid_record, f"base offset {header.base_offset}")
    if header.record_count <= 0 or header.last_offset_delta != header.record_count - 1:
        raise BatchRejected(
            ErrorCode.invalid_record, f"{header.record_count} records, last offset {header.last_offset_delta}"
        )
    if header.is_control:
        raise BatchRejected(ErrorCode.invalid_record, "clients write no control batches")
    if header.compression > ZSTD:
        raise BatchRejected(ErrorCode.unsupported_compression_type, f"compression {header.compression}")
    if header.is_log_append_time and config.log_append_time:
        raise BatchRejected(ErrorCode.invalid_timestamp, "the time type is the broker's to set")


async def _check_body(header: BatchHeader, body: Body, config: LogConfig, now_ms: int, share: Share) -> int:
    """Check the records; return their highest timestamp."""
    try:
        for steps in lengths(body, header.record_count):
            await share.spent(2 * steps)
        return await _check_records(header, body, config, now_ms, share)
    except CorruptBatch as error:
        raise BatchRejected(ErrorCode.invalid_record, str(error)) from error


async def _check_records(header: BatchHeader, body: Body, config: LogConfig, now_ms: int, share: Share) -> int:
    """Check what the topic asks of keys and times; records are looked at only if one of them could be broken.

    Returns the highest timestamp: what the header says, unless that could be wrong and matter: segments are closed, and
    kept, by it. Kafka always takes it from the records (LogValidator).
    """
    bounded = not config.log_append_time
    doubtful = bounded and not header.is_log_append_time and _is_doubtful(header, body)
    too_late = bounded and header.max_timestamp - now_ms > config.after_ms_max
    too_early = bounded and config.before_ms_max < UNBOUNDED_MS
    if not (config.compacts or too_late or too_early or doubtful):
        return header.max_timestamp
    error_code, found = ErrorCode.invalid_record, list[RecordError]()
    youngest_ms, oldest_ms = now_ms + config.after_ms_max, now_ms - config.before_ms_max

    max_timestamp = NO_TIMESTAMP

    def visit(place: int, timestamp_ms: int, has_key: bool) -> None:
        nonlocal error_code, max_timestamp
        max_timestamp = max(max_timestamp, timestamp_ms)
        if config.compacts and not has_key:
            broken = "a compacted topic takes no record without a key"
        elif bounded and timestamp_ms != NO_TIMESTAMP and not oldest_ms <= timestamp_ms <= youngest_ms:
            error_code = ErrorCode.invalid_timestamp
            broken = f"the timestamp {timestamp_ms} is out of range"
        else:
            return
        if len(found) < RECORD_ERRORS_MAX:
            found.append(RecordError(place, broken))

    for steps in look_through(header, body, visit):
        await share.spent(2 * steps)
    if found:
        raise BatchRejected(error_code, f"{len(found)} records break a rule: {found[0].message}", tuple(found))
    return max_timestamp if doubtful else header.max_timestamp


def _is_doubtful(header: BatchHeader, body: Body) -> bool:
    """Return whether the highest timestamp that the header claims isn't explained by its first record and a short
    while.
    """
    spread_ms = header.max_timestamp - header.base_timestamp
    return not 0 <= spread_ms <= SPREAD_MS_MAX or not begins_at_base_timestamp(body)
