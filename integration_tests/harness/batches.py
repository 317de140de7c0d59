"""Record batches byte by byte, sound or not: each field can be given, and the CRC is right all the same."""

from __future__ import annotations

import struct
import time
from collections.abc import Sequence

import cramjam
from crc32c import crc32c

HEADER = struct.Struct(">qiibIhiqqqhii")


def _lz4(body: bytes) -> bytes:
    compressor = cramjam.lz4.Compressor(block_linked=False)  # Kafka takes no other frames
    compressor.compress(body)
    return bytes(compressor.finish())


COMPRESS = (
    bytes,
    lambda body: bytes(cramjam.gzip.compress(body)),
    lambda body: bytes(cramjam.snappy.compress_raw(body)),
    _lz4,
    lambda body: bytes(cramjam.zstd.compress(body)),
)
"""By the number in the attributes."""
TRANSACTIONAL, CONTROL, LOG_APPEND_TIME = 0x10, 0x20, 0x08


def varint(value: int) -> bytes:
    """As in org.apache.kafka.common.utils.ByteUtils.writeVarlong."""
    zigzag, out = ((value << 1) ^ (value >> 63)) & (2**64 - 1), bytearray()
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    return bytes([*out, zigzag])


def field(value: bytes | None) -> bytes:
    """A key or a value behind its length."""
    return varint(-1) if value is None else varint(len(value)) + value


def record(
    value: bytes | None = b"v", key: bytes | None = b"k", *, offset: int = 0, after_ms: int = 0, length: int = 0
) -> bytes:
    """One record; `after_ms` is from the batch's base timestamp, `length` is added to the true one."""
    body = b"\x00" + varint(after_ms) + varint(offset) + field(key) + field(value) + varint(0)
    return varint(len(body) + length) + body


def batch(
    records: Sequence[bytes] = (),
    *,
    body: bytes | None = None,
    count: int | None = None,
    last_delta: int | None = None,
    attributes: int = 0,
    timestamp_ms: int | None = None,
    span_ms: int = 0,
    producer: tuple[int, int] = (-1, -1),
    sequence: int = -1,
    base_offset: int = 0,
    magic: int = 2,
) -> bytes:
    """A batch of these records, compressed as `attributes` say; `body` stands for all that follows the header.

    Args:
        records: encoded ones.
        body: instead of the records.
        count: number of records in the header; the true one by default.
        last_delta: in the header; fits the count by default.
        attributes: see the constants.
        timestamp_ms: base timestamp; now by default.
        span_ms: from the base timestamp to the highest.
        producer: id and epoch.
        sequence: of the first record.
        base_offset: in the header.
        magic: in the header.
    """
    found = len(records) if count is None else count
    base = time.time_ns() // 1_000_000 if timestamp_ms is None else timestamp_ms
    content = body if body is not None else COMPRESS[attributes & 7](b"".join(records))
    fields = (
        attributes,
        found - 1 if last_delta is None else last_delta,
        base,
        base + span_ms,
        *producer,
        sequence,
        found,
    )
    made = bytearray(HEADER.pack(base_offset, 49 + len(content), -1, magic, 0, *fields) + content)
    made[17:21] = crc32c(bytes(made[21:])).to_bytes(4, "big")
    return bytes(made)
