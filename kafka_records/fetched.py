"""The batches of a Fetch response: which offsets they span, and which of those hold a record. Sans-I/O.

A batch as it was produced has `last_offset_delta + 1` records; so have commit and abort markers. Log compaction takes
records out and leaves base offset and `last_offset_delta` as they were (org.apache.kafka.common.record.MemoryRecords,
filterTo; DefaultRecordBatch).
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from kafka_records.batch import LENGTH_OVERHEAD, MAGIC, BatchHeader, CorruptBatch, check_crc, read_header
from kafka_records.compression import DecodedTooLarge
from kafka_records.records import body_of, offset_deltas
from kafka_records.small_batches import SmallBatches, read_small

_PREFIX = Struct(">qiib")
_OLD_BYTES_MIN = 14  # leader epoch's place (a CRC), magic, attributes, lengths of key and value
_OFFSET_MAX = 2**63 - 1
Span = tuple[int, int]
"""Offsets [first, end)."""


class FetchedBatch(NamedTuple):
    """A sound batch of format v2: its header, and all its bytes."""

    header: BatchHeader
    data: memoryview

    @property
    def first_offset(self) -> int:
        """The offset of its first record, also if compaction removed that."""
        return self.header.base_offset

    @property
    def last_offset(self) -> int:
        """The offset of its last record, also if compaction removed that."""
        header = self.header
        return header.base_offset + header.last_offset_delta


class OldMessage(NamedTuple):
    """A message of format v0 or v1, alone or around compressed ones. It doesn't say how many offsets it spans: only the
    last one is known. `data`: all its bytes, offset and length included."""

    last_offset: int
    data: memoryview


def read_batches(data: bytes | memoryview) -> Iterator[FetchedBatch | OldMessage]:
    """Yield the batches of a Fetch response's records; the last one may be cut, and is left out then.

    Raises CorruptBatch for one that is there and isn't sound: its CRC, a length, offsets that can't be.
    """
    for batch in read_together(data, 0, 0):
        assert not isinstance(batch, SmallBatches)
        yield batch


def read_together(
    data: bytes | memoryview, offset_min: int, offset_end: int
) -> Iterator[FetchedBatch | OldMessage | SmallBatches]:
    """Read as `read_batches` does, and small batches together that lie from `offset_min` to below `offset_end`."""
    view, at, after = memoryview(data), 0, -1
    size, last_at, prefix = len(view), len(view) - _PREFIX.size, _PREFIX.unpack_from
    while at <= last_at:
        if offset_end and (few := read_small(view, at, max(offset_min, after + 1), offset_end)) is not None:
            at, after = at + len(few.data), few.next_offset - 1
            yield few
            continue
        offset, length, _, magic = prefix(view, at)
        end = at + LENGTH_OVERHEAD + length
        if offset < 0 or length < _OLD_BYTES_MIN:
            raise CorruptBatch(f"a batch of {length} bytes at offset {offset}")
        if end > size:
            return
        batch: FetchedBatch | OldMessage
        if magic < MAGIC:
            batch = _old(view[at:end], offset, magic)
            last = offset
        else:
            batch = _batch(view[at:end], offset)
            last = offset + batch.header.last_offset_delta
        if (last if magic < MAGIC else offset) <= after:
            raise CorruptBatch(f"it follows one that ends at offset {after}", offset)
        after = last
        yield batch
        at = end


def _old(data: memoryview, offset: int, magic: int) -> OldMessage:
    if magic not in (0, 1):
        raise CorruptBatch(f"magic {magic}", offset)
    return OldMessage(offset, data)


def _batch(data: memoryview, offset: int) -> FetchedBatch:
    try:
        header = read_header(data)
        check_crc(data)
    except CorruptBatch as error:
        raise CorruptBatch(str(error), offset) from error
    count, delta = header.record_count, header.last_offset_delta
    if delta < 0 or offset > _OFFSET_MAX - delta or not 0 <= count <= delta + 1:
        raise CorruptBatch(f"{count} records, and {delta} from its first offset to its last", offset)
    return FetchedBatch(header, data)


def holes_in(batch: FetchedBatch, decoded_bytes_max: int) -> list[Span]:
    """Return the offsets that a batch spans and that hold no record, as ranges [first, end) in order.

    A batch with as many records as offsets has none, and isn't looked into.

    Args:
        decoded_bytes_max: largest size of the records, decompressed.

    Raises:
        CorruptBatch: the records aren't what the header says.
        DecodedTooLarge: they are larger than `decoded_bytes_max`.
    """
    offset, count = batch.first_offset, batch.header.record_count
    offsets = batch.header.last_offset_delta + 1
    if count == offsets:
        return []
    try:
        deltas = offset_deltas(body_of(batch.header, batch.data, decoded_bytes_max), count)
    except DecodedTooLarge:
        raise
    except CorruptBatch as error:
        raise CorruptBatch(str(error), offset) from error
    found: list[Span] = []
    following = 0
    for delta in deltas:
        if not following <= delta < offsets:
            raise CorruptBatch(
                f"a record stands {delta} offsets from its first, where {following} or more comes", offset
            )
        if delta > following:
            found.append((offset + following, offset + delta))
        following = delta + 1
    if following < offsets:
        found.append((offset + following, offset + offsets))
    return found
