"""Records inside a batch: for internal logs, markers, timestamps and rules that need keys. Sans-I/O.

Varints are zigzag-encoded as in org.apache.kafka.common.utils.ByteUtils. Claimed lengths are checked against
the bytes left before anything is allocated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from struct import Struct
from typing import NamedTuple

from embedded_broker.wire import batch as batches
from embedded_broker.wire.batch import BatchHeader, Buffer, CorruptBatch, read_header
from embedded_broker.wire.compression import Decompressed, decompress

Body = bytes | Decompressed
"""What follows a batch's header, decompressed."""
_CONTROL_KEY = Struct(">hh")
_CONTROL_VALUE = Struct(">hi")
ABORT, COMMIT = 0, 1
DECODED_BYTES_MAX = 256 * 1024 * 1024
RUN_MAX = 256
"""Bounds what is compared in vain when lengths alternate."""
RECORD_BYTES_MIN = 7
"""A record without key, value and headers, its length included."""
RECORDS_PER_BYTE_MAX = 4
"""Of a compressed body. Offsets count up within a batch, so the smallest records at zstd's highest level reach 1.3."""
STEP_ITEMS = 500
"""How much is looked at between two steps of `lengths` and `look_through`."""


Headers = Sequence[tuple[bytes, bytes | None]]


class Record(NamedTuple):
    """One record; `offset` and `timestamp_ms` are absolute."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()


def varint(value: int) -> bytes:
    """A number as records have them."""
    zigzag = (value << 1) ^ (value >> 63)
    zigzag &= (1 << 64) - 1
    out = bytearray()
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


def field(value: bytes | None) -> bytes:
    """A byte string behind its length; -1 stands for none."""
    return varint(-1) if value is None else varint(len(value)) + value


def _headers(headers: Headers) -> bytes:
    return varint(len(headers)) + b"".join(field(key) + field(value) for key, value in headers)


class _Cursor:
    """Reads varints and byte strings; refuses lengths beyond the bytes left."""

    def __init__(self, data: Body, at: int = 0) -> None:
        self.data, self.at = data, at

    def varint(self) -> int:
        """The next number, which has 64 bits at most."""
        at = self.at
        try:
            byte = self.data[at]
            if byte < 0x80:  # nearly all
                self.at = at + 1
                return (byte >> 1) ^ -(byte & 1)
            value, shift = byte & 0x7F, 7
            while byte >= 0x80:
                if shift > 63:
                    raise CorruptBatch("number longer than 64 bits")
                at += 1
                byte = self.data[at]
                value |= (byte & 0x7F) << shift
                shift += 7
        except IndexError as error:
            raise CorruptBatch("record ends inside a number") from error
        if value >= 1 << 64:
            raise CorruptBatch("number longer than 64 bits")
        self.at = at + 1
        return (value >> 1) ^ -(value & 1)

    def field(self) -> bytes | None:
        """The next byte string, behind its length; None for length -1."""
        length = self.varint()
        if length == -1:
            return None
        begin, end = self.at, self.at + length
        if length < 0 or end > len(self.data):
            raise CorruptBatch(f"field of {length} bytes in {len(self.data) - begin}")
        self.at = end
        return bytes(self.data[begin:end])

    def skip_field(self) -> bool:
        """As `field`, but only whether there is one."""
        length = self.varint()
        if length < -1 or length > len(self.data) - self.at:
            raise CorruptBatch(f"field of {length} bytes in {len(self.data) - self.at}")
        self.at += max(length, 0)
        return length >= 0

    def headers(self) -> tuple[tuple[bytes, bytes | None], ...]:
        """All headers of a record, in order."""
        count = self.varint()
        if count < 0 or count > len(self.data) - self.at:
            raise CorruptBatch(f"{count} headers in {len(self.data) - self.at} bytes")
        found = []
        for _ in range(count):
            key = self.field()
            if key is None:
                raise CorruptBatch("header without a key")
            found.append((key, self.field()))
        return tuple(found)


def encode(records: Sequence[tuple[bytes | None, bytes | None]], timestamp_ms: int, **header: int) -> bytearray:
    """An uncompressed batch of key-value records, all with one timestamp; `header` goes to `batch.seal`.

    Offsets begin at 0; the log stamps them.
    """
    return _encode(records, [b"\x00"] * len(records), timestamp_ms, **header)


def encode_with_headers(
    records: Sequence[tuple[bytes | None, bytes | None, Headers]], timestamp_ms: int, **header: int
) -> bytearray:
    """As `encode`, of records with headers."""
    pairs = [(key, value) for key, value, _ in records]
    return _encode(pairs, [_headers(headers) for _, _, headers in records], timestamp_ms, **header)


def _encode(
    records: Sequence[tuple[bytes | None, bytes | None]], headers: Sequence[bytes], timestamp_ms: int, **header: int
) -> bytearray:
    out = bytearray()
    for delta, (key, value) in enumerate(records):
        body = b"\x00" + varint(0) + varint(delta) + field(key) + field(value) + headers[delta]
        out += varint(len(body)) + body
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
    """Whether a control batch is a commit marker. Raises CorruptBatch when it is no control batch."""
    records = decode(batch)
    key = records[0].key if records else None
    if key is None or len(key) < _CONTROL_KEY.size:
        raise CorruptBatch("control record without its key")
    return bool(_CONTROL_KEY.unpack_from(key)[1] == COMMIT)


def body_of(header: BatchHeader, batch: Buffer, bytes_max: int = DECODED_BYTES_MAX) -> Body:
    """What follows a batch's header, decompressed: at most `bytes_max`.

    Raises DecodedTooLarge when it is larger, CorruptBatch when it can't be decompressed, or can't be as many records.
    """
    body = memoryview(batch)[batches.HEADER_BYTES : header.size_bytes]
    if not header.compression:
        return bytes(body)
    if header.record_count > RECORDS_PER_BYTE_MAX * len(body):
        raise CorruptBatch(f"{header.record_count} records in {len(body)} compressed bytes")
    return decompress(header.compression, body, bytes_max)


def check_lengths(body: Body, count: int) -> None:
    """Raises CorruptBatch unless `body` is `count` records by their lengths; what is inside them isn't looked at."""
    for _ in lengths(body, count):
        pass


def lengths(body: Body, count: int) -> Iterator[int]:
    """`check_lengths` in steps: yields what it has spent, in items, whenever that is about STEP_ITEMS.

    Every batch goes through here. Lengths of one or two bytes, nearly all, are read in place, and records of one length
    that follow each other are compared column by column.
    """
    at, left, size = 0, count, len(body)
    if left * RECORD_BYTES_MIN > size:
        raise CorruptBatch(f"{count} records do not fit into {size} bytes")
    until_step = STEP_ITEMS
    while left:
        if at >= size:
            raise CorruptBatch(f"{count} records do not fit into {size} bytes")
        first, begin = body[at], at
        if first < 0x80:
            zigzag, head = first, 1
        elif at + 1 < size and body[at + 1] < 0x80:
            zigzag, head = first & 0x7F | body[at + 1] << 7, 2
        else:
            cursor = _Cursor(body, at)
            zigzag, head = 2 * cursor.varint(), cursor.at - at
        if zigzag & 1 or zigzag >> 1 < RECORD_BYTES_MIN - 1:
            raise CorruptBatch(f"record without a length at {at}")
        stride = head + (zigzag >> 1)
        at += stride
        left -= 1
        if left and at < size and body[at] == first:
            run = _run(body, at, body[begin : begin + head], stride, min(left, RUN_MAX))
            at, left = at + run * stride, left - run
        until_step -= 1
        if not until_step:
            until_step = STEP_ITEMS
            yield STEP_ITEMS
    if at != size:
        raise CorruptBatch(f"{count} records do not fill {size} bytes")


def _run(body: Body, at: int, prefix: bytes | bytearray, stride: int, most: int) -> int:
    """How many of the next records, up to `most`, begin with the same length and are whole but for the last."""
    end = at + stride * most
    columns = (body[at + number : end : stride] for number in range(len(prefix)))
    return min(len(column) - len(column.lstrip(prefix[number : number + 1])) for number, column in enumerate(columns))


def decode(batch: Buffer, bytes_max: int = DECODED_BYTES_MAX) -> list[Record]:
    """All records of one batch, with absolute offsets and timestamps.

    Args:
        batch: one whole batch, whose CRC has been checked.
        bytes_max: cap on the decompressed body.

    Raises CorruptBatch when the records don't fill the body exactly. Source: DefaultRecordBatch and DefaultRecord.
    """
    header = read_header(batch)
    return decode_body(header, body_of(header, batch, bytes_max))


def decode_body(header: BatchHeader, data: Body) -> list[Record]:
    """As `decode`, from what `body_of` gave."""
    if header.record_count < 0 or header.record_count > len(data):
        raise CorruptBatch(f"{header.record_count} records in {len(data)} bytes")
    cursor, records = _Cursor(data), []
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


def begins_at_base_timestamp(data: Body) -> bool:
    """Whether the first record has the batch's base timestamp, as producers write it. `data` has passed `lengths`."""
    at = 0
    while data[at] >= 0x80:  # its length, then a byte of attributes
        at += 1
    return data[at + 2] == 0


def look_through(header: BatchHeader, data: Body, visit: Callable[[int, int, bool], object]) -> Iterator[int]:
    """Go through all records without keeping anything of them: as `decode_body`, in steps as `lengths` makes them.

    Args:
        header: of the batch.
        data: what `body_of` gave.
        visit: called for each record with its place, its timestamp and whether it has a key.

    Raises CorruptBatch.
    """
    if header.record_count < 0 or header.record_count > len(data):
        raise CorruptBatch(f"{header.record_count} records in {len(data)} bytes")
    cursor, items = _Cursor(data), 0
    append_time = header.max_timestamp if header.is_log_append_time else None
    for place in range(header.record_count):
        length = cursor.varint()
        end = cursor.at + length
        if length <= 0 or end > len(data):
            raise CorruptBatch(f"record of {length} bytes in {len(data) - cursor.at}")
        cursor.at += 1  # attributes, unused
        timestamp = header.base_timestamp + cursor.varint()
        cursor.varint()
        visit(place, timestamp if append_time is None else append_time, cursor.skip_field())
        cursor.skip_field()
        count = cursor.varint()
        if count < 0 or count > len(data) - cursor.at:
            raise CorruptBatch(f"{count} headers in {len(data) - cursor.at} bytes")
        items += 2
        for _ in range(count):
            if not cursor.skip_field():
                raise CorruptBatch("header without a key")
            cursor.skip_field()
            items += 1
            if items >= STEP_ITEMS:
                yield items
                items = 0
        if cursor.at != end:
            raise CorruptBatch("record length does not fit its fields")
        if items >= STEP_ITEMS:
            yield items
            items = 0
    if cursor.at != len(data):
        raise CorruptBatch(f"{len(data) - cursor.at} bytes after the last record")
