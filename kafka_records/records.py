"""Records inside a batch, encoded and decoded. Sans-I/O. Source: DefaultRecordBatch and DefaultRecord of Kafka.

    length varint | attributes i8 | timestamp_delta varlong | offset_delta varint | key_length varint | key |
    value_length varint | value | header_count varint | (key_length | key | value_length | value) …

Claimed lengths are checked against the bytes left before anything is allocated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kafka_records.batch import HEADER_BYTES, BatchHeader, Buffer, CorruptBatch, read_header, write_header
from kafka_records.compression import Decompressed, decompress
from kafka_records.varints import Cursor, field, varint

Body = bytes | memoryview | Decompressed
"""What follows a batch's header, decompressed."""
COPIED_BYTES_MAX = 64 * 1024
"""A longer body that isn't compressed is looked at where it stands."""
DECODED_BYTES_MAX = 256 * 1024 * 1024
RECORDS_PER_BYTE_MAX = 4
"""Of a compressed body. Offsets count up within a batch, so the smallest records at zstd's highest level reach 1.3."""

IN_FRONT = b"\x00\x00"
"""A record's attributes, which are unused, and the difference of its timestamp from the batch's."""
NO_HEADERS = b"\x00"

Headers = Sequence[tuple[bytes, bytes | None]]


class Record(NamedTuple):
    """One record; `offset` and `timestamp_ms` are absolute."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()


def _headers(headers: Headers) -> bytes:
    return varint(len(headers)) + b"".join(field(key) + field(value) for key, value in headers)


def encode(records: Sequence[tuple[bytes | None, bytes | None]], timestamp_ms: int, **header: int) -> bytearray:
    """Make an uncompressed batch of key-value records, all with one timestamp; `header` goes to `write_header`.

    Offsets begin at 0; the log stamps them.
    """
    return encode_from_fields([record_fields(*record) for record in records], timestamp_ms, **header)


def encode_with_headers(
    records: Sequence[tuple[bytes | None, bytes | None, Headers]], timestamp_ms: int, **header: int
) -> bytearray:
    """Encode as `encode` does, of records with headers."""
    return encode_from_fields([record_fields(*record) for record in records], timestamp_ms, **header)


def record_fields(key: bytes | None, value: bytes | None, headers: Headers = ()) -> bytes:
    """Return what a record has behind its place in the batch, for `encode_from_fields`."""
    return field(key) + field(value) + (_headers(headers) if headers else NO_HEADERS)


def encode_from_fields(fields: Sequence[bytes], timestamp_ms: int, **header: int) -> bytearray:
    """Encode as `encode` does, of records whose larger part was made before: each byte of them is copied once."""
    parts = [bytes(HEADER_BYTES)]
    for delta, each in enumerate(fields):
        head = IN_FRONT + varint(delta)
        parts += (varint(len(head) + len(each)), head, each)
    batch = bytearray().join(parts)
    write_header(batch, len(fields), timestamp_ms, timestamp_ms, **header)
    return batch


def body_of(header: BatchHeader, batch: Buffer, bytes_max: int = DECODED_BYTES_MAX) -> Body:
    """Return what follows a batch's header, decompressed: at most `bytes_max`.

    Raises DecodedTooLarge when it is larger, CorruptBatch when it can't be decompressed, or can't be as many records.
    """
    body = memoryview(batch)[HEADER_BYTES : header.size_bytes]
    if not header.compression or not body:  # a batch that compaction has emptied keeps its codec
        return bytes(body) if len(body) <= COPIED_BYTES_MAX else body
    if header.record_count > RECORDS_PER_BYTE_MAX * len(body):
        raise CorruptBatch(f"{header.record_count} records in {len(body)} compressed bytes")
    return decompress(header.compression, body, bytes_max)


def decode(batch: Buffer, bytes_max: int = DECODED_BYTES_MAX) -> list[Record]:
    """Decode all records of one batch, with absolute offsets and timestamps.

    Args:
        batch: one whole batch, whose CRC has been checked.
        bytes_max: cap on the decompressed body.

    Raises CorruptBatch when the records don't fill the body exactly. Source: DefaultRecordBatch and DefaultRecord.
    """
    header = read_header(batch)
    return decode_body(header, body_of(header, batch, bytes_max))


def decode_body(header: BatchHeader, data: Body) -> list[Record]:
    """Decode as `decode` does, from what `body_of` gave."""
    if header.record_count < 0 or header.record_count > len(data):
        raise CorruptBatch(f"{header.record_count} records in {len(data)} bytes")
    cursor, records = Cursor(data), []
    append_time = header.max_timestamp if header.is_log_append_time else None
    for _ in range(header.record_count):
        length = cursor.varint()
        end = cursor.at + length
        if length <= 0 or end > len(data):
            raise CorruptBatch(f"record of {length} bytes in {len(data) - cursor.at}")
        cursor.at += 1  # attributes, unused
        timestamp = header.base_timestamp + cursor.varint()
        offset = header.base_offset + cursor.varint()
        key, value = cursor.field(), cursor.field()
        headers = cursor.headers()
        if cursor.at != end:
            raise CorruptBatch("record length does not fit its fields")
        records.append(Record(offset, timestamp if append_time is None else append_time, key, value, headers))
    if cursor.at != len(data):
        raise CorruptBatch(f"{len(data) - cursor.at} bytes after the last record")
    return records


def offset_deltas(data: Body, count: int) -> list[int]:
    """Return how far each record stands from the base offset of its batch. What else is in the records isn't decoded.

    Raises CorruptBatch unless the records are `count` and fill `data`.
    """
    cursor, deltas = Cursor(data), list[int]()
    for _ in range(count):
        length = cursor.varint()
        end = cursor.at + length
        if length <= 0 or end > len(data):
            raise CorruptBatch(f"record of {length} bytes in {len(data) - cursor.at}")
        cursor.at += 1  # attributes, unused
        cursor.varint()
        deltas.append(cursor.varint())
        if cursor.at > end:
            raise CorruptBatch(f"a record of {length} bytes ends inside a number")
        cursor.at = end
    if cursor.at != len(data):
        raise CorruptBatch(f"{len(data) - cursor.at} bytes after the last record")
    return deltas
