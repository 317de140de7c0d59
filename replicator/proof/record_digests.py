"""Makes of each record what a comparison needs: offset, digest, key, time. Pure; used by `rows`.

The digest is blake2b-128 over time, key, value and headers, the same on both sides whatever the batch around them is. A
record's own bytes behind its offset serve for that, as long as each number in them is as short as can be: producers
need not write them so.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b, sha256
from struct import Struct

from kafka_records.batch import BatchHeader, CorruptBatch
from kafka_records.records import Body
from kafka_records.varints import Cursor, field, varint
from replicator.offset_map.verdicts import ComparedRecord

DIGEST_BYTES = 16
KEY_BYTES_MAX = 64
"""Of a key that is kept; of a longer one its beginning is, and its SHA-256, which Spark's JVM has as well."""
_TIME = Struct(">q").pack
_SHORT = [byte >> 1 if byte < 0x80 and not byte & 1 else -1 for byte in range(256)]
"""Numbers of one byte that aren't negative: nearly all are such, and a call for each would double the time."""


def compared_records(header: BatchHeader, data: Body) -> Iterator[ComparedRecord]:
    """Yield the records of a batch in their order.

    Args:
        data: what `body_of` gave, decompressed.

    Raises CorruptBatch when the records don't fill it exactly.
    """
    size = len(data)
    if header.record_count > size:
        raise CorruptBatch(f"{header.record_count} records in {size} bytes")
    base, base_ms = header.base_offset, header.base_timestamp
    append_ms = header.max_timestamp if header.is_log_append_time else None
    cursor, made, short = Cursor(data), ComparedRecord._make, _SHORT
    at = 0
    try:
        for _ in range(header.record_count):
            length, at = (short[data[at]], at + 1) if short[data[at]] >= 0 else _number(cursor, at)
            end, at = at + length, at + 1  # attributes, unused
            if length <= 0 or end > size:
                raise CorruptBatch(f"record of {length} bytes in {size - at}")
            delta, at = (short[data[at]], at + 1) if short[data[at]] >= 0 else _number(cursor, at)
            step, begin = (short[data[at]], at + 1) if short[data[at]] >= 0 else _number(cursor, at)
            key_bytes, key_at = (short[data[begin]], begin + 1) if short[data[begin]] >= 0 else _number(cursor, begin)
            value_at = key_at + key_bytes if key_bytes > 0 else key_at
            value_bytes, at = _number(cursor, value_at)
            plain = (key_at == begin + 1 or data[key_at - 1]) and (at == value_at + 1 or data[at - 1])
            if value_bytes > 0:
                at += value_bytes
            if key_bytes < -1 or value_bytes < -1 or at >= end:
                raise CorruptBatch("record length does not fit its fields")
            said = (
                bytes(data[begin:end]) if plain and data[at] == 0 and at + 1 == end else _canonical(cursor, begin, end)
            )
            key = None if key_bytes < 0 else bytes(data[key_at:value_at])
            if key is not None and key_bytes > KEY_BYTES_MAX:
                key = _kept(key)
            time_ms = base_ms + delta if append_ms is None else append_ms
            digest = blake2b(_TIME(time_ms) + said, digest_size=DIGEST_BYTES).digest()
            yield made((base + step, digest, key, value_bytes < 0, time_ms))
            at = end
    except IndexError as error:
        raise CorruptBatch("record ends inside a number") from error
    if at != size:
        raise CorruptBatch(f"{size - at} bytes after the last record")


def _number(cursor: Cursor, at: int) -> tuple[int, int]:
    """Read the number that stands there, and where it ends."""
    cursor.at = at
    return cursor.varint(), cursor.at


def _canonical(cursor: Cursor, begin: int, end: int) -> bytes:
    """Return the record's bytes from its key on, with each number as short as can be."""
    cursor.at = begin
    said = field(cursor.field()) + field(cursor.field())
    headers = cursor.headers()
    if cursor.at != end:
        raise CorruptBatch("record length does not fit its fields")
    return said + varint(len(headers)) + b"".join(field(key) + field(value) for key, value in headers)


def _kept(key: bytes) -> bytes:
    return key[:KEY_BYTES_MAX] + sha256(key).digest()
