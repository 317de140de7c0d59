"""Records inside a batch: for internal logs, markers, timestamps and rules that need keys. Sans-I/O.

Varints are zigzag-encoded as in org.apache.kafka.common.utils.ByteUtils. Claimed lengths are checked against
the bytes left before anything is allocated.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from embedded_broker.wire import batch as batches
from embedded_broker.wire.batch import Buffer, CorruptBatch, read_header
from embedded_broker.wire.compression import decompress

_CONTROL_KEY = Struct(">hh")
_CONTROL_VALUE = Struct(">hi")
ABORT, COMMIT = 0, 1


class Record(NamedTuple):
    """One record; `offset` and `timestamp_ms` are absolute."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()


def _varint(value: int) -> bytes:
    zigzag = (value << 1) ^ (value >> 63)
    zigzag &= (1 << 64) - 1
    out = bytearray()
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


def _bytes(value: bytes | None) -> bytes:
    return _varint(-1) if value is None else _varint(len(value)) + value


class _Cursor:
    """Reads varints and byte strings; refuses lengths beyond the bytes left."""

    def __init__(self, data: Buffer) -> None:
        self.data, self.at = data, 0

    def varint(self) -> int:
        shift = value = 0
        while True:
            if self.at >= len(self.data) or shift > 63:
                raise CorruptBatch("record ends inside a number")
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if not byte & 0x80:
                return (value >> 1) ^ -(value & 1)
            shift += 7

    def bytes(self) -> bytes | None:
        length = self.varint()
        if length < 0:
            return None
        end = self.at + length
        if end > len(self.data):
            raise CorruptBatch("record field longer than its batch")
        found = bytes(self.data[self.at : end])
        self.at = end
        return found


def encode(records: Sequence[tuple[bytes | None, bytes | None]], timestamp_ms: int, **header: int) -> bytearray:
    """An uncompressed batch of key-value records, all with one timestamp; `header` goes to `batch.seal`."""
    out = bytearray()
    for delta, (key, value) in enumerate(records):
        body = b"\x00" + _varint(0) + _varint(delta) + _bytes(key) + _bytes(value) + _varint(0)
        out += _varint(len(body)) + body
    return batches.seal(
        bytes(out), count=len(records), base_timestamp=timestamp_ms, max_timestamp=timestamp_ms, **header
    )


def marker(producer_id: int, producer_epoch: int, *, commit: bool, timestamp_ms: int) -> bytearray:
    """The control batch that ends a transaction (EndTransactionMarker of Kafka, version 0)."""
    key = _CONTROL_KEY.pack(0, COMMIT if commit else ABORT)
    return encode(
        [(key, _CONTROL_VALUE.pack(0, 0))],
        timestamp_ms,
        attributes=batches.CONTROL | batches.TRANSACTIONAL,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )


def marker_commits(batch: Buffer) -> bool:
    """Whether a control batch is a commit marker."""
    key = decode(batch)[0].key
    if key is None or len(key) < _CONTROL_KEY.size:
        raise CorruptBatch("control record without its key")
    return bool(_CONTROL_KEY.unpack_from(key)[1] == COMMIT)


def decode(batch: Buffer, bytes_max: int = 256 * 1024 * 1024) -> list[Record]:
    """All records of one batch; raises CorruptBatch. Decompression stops at `bytes_max`."""
    header = read_header(batch)
    body = memoryview(batch)[batches.HEADER_BYTES :]
    data: Buffer = decompress(header.compression, body, bytes_max) if header.compression else body
    if header.record_count < 0 or header.record_count > len(data):
        raise CorruptBatch(f"{header.record_count} records in {len(data)} bytes")
    cursor, records = _Cursor(data), []
    appended = bool(header.attributes & batches.TIMESTAMP_TYPE)
    for _ in range(header.record_count):
        length = cursor.varint()
        end = cursor.at + length
        if length < 0 or end > len(data):
            raise CorruptBatch("record longer than its batch")
        cursor.at += 1
        timestamp = header.base_timestamp + cursor.varint()
        offset = header.base_offset + cursor.varint()
        key, value = cursor.bytes(), cursor.bytes()
        count = cursor.varint()
        if count < 0 or count > len(data):
            raise CorruptBatch(f"{count} headers")
        headers = tuple((cursor.bytes() or b"", cursor.bytes()) for _ in range(count))
        if cursor.at != end:
            raise CorruptBatch("record length does not fit its fields")
        records.append(Record(offset, header.max_timestamp if appended else timestamp, key, value, headers))
    return records
