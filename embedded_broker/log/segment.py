"""One segment file: whole batches one after another, with a sparse index in memory.

The index is rebuilt by the scan at open, so it needs no file and cannot disagree with the log.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from pathlib import Path
from struct import Struct

from embedded_broker.log.format import segment_name
from embedded_broker.log.fs import FileSystem
from embedded_broker.wire.batch import HEADER_BYTES, BatchHeader, CorruptBatch, UnsupportedMagic, check_crc, read_header
from embedded_broker.wire.records import decode

INDEX_BYTES = 4096
SCAN_BYTES = 4 * 1024 * 1024
_START = Struct(">qi")  # base offset and length, the first 12 bytes of a batch
_LAST_DELTA = Struct(">i")  # at byte 23
OnBatch = Callable[[BatchHeader, memoryview], None]


class CorruptLog(Exception):
    """Bytes that were durable are wrong or missing now: the partition must not be served."""


class Segment:
    """Appends and reads in one file.

    Index: entry i is a batch (its base offset and position). A batch that begins INDEX_BYTES or more behind the last
    entry becomes an entry, so between two entries all batches *begin* within INDEX_BYTES of the first of the two, and
    batches larger than INDEX_BYTES are found without reading.
    """

    def __init__(self, fs: FileSystem, directory: Path, base_offset: int) -> None:
        """Open or create the file, which is not read yet. Raises OSError."""
        self.base_offset = self.end_offset = base_offset  # end_offset: the offset after the last batch
        self.path = directory / segment_name(base_offset)
        self.max_timestamp = -1
        self.is_named = False  # whether the file's name is durable in its directory
        self.sound_bytes = 0  # what `scan` has found good
        self._file = fs.open(self.path)
        self._offsets, self._positions = array("q"), array("q")
        self._times = array("q")  # highest timestamp of all batches before the entry: ascending

    @property
    def size_bytes(self) -> int:
        """Bytes in the file."""
        return self._file.size()

    def scan(self, on_batch: OnBatch) -> str | None:
        """Check every batch from the start, build the index, call `on_batch` for each.

        Returns what is wrong with the first unsound batch, which stands at `sound_bytes`; None when all are sound.
        """
        for header, view, wrong in self._walk():
            if header is None:
                return wrong
            if header.base_offset != self.end_offset or header.last_offset_delta < 0:  # offsets are in no CRC
                return f"offsets {header.base_offset} to {header.last_offset}, {self.end_offset} is next"
            self._note(header, self.sound_bytes)
            self.sound_bytes += header.size_bytes
            on_batch(header, view)
        return None

    def _walk(self) -> Iterator[tuple[BatchHeader | None, memoryview, str]]:
        """Sound batches from the start; last, if there is one, the first that isn't, as (None, nothing, why)."""
        at, size, data, start = 0, self._file.size(), memoryview(b""), 0
        while at < size:
            if at + HEADER_BYTES > start + len(data):
                data, start = memoryview(self._file.read(at, SCAN_BYTES)), at
            try:
                header = read_header(data, at - start)
                if header.size_bytes > size - at:
                    raise CorruptBatch(f"a batch of {header.size_bytes} bytes in {size - at}")
                if at + header.size_bytes > start + len(data):
                    data, start = memoryview(self._file.read(at, max(SCAN_BYTES, header.size_bytes))), at
                view = data[at - start : at - start + header.size_bytes]
                check_crc(view)
            except (CorruptBatch, UnsupportedMagic) as error:
                yield None, memoryview(b""), str(error)
                return
            yield header, view, ""
            at += header.size_bytes

    def truncate(self, size_bytes: int) -> None:
        """Cut what `scan` didn't find sound. Raises OSError."""
        self._file.truncate(size_bytes)

    def _note(self, header: BatchHeader, position: int) -> None:
        if not self._positions or position - self._positions[-1] >= INDEX_BYTES:
            self._offsets.append(header.base_offset)
            self._positions.append(position)
            self._times.append(self.max_timestamp)
        self.end_offset = header.last_offset + 1
        if header.max_timestamp > self.max_timestamp:
            self.max_timestamp = header.max_timestamp

    def append(self, header: BatchHeader, batch: bytes | bytearray) -> None:
        """Append one stamped batch; raises OSError with nothing changed."""
        position = self._file.size()
        self._file.append(batch)
        self._note(header, position)  # last: a flush by another thread counts what is below end_offset as written

    def read(self, offset: int, bytes_max: int, up_to: int) -> bytes:
        """Whole batches from the one that holds `offset` to below `up_to`; at least one if there is any."""
        if offset >= min(self.end_offset, up_to):
            return b""
        begin = self._position_of(offset)
        end = self._end_of_read(begin, bytes_max, up_to)
        return self._file.read(begin, end - begin) if end > begin else b""

    def _position_of(self, offset: int) -> int:
        """Where the first batch begins that ends at or after `offset`, which is below `end_offset`."""
        entry = max(bisect_right(self._offsets, offset) - 1, 0)
        at = self._positions[entry]
        if self._offsets[entry] >= offset:
            return at
        stop = self._entry_end(entry)
        block, start = self._file.read(at, INDEX_BYTES + HEADER_BYTES), at
        while at < stop:
            base, length = _START.unpack_from(block, at - start)
            if base + _LAST_DELTA.unpack_from(block, at - start + 23)[0] >= offset:
                return at
            at += 12 + length
        return at

    def _end_of_read(self, begin: int, bytes_max: int, up_to: int) -> int:
        """Where a read from `begin` ends: before the first batch that exceeds `bytes_max` or begins at `up_to`."""
        limit, size = begin + bytes_max, self._file.size()
        if up_to >= self.end_offset and size <= limit:
            return size
        entry = bisect_right(self._positions, limit) - 1
        if up_to < self.end_offset:
            entry = min(entry, bisect_left(self._offsets, up_to) - 1)
        if entry < 0:
            return begin
        at = start = max(self._positions[entry], begin)
        stop = self._entry_end(entry)
        block = self._file.read(start, INDEX_BYTES + _START.size)
        while at < stop:
            base, length = _START.unpack_from(block, at - start)
            end = at + 12 + length
            if base >= up_to or (end > limit and at > begin):
                break
            at = end
            if at >= limit:
                break
        return at

    def _entry_end(self, entry: int) -> int:
        """Where the batches of an index entry end."""
        return self._positions[entry + 1] if entry + 1 < len(self._positions) else self._file.size()

    def first_at_time(self, timestamp_ms: int, offset_min: int) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record at or after a time, not below `offset_min`."""
        for header, at in self._headers_from(timestamp_ms, offset_min):
            if header.max_timestamp >= timestamp_ms:
                for record in decode(self._file.read(at, header.size_bytes)):
                    if record.timestamp_ms >= timestamp_ms and record.offset >= offset_min:
                        return record.offset, record.timestamp_ms
        return None

    def latest_record(self) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record with the segment's highest timestamp; the batch's last if all share
        it by LogAppendTime, as in Kafka's DefaultRecordBatch.offsetOfMaxTimestamp."""
        if self.max_timestamp < 0:
            return None
        for header, _ in self._headers_from(self.max_timestamp, self.base_offset):
            if header.max_timestamp == self.max_timestamp and header.is_log_append_time:
                return header.last_offset, header.max_timestamp
            if header.max_timestamp == self.max_timestamp:
                return self.first_at_time(self.max_timestamp, header.base_offset)
        return None

    def _headers_from(self, timestamp_ms: int, offset_min: int) -> Iterator[tuple[BatchHeader, int]]:
        """Headers and positions, from a batch before which no record at or after both bounds stands."""
        if offset_min >= self.end_offset or timestamp_ms > self.max_timestamp:
            return
        entry = max(bisect_left(self._times, timestamp_ms) - 1, 0)
        at = max(self._positions[entry], self._position_of(offset_min))
        while at < self._file.size():
            header = read_header(self._file.read(at, HEADER_BYTES))
            yield header, at
            at += header.size_bytes

    def sync(self) -> None:
        """Make all appended bytes durable; from any thread. Raises OSError."""
        self._file.sync()

    def close(self) -> None:
        """Close the file."""
        self._file.close()
