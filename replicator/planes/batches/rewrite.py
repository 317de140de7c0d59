"""A batch of the source as one of a producer of ours: its header is written anew, its records stay as they are. Pure.

    byte  0 base offset      → 0                     byte 21 attributes      → codec, transactional; nothing else
    byte  8 length             kept                  byte 23 last offset delta, timestamps: kept
    byte 12 leader epoch     → -1                    byte 43 producer id and epoch, base sequence → ours
    byte 16 magic              2                     byte 57 record count, and the records: kept
    byte 17 CRC-32C          → of bytes 21…

A batch that would be refused so, or whose records would be others, is decoded instead: `why_decoded`. Called by
`merge`, and by whoever sends.
"""

from __future__ import annotations

from enum import StrEnum
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from kafka_records.batch import (
    COMPRESSION_MASK,
    CRC_START,
    HEADER,
    HEADER_BYTES,
    MAGIC,
    TRANSACTIONAL,
    BatchHeader,
    Buffer,
)
from kafka_records.rebuild import DELETE_HORIZON

_CRC_AT = 17
_CRC = Struct(">I")


class WhyDecoded(StrEnum):
    """Why a batch can't be passed on as it is."""

    PART = "only some of its records are wanted"
    OLD_FORMAT = "it has message format v0 or v1"
    GAPS = "compaction took records out of it, and a client's batch may have no gaps"
    LOG_APPEND_TIME = "its records have the time that the source's broker gave the batch, not their own"
    DELETE_HORIZON = "compaction wrote a delete horizon where the base timestamp was (KIP-534)"
    TOO_LARGE = "it is larger than the target takes"


class ProducerIdentity(NamedTuple):
    """What InitProducerId or EndTxn gave."""

    producer_id: int
    epoch: int


def why_decoded(header: BatchHeader, batch_bytes_max: int) -> WhyDecoded | None:
    """Tell why a whole batch must be decoded; None: it is passed on.

    `batch_bytes_max`: what the target topic takes (max.message.bytes), the batch header included.
    """
    if header.record_count != header.last_offset_delta + 1:
        return WhyDecoded.GAPS
    if header.is_log_append_time:
        return WhyDecoded.LOG_APPEND_TIME
    if header.attributes & DELETE_HORIZON:
        return WhyDecoded.DELETE_HORIZON
    return WhyDecoded.TOO_LARGE if header.size_bytes > batch_bytes_max else None


class RewrittenBatch(NamedTuple):
    """A batch as it is sent: its new header, and its records where they are, which are not copied."""

    head: bytes
    records: memoryview


def rewritten(header: BatchHeader, batch: Buffer, producer: ProducerIdentity, base_sequence: int) -> RewrittenBatch:
    """Return the batch as one of `producer`, in its open transaction. Its memory is used as long as that is kept.

    Args:
        header: that of the batch.
        batch: a whole batch, whose CRC has been checked.
        producer: who writes it.
        base_sequence: the sequence of its first record.
    """
    records = memoryview(batch)[HEADER_BYTES:]
    head = bytearray(HEADER_BYTES)
    HEADER.pack_into(
        head, 0, 0, header.batch_length, -1, MAGIC, 0, header.attributes & COMPRESSION_MASK | TRANSACTIONAL,
        header.last_offset_delta, header.base_timestamp, header.max_timestamp,
        producer.producer_id, producer.epoch, base_sequence, header.record_count,
    )  # fmt: skip
    _CRC.pack_into(head, _CRC_AT, crc32c(records, crc32c(memoryview(head)[CRC_START:])))
    return RewrittenBatch(bytes(head), records)
