"""Record batch format v2: the header, read and rewritten in place. Sans-I/O; records inside are read by `records`.

    base_offset i64 | batch_length i32 | leader_epoch i32 | magic i8 | crc u32 | attributes i16 |
    last_offset_delta i32 | base_timestamp i64 | max_timestamp i64 | producer_id i64 | producer_epoch i16 |
    base_sequence i32 | record_count i32 | records …

The CRC-32C covers everything from the attributes on (byte 21), so offset and leader epoch can be stamped without
touching it. Behaviour follows org.apache.kafka.common.record.DefaultRecordBatch.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct, error
from typing import NamedTuple

from crc32c import crc32c

Buffer = bytes | bytearray | memoryview

HEADER = Struct(">qiibIhiqqqhii")
HEADER_BYTES = HEADER.size  # 61
LENGTH_OVERHEAD = 12  # base offset and length itself
CRC_START = 21
MAX_TIMESTAMP_AT = 35
_STAMP = Struct(">qii")
_CRC = Struct(">I")
_INT64 = Struct(">q")
MAGIC = 2
COMPRESSION_MASK, TIMESTAMP_TYPE, TRANSACTIONAL, CONTROL = 0x07, 0x08, 0x10, 0x20
SEQUENCES = 1 << 31


class CorruptBatch(ValueError):
    """Bytes that are no whole, sound batch: too short, impossible length, wrong CRC. `offset` is its base offset, or -1
    where that isn't known."""

    def __init__(self, detail: str, offset: int = -1) -> None:
        self.offset = offset
        super().__init__(detail)


class UnsupportedMagic(ValueError):
    """A message format before v2."""


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

    @property
    def size_bytes(self) -> int:
        """Bytes of the whole batch."""
        return self.batch_length + LENGTH_OVERHEAD

    @property
    def last_offset(self) -> int:
        """Offset of the last record (also if compaction removed it)."""
        return self.base_offset + self.last_offset_delta

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record (also if compaction removed it); wraps from 2^31-1 to 0."""
        return (self.base_sequence + self.last_offset_delta) % SEQUENCES

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """Whether the batch is a commit or abort marker."""
        return bool(self.attributes & CONTROL)

    @property
    def is_log_append_time(self) -> bool:
        """Whether all records have the batch's highest timestamp, given by the broker."""
        return bool(self.attributes & TIMESTAMP_TYPE)

    @property
    def compression(self) -> int:
        """0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
        return self.attributes & COMPRESSION_MASK


def read_header(buffer: Buffer, at: int = 0) -> BatchHeader:
    """Read the header at `at`; raises CorruptBatch when it cannot be one, UnsupportedMagic for older formats."""
    try:
        header = BatchHeader._make(HEADER.unpack_from(buffer, at))
    except error as cause:
        raise CorruptBatch(f"{len(buffer) - at} bytes are too few for a batch header") from cause
    if header.magic != MAGIC:
        if header.magic in (0, 1):
            raise UnsupportedMagic(f"message format v{header.magic}")
        raise CorruptBatch(f"magic {header.magic}")
    if header.batch_length < HEADER_BYTES - LENGTH_OVERHEAD:
        raise CorruptBatch(f"batch length {header.batch_length}")
    return header


def iter_batches(buffer: Buffer) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield all batches of a buffer that must hold whole batches only; raises CorruptBatch otherwise."""
    view, at = memoryview(buffer), 0
    while at < len(view):
        header = read_header(view, at)
        end = at + header.size_bytes
        if end > len(view):
            raise CorruptBatch(f"batch of {header.size_bytes} bytes in {len(view) - at}")
        yield header, view[at:end]
        at = end


def check_crc(batch: Buffer) -> None:
    """Raise CorruptBatch when the CRC-32C of the batch is not what its header says."""
    found = crc32c(memoryview(batch)[CRC_START:])
    wanted = _CRC.unpack_from(batch, 17)[0]
    if found != wanted:
        raise CorruptBatch(f"CRC {found:#010x}, the header says {wanted:#010x}")


def stamp(
    batch: bytearray | memoryview, base_offset: int, leader_epoch: int, append_time_ms: int | None = None
) -> None:
    """Write the offset and leader epoch that the log gives; with `append_time_ms` also LogAppendTime."""
    length = _STAMP.unpack_from(batch, 0)[1]
    _STAMP.pack_into(batch, 0, base_offset, length, leader_epoch)
    if append_time_ms is not None:
        attributes = int.from_bytes(batch[21:23], "big") | TIMESTAMP_TYPE
        batch[21:23] = attributes.to_bytes(2, "big")
        _INT64.pack_into(batch, MAX_TIMESTAMP_AT, append_time_ms)
        _CRC.pack_into(batch, 17, crc32c(memoryview(batch)[CRC_START:]))


def set_max_timestamp(batch: bytearray | memoryview, timestamp_ms: int) -> None:
    """Say in the header that this is the highest timestamp of the records."""
    _INT64.pack_into(batch, MAX_TIMESTAMP_AT, timestamp_ms)
    _CRC.pack_into(batch, 17, crc32c(memoryview(batch)[CRC_START:]))


def set_create_time(batch: bytearray | memoryview) -> None:
    """Take LogAppendTime off a batch: the records' own times hold."""
    attributes = int.from_bytes(batch[21:23], "big") & ~TIMESTAMP_TYPE
    batch[21:23] = attributes.to_bytes(2, "big")
    _CRC.pack_into(batch, 17, crc32c(memoryview(batch)[CRC_START:]))


def write_header(
    batch: bytearray,
    count: int,
    base_timestamp: int,
    max_timestamp: int,
    attributes: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> None:
    """Write the header, with the CRC, before encoded records that stand behind `HEADER_BYTES` of `batch`; offsets begin
    at 0."""
    HEADER.pack_into(
        batch, 0, 0, len(batch) - LENGTH_OVERHEAD, -1, MAGIC, 0, attributes, count - 1, base_timestamp, max_timestamp,
        producer_id, producer_epoch, base_sequence, count,
    )  # fmt: skip
    _CRC.pack_into(batch, 17, crc32c(memoryview(batch)[CRC_START:]))
