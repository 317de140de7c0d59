"""Looks through the records of a batch without keeping anything of them: whether they fill it, their times, their keys.

All ways through are generators that yield what they have spent, so that whoever runs them on an event loop can let
others run meanwhile. Sans-I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator

from kafka_records.batch import BatchHeader, CorruptBatch
from kafka_records.records import Body
from kafka_records.varints import Cursor

RUN_MAX = 256
"""Bounds what is compared in vain when lengths alternate."""
RECORD_BYTES_MIN = 7
"""A record without key, value and headers, its length included."""
STEP_ITEMS = 500
"""How much is looked at between two steps of `lengths` and `look_through`."""


def check_lengths(body: Body, count: int) -> None:
    """Raise CorruptBatch unless `body` is `count` records by their lengths; what is inside them isn't looked at."""
    for _ in lengths(body, count):
        pass


def lengths(body: Body, count: int) -> Iterator[int]:
    """Check as `check_lengths` does, in steps: yield what it has spent, in items, whenever that is about STEP_ITEMS.

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
            cursor = Cursor(body, at)
            zigzag, head = 2 * cursor.varint(), cursor.at - at
        if zigzag & 1 or zigzag >> 1 < RECORD_BYTES_MIN - 1:
            raise CorruptBatch(f"record without a length at {at}")
        stride = head + (zigzag >> 1)
        at += stride
        left -= 1
        if left and at < size and body[at] == first:
            run = _run(body, at, bytes(body[begin : begin + head]), stride, min(left, RUN_MAX))
            at, left = at + run * stride, left - run
        until_step -= 1
        if not until_step:
            until_step = STEP_ITEMS
            yield STEP_ITEMS
    if at != size:
        raise CorruptBatch(f"{count} records do not fill {size} bytes")


def _run(body: Body, at: int, prefix: bytes, stride: int, most: int) -> int:
    """Return how many of the next records, up to `most`, begin with the same length and are whole but for the last."""
    end = at + stride * most
    columns = (bytes(body[at + number : end : stride]) for number in range(len(prefix)))
    return min(len(column) - len(column.lstrip(prefix[number : number + 1])) for number, column in enumerate(columns))


def begins_at_base_timestamp(data: Body) -> bool:
    """Return whether the first record has the batch's base timestamp, as producers write it. `data` has passed
    `lengths`.
    """
    at = 0
    while data[at] >= 0x80:  # its length, then a byte of attributes
        at += 1
    return data[at + 2] == 0


def first_at(
    header: BatchHeader, data: Body, timestamp_ms: int, offset_min: int
) -> Generator[int, None, tuple[int, int] | None]:
    """Find (offset, timestamp) of the first record at or after a time, not below `offset_min`; None if there is none.

    Keeps nothing, and looks no further, as Kafka. In steps as `lengths` makes them. Raises CorruptBatch.
    """
    cursor, append_time = Cursor(data), header.max_timestamp if header.is_log_append_time else None
    items = 0
    for _ in range(header.record_count):
        length = cursor.varint()
        end = cursor.at + length
        if length <= 0 or end > len(data):
            raise CorruptBatch(f"record of {length} bytes in {len(data) - cursor.at}")
        cursor.at += 1  # attributes, unused
        timestamp = header.base_timestamp + cursor.varint()
        offset = header.base_offset + cursor.varint()
        cursor.skip_field()
        cursor.skip_field()
        count = cursor.varint()
        if not 0 <= count <= len(data) - cursor.at:
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
        timestamp = timestamp if append_time is None else append_time
        if timestamp >= timestamp_ms and offset >= offset_min:
            return offset, timestamp
        if items >= STEP_ITEMS:
            yield items
            items = 0
    return None


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
    cursor, items = Cursor(data), 0
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
