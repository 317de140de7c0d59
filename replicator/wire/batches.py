"""Record batches as a Fetch response has them: which offsets they span, and which of those hold a record. Pure.

    base_offset i64 | batch_length i32 | leader_epoch i32 | magic i8 | crc u32 | attributes i16 |
    last_offset_delta i32 | base_timestamp i64 | max_timestamp i64 | producer_id i64 | producer_epoch i16 |
    base_sequence i32 | record_count i32 | records ...

A batch as it was produced has `last_offset_delta + 1` records; so have commit and abort markers. Log compaction takes
records out and leaves base offset and `last_offset_delta` as they were (org.apache.kafka.common.record.MemoryRecords,
filterTo; DefaultRecordBatch). Used by `holes`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from replicator.model.partition import Span
from replicator.wire.compression import Undecodable, decompress

_HEADER = Struct(">qiibIhiqqqhii")
_PREFIX = Struct(">qiib")
_LENGTH_OVERHEAD = 12  # base offset and length itself
_CRC_START = 21
_OLD_BYTES_MIN = 14  # leader epoch's place (a CRC), magic, attributes, lengths of key and value
_MAGIC = 2
_COMPRESSION_MASK = 0x07
_OFFSET_MAX = 2**63 - 1
_VARINT_BYTES_MAX = 10


class CorruptBatch(ValueError):
    """Bytes that are no sound batch. `offset` is its base offset, or -1 where that isn't known."""

    def __init__(self, detail: str, offset: int = -1) -> None:
        self.offset = offset
        super().__init__(detail)


class BatchHeader(NamedTuple):
    """The 61 bytes before the records, field by field."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch of format v2. `first_offset` to `last_offset` are the offsets it spans; `records` is what follows the
    header, as it is compressed."""

    header: BatchHeader
    records: memoryview

    @property
    def first_offset(self) -> int:
        """The offset of its first record, also if compaction removed that."""
        return self.header.base_offset

    @property
    def last_offset(self) -> int:
        """The offset of its last record, also if compaction removed that."""
        return self.header.base_offset + self.header.last_offset_delta


@dataclass(frozen=True, slots=True)
class OldMessage:
    """A message of format v0 or v1, alone or around compressed ones. It doesn't say how many offsets it spans: only the
    last one is known."""

    last_offset: int


def read_batches(data: bytes | memoryview) -> Iterator[Batch | OldMessage]:
    """Yields the batches of a Fetch response's records; the last one may be cut, and is left out then.

    Raises CorruptBatch for one that is there and isn't sound: its CRC, a length, offsets that can't be.
    """
    view, at, after = memoryview(data), 0, -1
    while len(view) - at >= _PREFIX.size:
        offset, length, _, magic = _PREFIX.unpack_from(view, at)
        end = at + _LENGTH_OVERHEAD + length
        if offset < 0 or length < _OLD_BYTES_MIN:
            raise CorruptBatch(f"a batch of {length} bytes at offset {offset}")
        if end > len(view):
            return
        batch = _old(offset, magic) if magic < _MAGIC else _batch(view[at:end], offset)
        first = batch.last_offset if isinstance(batch, OldMessage) else batch.first_offset
        if first <= after:
            raise CorruptBatch(f"it follows one that ends at offset {after}", offset)
        after = batch.last_offset
        yield batch
        at = end


def _old(offset: int, magic: int) -> OldMessage:
    if magic not in (0, 1):
        raise CorruptBatch(f"format {magic}", offset)
    return OldMessage(offset)


def _batch(view: memoryview, offset: int) -> Batch:
    if view[16] != _MAGIC:
        raise CorruptBatch(f"format {view[16]}", offset)
    if len(view) < _HEADER.size:
        raise CorruptBatch(f"{len(view)} bytes are too few for its header", offset)
    header = BatchHeader._make(_HEADER.unpack_from(view))
    found = crc32c(view[_CRC_START:])
    if found != header.crc:
        raise CorruptBatch(f"its CRC is {found:#010x}, its header says {header.crc:#010x}", offset)
    count, delta = header.record_count, header.last_offset_delta
    if delta < 0 or offset > _OFFSET_MAX - delta or not 0 <= count <= delta + 1:
        raise CorruptBatch(f"{count} records, and {delta} from its first offset to its last", offset)
    return Batch(header, view[_HEADER.size :])


def holes_in(batch: Batch, decoded_bytes_max: int) -> list[Span]:
    """The offsets that a batch spans and that hold no record, as ranges [first, end) in order.

    A batch with as many records as offsets has none, and isn't looked into.

    Args:
        decoded_bytes_max: largest size of the records, decompressed.

    Raises:
        CorruptBatch: the records aren't what the header says.
        TooLarge: they are larger than `decoded_bytes_max`.
    """
    offset, count = batch.first_offset, batch.header.record_count
    offsets = batch.header.last_offset_delta + 1
    if count == offsets:
        return []
    codec = batch.header.attributes & _COMPRESSION_MASK
    try:
        records = decompress(codec, batch.records, decoded_bytes_max) if codec and batch.records else batch.records
        deltas = _offset_deltas(bytes(records), count)
    except Undecodable as error:
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


def _offset_deltas(data: bytes, count: int) -> list[int]:
    """Where records stand, from the base offset of their batch. What else is in them isn't decoded.

    Raises Undecodable unless the records are `count` and fill `data`.
    """
    at, size, deltas = 0, len(data), list[int]()
    try:
        for _ in range(count):
            length, begin = _varint(data, at)
            if length > size - begin:
                raise Undecodable(f"a record of {length} bytes where {size - begin} are left")
            at = begin + 1  # behind its attributes
            while data[at] >= 0x80:  # its time
                at += 1
            delta, end = _varint(data, at + 1)
            if at - begin > _VARINT_BYTES_MAX or end > begin + length:
                raise Undecodable(f"a record of {length} bytes ends inside a number")
            deltas.append(delta)
            at = begin + length
    except IndexError as error:
        raise Undecodable(f"{count} records don't fit into {size} bytes") from error
    if at != size:
        raise Undecodable(f"{count} records fill {at} bytes of {size}")
    return deltas


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """(number, where it ends), as in org.apache.kafka.common.utils.ByteUtils.readVarlong. Raises IndexError at the end
    of the data."""
    byte = data[at]
    if byte < 0x80:  # nearly all
        return (byte >> 1) ^ -(byte & 1), at + 1
    value, shift = byte & 0x7F, 7
    while byte >= 0x80:
        if shift >= 7 * _VARINT_BYTES_MAX:
            raise Undecodable(f"a number longer than {_VARINT_BYTES_MAX} bytes")
        at += 1
        byte = data[at]
        value |= (byte & 0x7F) << shift
        shift += 7
    return (value >> 1) ^ -(value & 1), at + 1
