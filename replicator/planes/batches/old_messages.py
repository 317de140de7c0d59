"""Decodes a message of format v0 or v1, alone or around compressed ones. Sans-I/O; called by `decoding`.

    offset i64 | size i32 | CRC-32 u32 | magic i8 | attributes i8 | timestamp i64, v1 only | key | value

Key and value stand behind an i32 length; -1: none. The value of a compressed message holds messages without
compression: in v0 with offsets of their own, in v1 counted from the first one, and the last has the outer one's offset
(org.apache.kafka.common.record.AbstractLegacyRecordBatch). Messages of v0 have no time, which is -1 in v2 too.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from kafka_records.batch import COMPRESSION_MASK, TIMESTAMP_TYPE, Buffer, CorruptBatch
from kafka_records.compression import DecodedTooLarge, decompress
from kafka_records.records import Record

_HEAD = Struct(">qiIbb")
_TIMESTAMP, _LENGTH = Struct(">q"), Struct(">i")
_CRC_FROM, _SIZE_FROM = 16, 12
_NO_TIMESTAMP = -1
_MESSAGE_BYTES_MIN = 26
RECORD_OBJECT_BYTES = 256
"""What a decoded record takes besides its content, with what holds it. No more records are decoded than fit so."""


class _Message(NamedTuple):
    offset: int
    magic: int
    attributes: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


def decode_old(data: Buffer, decoded_bytes_max: int) -> tuple[int, list[Record]]:
    """Return compression type and records of one message, which has passed `read_batches`.

    Raises CorruptBatch for a wrong CRC or length, DecodedTooLarge when the records need more than `decoded_bytes_max`.
    """
    view = memoryview(data)
    outer = _message(view)
    codec = outer.attributes & COMPRESSION_MASK
    if not codec:
        return 0, [_record(outer, outer.offset, outer)]
    if outer.value is None:
        raise CorruptBatch("a compressed message without a value", outer.offset)
    try:
        inner = _inner(outer, decompress(codec, outer.value, decoded_bytes_max)[:], decoded_bytes_max)
    except DecodedTooLarge:
        raise
    except CorruptBatch as error:
        raise CorruptBatch(str(error), outer.offset) from error
    if not inner:
        raise CorruptBatch("a compressed message without messages", outer.offset)
    first = outer.offset - inner[-1].offset if outer.magic else 0
    return codec, [_record(each, first + each.offset, outer) for each in inner]


def _inner(outer: _Message, body: bytes | bytearray, decoded_bytes_max: int) -> list[_Message]:
    found: list[_Message] = []
    for message in _messages(memoryview(body)):
        if message.magic != outer.magic or message.attributes & COMPRESSION_MASK:
            raise CorruptBatch(f"a message of format {message.magic} in one of format {outer.magic}, or in two")
        found.append(message)
        if len(found) * RECORD_OBJECT_BYTES + len(body) > decoded_bytes_max:
            raise DecodedTooLarge(f"more than {len(found)} messages need more than {decoded_bytes_max} bytes")
    return found


def _messages(view: memoryview) -> Iterator[_Message]:
    at = 0
    while at < len(view):
        if len(view) - at < _MESSAGE_BYTES_MIN:
            raise CorruptBatch(f"{len(view) - at} bytes are too few for a message")
        end = at + _SIZE_FROM + _LENGTH.unpack_from(view, at + 8)[0]
        if not at + _MESSAGE_BYTES_MIN <= end <= len(view):
            raise CorruptBatch(f"a message of {end - at} bytes in {len(view) - at}")
        yield _message(view[at:end])
        at = end


def _message(view: memoryview) -> _Message:
    offset, _, crc, magic, attributes = _HEAD.unpack_from(view)
    if zlib.crc32(view[_CRC_FROM:]) != crc:
        raise CorruptBatch(f"the CRC of a message of format {magic} is wrong", offset)
    at, timestamp_ms = _HEAD.size, _NO_TIMESTAMP
    if magic and len(view) >= at + _TIMESTAMP.size:
        (timestamp_ms,) = _TIMESTAMP.unpack_from(view, at)
    at += _TIMESTAMP.size if magic else 0
    key, at = _field(view, at, offset)
    value, at = _field(view, at, offset)
    if at != len(view):
        raise CorruptBatch(f"{len(view) - at} bytes behind a message's value", offset)
    return _Message(offset, magic, attributes, timestamp_ms, key, value)


def _field(view: memoryview, at: int, offset: int) -> tuple[bytes | None, int]:
    begin = at + _LENGTH.size
    if begin > len(view):
        raise CorruptBatch("a message ends inside a length", offset)
    (length,) = _LENGTH.unpack_from(view, at)
    if length < -1 or begin + length > len(view):
        raise CorruptBatch(f"a field of {length} bytes in {len(view) - begin}", offset)
    return (None, begin) if length < 0 else (bytes(view[begin : begin + length]), begin + length)


def _record(message: _Message, offset: int, outer: _Message) -> Record:
    timestamp_ms = outer.timestamp_ms if outer.attributes & TIMESTAMP_TYPE else message.timestamp_ms
    return Record(offset, timestamp_ms, message.key, message.value)
