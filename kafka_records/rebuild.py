"""A batch with some of its records left out, for compaction, or with another compression, for the topics that ask for
one. Sans-I/O; Source: MemoryRecords.filterTo and LogValidator of Kafka.

What the batch says of its producer and of the offsets it spans stays as it was; records keep offset, timestamp, key,
value and headers, and the batch its compression.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from struct import Struct

import cramjam
from crc32c import crc32c

from kafka_records import compression
from kafka_records.batch import COMPRESSION_MASK, CRC_START, HEADER, HEADER_BYTES, LENGTH_OVERHEAD, BatchHeader
from kafka_records.records import Body, Record
from kafka_records.varints import field, varint

DELETE_HORIZON = 0x40
"""Attribute: the base timestamp says until when tombstones or the marker must be kept (KIP-534)."""
_BLOCK_BYTES = 64 * 1024
_LZ4_FRAME = bytes.fromhex("04224d18604082")  # independent blocks of 64 KiB, no checksums; Java reads no other kind
_LZ4_PLAIN = 1 << 31
_LZ4_SIZE = Struct("<I")
_XERIAL = b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
_BIG_SIZE = Struct(">I")


def delete_horizon_ms(header: BatchHeader) -> int | None:
    """Return until when the batch's tombstones or its marker must be kept; None: that was not decided yet."""
    return header.base_timestamp if header.attributes & DELETE_HORIZON else None


def rebuild(header: BatchHeader, kept: Sequence[Record], horizon_ms: int | None = None) -> bytes:
    """Make the batch of `header` with the records `kept` of it alone; with `horizon_ms` that becomes its delete
    horizon.
    """
    attributes, base_timestamp = header.attributes, header.base_timestamp
    if horizon_ms is not None:
        attributes, base_timestamp = attributes | DELETE_HORIZON, horizon_ms
    body = b"".join(_record(record, header.base_offset, base_timestamp) for record in kept)
    if kept and header.compression:
        body = _COMPRESS[header.compression](body)
    elif not kept:
        attributes &= ~0x07
    latest = header.max_timestamp
    if kept and not header.is_log_append_time:
        latest = max(record.timestamp_ms for record in kept)
    changed = header._replace(
        attributes=attributes, base_timestamp=base_timestamp, max_timestamp=latest, record_count=len(kept)
    )
    return _sealed(changed, body)


def recompressed(header: BatchHeader, body: Body, codec: int) -> bytes:
    """Make the batch of `header`, whose decompressed records are `body`, with another codec; 0 is none."""
    attributes = header.attributes & ~COMPRESSION_MASK | codec
    return _sealed(header._replace(attributes=attributes), _COMPRESS[codec](bytes(body)) if codec else bytes(body))


def _sealed(header: BatchHeader, body: bytes) -> bytes:
    """Make a whole batch with its length and CRC."""
    batch = bytearray(HEADER_BYTES + len(body))
    HEADER.pack_into(batch, 0, *header._replace(batch_length=len(batch) - LENGTH_OVERHEAD))
    batch[HEADER_BYTES:] = body
    batch[17:21] = crc32c(memoryview(batch)[CRC_START:]).to_bytes(4, "big")
    return bytes(batch)


def _record(record: Record, base_offset: int, base_timestamp: int) -> bytes:
    parts = [b"\x00", varint(record.timestamp_ms - base_timestamp), varint(record.offset - base_offset)]
    parts += [field(record.key), field(record.value), varint(len(record.headers))]
    for name, value in record.headers:
        parts += [field(name), field(value)]
    body = b"".join(parts)
    return varint(len(body)) + body


def _blocks(data: bytes) -> list[bytes]:
    return [data[at : at + _BLOCK_BYTES] for at in range(0, len(data), _BLOCK_BYTES)]


def _lz4(data: bytes) -> bytes:
    out = bytearray(_LZ4_FRAME)
    for block in _blocks(data):
        packed = bytes(cramjam.lz4.compress_block(block, store_size=False))
        if len(packed) < len(block):
            out += _LZ4_SIZE.pack(len(packed)) + packed
        else:
            out += _LZ4_SIZE.pack(len(block) | _LZ4_PLAIN) + block
    return bytes(out + _LZ4_SIZE.pack(0))


def _snappy(data: bytes) -> bytes:
    out = bytearray(_XERIAL)
    for block in _blocks(data):
        packed = bytes(cramjam.snappy.compress_raw(block))
        out += _BIG_SIZE.pack(len(packed)) + packed
    return bytes(out)


_COMPRESS: Mapping[int, Callable[[bytes], bytes]] = {
    compression.GZIP: lambda data: bytes(cramjam.gzip.compress(data)),
    compression.SNAPPY: _snappy,
    compression.LZ4: _lz4,
    compression.ZSTD: lambda data: bytes(cramjam.zstd.compress(data)),
}
