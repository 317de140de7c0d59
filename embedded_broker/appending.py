"""What a client's batch must be before it is appended, and the append itself.

Follows org.apache.kafka.storage.internals.log.LogValidator and UnifiedLog.append, with one difference: records inside
a batch are looked at only where a rule needs them (null keys in compacted topics, a lower bound on timestamps); else
the batch's CRC and header have to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kio.schema.errors import ErrorCode

from embedded_broker.partition import Partition
from embedded_broker.state.producers import Duplicate, Refuse
from embedded_broker.topic_configs import CONFIGS, is_compacted, number, value
from embedded_broker.verifying import Verify
from embedded_broker.wire.batch import BatchHeader, CorruptBatch, UnsupportedMagic, check_crc, read_header
from embedded_broker.wire.records import decode

DECODED_BYTES_MAX = 128 * 1024 * 1024


class Refused(Exception):
    """A batch that isn't appended; `error_code` is the protocol's reason."""

    def __init__(self, error_code: ErrorCode, detail: str) -> None:
        super().__init__(detail)
        self.error_code = error_code


@dataclass(frozen=True, slots=True)
class Appended:
    """Where a batch stands. `append_time_ms` is -1 unless the topic has LogAppendTime."""

    base_offset: int
    append_time_ms: int


@dataclass(frozen=True, slots=True)
class Rules:
    """What a topic's configs ask of a batch."""

    message_bytes_max: int
    log_append_time: bool
    before_ms_max: int
    after_ms_max: int
    needs_keys: bool

    @classmethod
    def of(cls, configs: Mapping[str, str]) -> Rules:
        """From a topic's own configs."""
        return cls(
            number(configs, "max.message.bytes"),
            value(configs, "message.timestamp.type") == "LogAppendTime",
            number(configs, "message.timestamp.before.max.ms"),
            number(configs, "message.timestamp.after.max.ms"),
            is_compacted(configs),
        )


BEFORE_UNBOUNDED = int(CONFIGS["message.timestamp.before.max.ms"].default)


def append(
    partition: Partition, records: bytes | None, now_ms: int, transactional_id: str | None, verify: Verify
) -> Appended:
    """Check a client's batch and append it, not durably yet. A duplicate gets its first place.

    `verify` says whether a batch that would open a transaction belongs to one that the coordinator knows.
    Raises Refused with nothing appended, or OSError.
    """
    rules = Rules.of(partition.configs)
    header = check(records, rules, now_ms)
    assert records is not None
    if header.is_transactional and transactional_id is None:
        raise Refused(
            ErrorCode.transactional_id_authorization_failed,
            "a transactional batch in a request without a transactional id",
        )
    if header.is_transactional and not partition.producers.has_open(header.producer_id, header.producer_epoch):
        # Else a late batch would open a transaction that nobody ends (KIP-890).
        error_code = verify(partition, header)
        if error_code is not ErrorCode.none:
            raise Refused(error_code, f"producer {header.producer_id} has not added the partition to a transaction")
    verdict = partition.producers.check(header, now_ms)
    if isinstance(verdict, Refuse):
        raise Refused(verdict.error_code, f"producer {header.producer_id}, sequence {header.base_sequence}")
    if isinstance(verdict, Duplicate):
        return Appended(verdict.base_offset, verdict.timestamp_ms if rules.log_append_time else -1)
    append_time_ms = now_ms if rules.log_append_time else None
    base_offset = partition.append(records, append_time_ms=append_time_ms, now_ms=now_ms)
    return Appended(base_offset, now_ms if rules.log_append_time else -1)


def check(records: bytes | None, rules: Rules, now_ms: int) -> BatchHeader:
    """The header of the one batch that `records` must be. Raises Refused."""
    if not records:
        raise Refused(ErrorCode.invalid_record, "no batch")
    try:
        header = read_header(records)
        if header.size_bytes > len(records):
            raise CorruptBatch(f"a batch of {header.size_bytes} bytes in {len(records)}")
        if header.size_bytes < len(records):
            raise Refused(ErrorCode.invalid_record, "more than one batch for a partition")
        if header.size_bytes > rules.message_bytes_max:
            raise Refused(
                ErrorCode.message_too_large, f"{header.size_bytes} bytes, the topic takes {rules.message_bytes_max}"
            )
        check_crc(records)
    except UnsupportedMagic as error:
        raise Refused(ErrorCode.unsupported_for_message_format, str(error)) from error
    except CorruptBatch as error:
        raise Refused(ErrorCode.corrupt_message, str(error)) from error
    _check_header(header)
    if not rules.log_append_time:
        _check_time(header, rules, now_ms)
    if rules.needs_keys or rules.before_ms_max < BEFORE_UNBOUNDED:
        _check_records(records, header, rules, now_ms)
    return header


def _check_header(header: BatchHeader) -> None:
    if header.base_offset != 0:
        raise Refused(ErrorCode.invalid_record, f"base offset {header.base_offset}")
    if header.record_count <= 0 or header.last_offset_delta != header.record_count - 1:
        raise Refused(
            ErrorCode.invalid_record, f"{header.record_count} records, last offset {header.last_offset_delta}"
        )
    if header.is_control:
        raise Refused(ErrorCode.invalid_record, "clients write no control batches")
    if header.compression > 4:
        raise Refused(ErrorCode.unsupported_compression_type, f"compression {header.compression}")


def _check_time(header: BatchHeader, rules: Rules, now_ms: int) -> None:
    if header.max_timestamp - now_ms > rules.after_ms_max:
        raise Refused(ErrorCode.invalid_timestamp, f"{header.max_timestamp} is too far in the future")


def _check_records(batch: bytes, header: BatchHeader, rules: Rules, now_ms: int) -> None:
    try:
        records = decode(batch, DECODED_BYTES_MAX)
    except CorruptBatch as error:
        raise Refused(ErrorCode.corrupt_message, str(error)) from error
    for record in records:
        if rules.needs_keys and record.key is None:
            raise Refused(ErrorCode.invalid_record, "a compacted topic takes no record without a key")
        if not rules.log_append_time and 0 <= record.timestamp_ms < now_ms - rules.before_ms_max:
            raise Refused(ErrorCode.invalid_timestamp, f"{record.timestamp_ms} is too far in the past")
