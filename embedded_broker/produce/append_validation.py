"""Validates a client's batch and appends it; called by the handler of Produce for each partition.

Follows org.apache.kafka.storage.internals.log.LogValidator and UnifiedLog.append, with one difference: of the records
inside a batch only the lengths are checked, unless a rule of the topic needs more (null keys in compacted topics,
limits of timestamps).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from embedded_broker.produce.transaction_verification import Verify
from embedded_broker.state.producers import Duplicate, Refuse
from embedded_broker.storage.log_config import UNBOUNDED_MS, LogConfig
from embedded_broker.storage.partition import Partition
from embedded_broker.wire.batch import (
    COMPRESSION_MASK,
    HEADER_BYTES,
    BatchHeader,
    CheckedBatch,
    CorruptBatch,
    UnsupportedMagic,
    check_crc,
    read_header,
)
from embedded_broker.wire.compression import ZSTD
from embedded_broker.wire.records import body_of, check_lengths, decode_body

DECODED_BYTES_MAX = 128 * 1024 * 1024
NO_TIMESTAMP = -1
ATTRIBUTES_AT = 22  # their lower byte


class RecordError(NamedTuple):
    """What is wrong with one record of a batch (KIP-467)."""

    place: int
    message: str


class BatchRejected(Exception):
    """A batch that isn't appended; `error_code` is the protocol's reason, `records` are those it lies in, if any."""

    def __init__(self, error_code: ErrorCode, detail: str, records: tuple[RecordError, ...] = ()) -> None:
        super().__init__(detail)
        self.error_code, self.records = error_code, records


@dataclass(frozen=True, slots=True)
class Appended:
    """Where a batch stands. `append_time_ms` is -1 unless the topic has LogAppendTime."""

    base_offset: int
    append_time_ms: int


def append(
    partition: Partition, records: bytes | bytearray | None, now_ms: int, transactional_id: str | None, verify: Verify
) -> Appended:
    """Validate a client's batch and append it, not durably yet. A duplicate is answered with its first offset.

    Args:
        partition: where to.
        records: the partition's records in the request: exactly one batch.
        now_ms: wall time.
        transactional_id: of the request.
        verify: whether a batch that would open a transaction belongs to one that the coordinator knows.

    Raises BatchRejected with nothing appended, or OSError.
    """
    config = partition.config
    batch = check(records, config, now_ms)
    header = batch.header
    if header.is_transactional and transactional_id is None:
        raise BatchRejected(
            ErrorCode.transactional_id_authorization_failed,
            "a transactional batch in a request without a transactional id",
        )
    if header.is_transactional and not partition.producers.has_open(header.producer_id, header.producer_epoch):
        # Otherwise a delayed batch would open a hanging transaction (KIP-890).
        error_code = verify(partition, header)
        if error_code is not ErrorCode.none:
            detail = f"producer {header.producer_id} of epoch {header.producer_epoch} has no transaction open here"
            raise BatchRejected(error_code, detail)
    verdict = partition.producers.check(header, now_ms)
    if isinstance(verdict, Refuse):
        raise BatchRejected(verdict.error_code, f"producer {header.producer_id}, sequence {header.base_sequence}")
    if isinstance(verdict, Duplicate):
        return Appended(verdict.base_offset, verdict.timestamp_ms if config.log_append_time else -1)
    append_time_ms = now_ms if config.log_append_time else None
    if header.is_log_append_time:
        batch = batch.with_create_time()
    base_offset = partition.append_checked(batch, append_time_ms=append_time_ms, now_ms=now_ms)
    return Appended(base_offset, now_ms if config.log_append_time else -1)


def refuse_zstd(records: bytes | None) -> None:
    """For clients of versions that don't know zstd (KIP-110). Raises BatchRejected."""
    if records and len(records) >= HEADER_BYTES and records[ATTRIBUTES_AT] & COMPRESSION_MASK == ZSTD:
        raise BatchRejected(ErrorCode.unsupported_compression_type, "zstd needs Produce 7 or later")


def check(records: bytes | bytearray | None, config: LogConfig, now_ms: int) -> CheckedBatch:
    """The one batch that `records` must be. Raises BatchRejected."""
    if not records:
        raise BatchRejected(ErrorCode.invalid_record, "no batch")
    header = _whole(records)
    if header.size_bytes > config.message_bytes_max:
        raise BatchRejected(
            ErrorCode.message_too_large, f"{header.size_bytes} bytes, the topic takes {config.message_bytes_max}"
        )
    if header.size_bytes > config.segment_bytes:
        raise BatchRejected(
            ErrorCode.record_list_too_large, f"{header.size_bytes} bytes, a segment has {config.segment_bytes}"
        )
    _check_header(header, config)
    try:
        check_crc(records)
        body = body_of(header, records, DECODED_BYTES_MAX)
    except CorruptBatch as error:
        raise BatchRejected(ErrorCode.corrupt_message, str(error)) from error
    try:
        check_lengths(body, header.record_count)
        _check_records(body, header, config, now_ms)
    except CorruptBatch as error:
        raise BatchRejected(ErrorCode.invalid_record, str(error)) from error
    return CheckedBatch(header, records)


def _whole(records: bytes | bytearray) -> BatchHeader:
    """The header, once there is one whole batch and nothing else."""
    try:
        header = read_header(records)
    except UnsupportedMagic as error:
        raise BatchRejected(ErrorCode.invalid_record, f"{error} is not taken: only v2 is") from error
    except CorruptBatch as error:
        short = len(records) < HEADER_BYTES
        raise BatchRejected(ErrorCode.invalid_record if short else ErrorCode.corrupt_message, str(error)) from error
    if header.size_bytes > len(records):
        raise BatchRejected(ErrorCode.invalid_record, f"a batch of {header.size_bytes} bytes in {len(records)}")
    if header.size_bytes < len(records):
        raise BatchRejected(ErrorCode.invalid_record, "more than one batch for a partition")
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


def _check_records(body: bytes, header: BatchHeader, config: LogConfig, now_ms: int) -> None:
    """What the topic asks of keys and times; records are decoded only if one of them could be broken."""
    bounded = not config.log_append_time
    too_late = bounded and header.max_timestamp - now_ms > config.after_ms_max
    too_early = bounded and config.before_ms_max < UNBOUNDED_MS
    if not (config.compacts or too_late or too_early):
        return
    error_code, found = ErrorCode.invalid_record, []
    youngest_ms, oldest_ms = -config.after_ms_max, config.before_ms_max
    for place, record in enumerate(decode_body(header, body)):
        age_ms = now_ms - record.timestamp_ms
        if config.compacts and record.key is None:
            found.append(RecordError(place, "a compacted topic takes no record without a key"))
        elif bounded and record.timestamp_ms != NO_TIMESTAMP and not youngest_ms <= age_ms <= oldest_ms:
            error_code = ErrorCode.invalid_timestamp
            found.append(RecordError(place, f"the timestamp {record.timestamp_ms} is out of range"))
    if found:
        raise BatchRejected(error_code, f"{len(found)} records break a rule: {found[0].message}", tuple(found))
