"""A segment's sparse index: in memory, and as the file beside it. Layout: docs/log-format.md.

The file is only a short cut: it is written after what it speaks of was made durable, it says how much that is, and
when it is missing, damaged or of another segment, the segment is scanned instead.
"""

from __future__ import annotations

import sys
from array import array
from dataclasses import dataclass, field
from struct import Struct, error

from crc32c import crc32c

from kafka_records.batch import Buffer

MAGIC = b"EOSi"
HEAD = Struct(">4sIqqqqI")
_CRC_START = 8


def _column() -> array[int]:
    return array("q")


@dataclass(slots=True)
class SparseIndex:
    """Entry i is a batch: its base offset, its position, and the highest timestamp of all batches before it.

    Invariant: each column is ascending (the first two strictly), and all have the same length.
    """

    offsets: array[int] = field(default_factory=_column)
    positions: array[int] = field(default_factory=_column)
    times: array[int] = field(default_factory=_column)

    def add(self, offset: int, position: int, max_timestamp_before: int) -> None:
        """Add a new entry, behind all others."""
        self.offsets.append(offset)
        self.positions.append(position)
        self.times.append(max_timestamp_before)

    def cut(self, entries: int) -> None:
        """Keep the first `entries`."""
        for column in (self.offsets, self.positions, self.times):
            del column[entries:]


@dataclass(frozen=True, slots=True)
class Summary:
    """How much of a segment an index file speaks of."""

    base_offset: int
    end_offset: int
    size_bytes: int
    max_timestamp: int


def encode(summary: Summary, index: SparseIndex) -> bytes:
    """Encode the file's bytes."""
    columns = b"".join(map(_big_endian, (index.offsets, index.positions, index.times)))
    numbers = summary.base_offset, summary.end_offset, summary.size_bytes, summary.max_timestamp
    data = bytearray(HEAD.pack(MAGIC, 0, *numbers, len(index.offsets)) + columns)
    data[4:8] = crc32c(memoryview(data)[_CRC_START:]).to_bytes(4, "big")
    return bytes(data)


def decode(data: Buffer) -> tuple[Summary, SparseIndex] | None:
    """Decode what such a file says; None when it isn't sound."""
    try:
        magic, crc, base, end, size, latest, entries = HEAD.unpack_from(data)
    except error:
        return None
    view = memoryview(data)
    if magic != MAGIC or len(view) != HEAD.size + 24 * entries or crc32c(view[_CRC_START:]) != crc:
        return None
    columns = []
    for number in range(3):
        begin = HEAD.size + 8 * entries * number
        column = array("q", bytes(view[begin : begin + 8 * entries]))
        if sys.byteorder == "little":
            column.byteswap()
        columns.append(column)
    return Summary(base, end, size, latest), SparseIndex(*columns)


def _big_endian(column: array[int]) -> bytes:
    copy = array("q", column)
    if sys.byteorder == "little":
        copy.byteswap()
    return copy.tobytes()
