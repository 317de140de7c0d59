"""Small batches that follow each other in a Fetch response, read and kept together. Sans-I/O.

Where a batch has a few records only, an object of its own costs more than its bytes. What isn't as producers write it
ends them, and is left to `fetched.read_batches`, which says what is wrong with it, if anything is.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from kafka_records.batch import CRC_START, HEADER_BYTES, LENGTH_OVERHEAD, MAGIC, TRANSACTIONAL

RECORDS_MAX = 64
"""Of a small batch: offsets up to there have one byte in it."""
BATCH_BYTES_MAX, BYTES_MAX = 16 * 1024, 64 * 1024
"""Of one of them; of those that are kept together, the last one begins below."""
_ROW = Struct(">qiibIhiqq14xi")
_LENGTH_MIN = HEADER_BYTES - LENGTH_OVERHEAD
_UNUSUAL = ~TRANSACTIONAL

BatchRow = tuple[int, int, int, int]
"""Of one batch: how many records, its base timestamp, where its records begin and end in the data."""


class SmallBatches(NamedTuple):
    """Sound plain batches without a gap in or between them, written under one leader epoch, none of them a control
    batch, with times from producers. No record is later than `max_timestamp`, as their headers say."""

    data: memoryview
    first_offset: int
    leader_epoch: int
    max_timestamp: int
    records: int
    rows: list[BatchRow]

    @property
    def next_offset(self) -> int:
        """One past the offset of the last record."""
        return self.first_offset + self.records

    @property
    def size_bytes(self) -> int:
        """Bytes of all of them."""
        return len(self.data)

    def batches(self) -> Iterator[memoryview]:
        """Yield the batches one by one, with their headers."""
        for _, _, begin, end in self.rows:
            yield self.data[begin - HEADER_BYTES : end]

    def cut(self, records: int) -> tuple[SmallBatches, SmallBatches | None]:
        """Divide them behind the batch with which there are so many records; None: that is the last one."""
        count = place = 0
        while place < len(self.rows) and count < records:
            count += self.rows[place][0]
            place += 1
        if place == len(self.rows):
            return self, None
        at = self.rows[place - 1][3]
        rest = [(count, base_ms, begin - at, end - at) for count, base_ms, begin, end in self.rows[place:]]
        return (
            self._replace(data=self.data[:at], records=count, rows=self.rows[:place]),
            self._replace(
                data=self.data[at:], first_offset=self.first_offset + count, records=self.records - count, rows=rest
            ),
        )


def read_small(view: memoryview, at: int, offset_min: int, offset_end: int) -> SmallBatches | None:
    """Read the small batches that stand at `at`, their CRCs checked; None: another one stands there, or none.

    Args:
        view: records of a Fetch response.
        at: where in it a batch begins.
        offset_min: where the first one may begin.
        offset_end: where the last one must have ended.
    """
    rows, start, size = list[BatchRow](), at, len(view)
    last_at, stop = size - HEADER_BYTES, at + BYTES_MAX
    first = following = leader_epoch = latest_ms = 0
    while at <= last_at and at < stop:
        offset, length, epoch, magic, crc, attributes, delta, base_ms, max_ms, count = _ROW.unpack_from(view, at)
        if not rows:
            if offset < offset_min:
                break
            first = following = offset
            leader_epoch = epoch
        end = at + LENGTH_OVERHEAD + length
        if (
            not _LENGTH_MIN <= length < BATCH_BYTES_MAX
            or end > size
            or magic != MAGIC
            or attributes & _UNUSUAL
            or not 0 < count <= RECORDS_MAX
            or count != delta + 1
            or offset != following
            or offset + count > offset_end
            or epoch != leader_epoch
            or crc32c(view[at + CRC_START : end]) != crc
        ):
            break
        rows.append((count, base_ms, at - start + HEADER_BYTES, end - start))
        following = offset + count
        if max_ms > latest_ms:
            latest_ms = max_ms
        at = end
    if not rows:
        return None
    return SmallBatches(view[start:at], first, leader_epoch, latest_ms, following - first, rows)
