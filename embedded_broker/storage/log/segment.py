"""One segment file: whole batches one after another, with a sparse index in memory.

The index comes from the scan at open, or from its own file for what a checkpoint covers. What was not scanned is
not known to be sound, so every read checks what it gives out.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from pathlib import Path
from struct import Struct, error

from crc32c import crc32c

from embedded_broker.config.thresholds import DEFAULTS, Thresholds
from embedded_broker.storage.log import index
from embedded_broker.storage.log.format import index_name, segment_name
from embedded_broker.storage.log.fs import FileSystem
from embedded_broker.storage.log.index import SparseIndex, Summary
from embedded_broker.storage.log.walking import Readable, walk
from kafka_records.batch import (
    CRC_START,
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    MAGIC,
    BatchHeader,
    Buffer,
    CorruptBatch,
    UnsupportedMagic,
    read_header,
)

_PLACE = Struct(">qi4xb6xi")  # base offset, length, magic, last offset delta: the first 27 bytes
_CRC = Struct(">I")  # at byte 17
OnBatch = Callable[[BatchHeader, memoryview], None]


class CorruptLog(Exception):
    """Bytes that were durable are wrong, missing, or can't be read now: the partition must not be served."""


class Segment:
    """Appends and reads in one file. Whatever can't be read is CorruptLog, so that it stops the partition only.

    Index: entry i is a batch (its base offset and position). A batch that begins `index_bytes` or more behind the last
    entry becomes an entry, so between two entries all batches *begin* within `index_bytes` of the first of the two, and
    larger batches are found without reading.
    """

    def __init__(
        self,
        fs: FileSystem,
        directory: Path,
        base_offset: int,
        gaps_below: int = 0,
        name: str | None = None,
        thresholds: Thresholds = DEFAULTS,
    ) -> None:
        """Open or create the file (called `name`, for a while), which is not read yet. Raises OSError.

        Offsets up to `gaps_below` may be missing before a batch: compaction has been there.
        """
        self.gaps_below, self._thresholds = gaps_below, thresholds
        self.base_offset = self.end_offset = base_offset  # end_offset: the offset after the last batch
        self.path = directory / (name or segment_name(base_offset))
        self.max_timestamp = -1
        self.is_named = False  # whether the file's name is durable in its directory
        self.sound_bytes = 0  # what `scan` has found good
        self.index_path = directory / index_name(base_offset)
        self.indexed_end = -1  # the end offset that the index file was written for
        self._file = fs.open(self.path)
        self._index = SparseIndex()
        self._first_timestamp: int | None = None
        self._holds, self._is_closed = 0, False

    @property
    def size_bytes(self) -> int:
        """Bytes in the file."""
        return self._file.size()

    def restore(self, data: bytes, below: int) -> None:
        """Take over the index file's `data` for what is below offset `below`; nothing if it isn't of use.

        The scan goes on where that ends: at the end of the file if all of it is below, else at an entry of the index.
        """
        found = index.decode(data)
        if found is None or found[0].base_offset != self.base_offset or found[0].size_bytes > self._file.size():
            return
        summary, entries = found
        if summary.end_offset <= below and summary.size_bytes == self._file.size():
            self._index, self.indexed_end = entries, summary.end_offset
            self.end_offset, self.max_timestamp = summary.end_offset, summary.max_timestamp
            self.sound_bytes = summary.size_bytes
            return
        last = bisect_right(entries.offsets, below) - 1
        if last >= 0:
            self.end_offset, self.sound_bytes = entries.offsets[last], entries.positions[last]
            self.max_timestamp = entries.times[last]
            entries.cut(last)  # the scan meets that batch and makes the entry again
            self._index = entries

    def largest_timestamp(self) -> int:
        """Return its records' highest timestamp; if none has one (-1), when its file was written to last. Milliseconds
        since 1970. Source: org.apache.kafka.storage.internals.log.LogSegment.largestTimestamp. Raises CorruptLog."""
        return self.max_timestamp if self.max_timestamp >= 0 else self.modified_ms()

    def modified_ms(self) -> int:
        """Return when the file was written to last. Raises CorruptLog."""
        try:
            return self._file.modified_ms()
        except OSError as cause:
            raise self._corrupt(0, f"its time can't be read: {cause}") from cause

    def set_modified_ms(self, time_ms: int) -> None:
        """Note that it takes the place of what was written to last at this time. Raises OSError."""
        self._file.set_modified_ms(time_ms)

    def first_timestamp(self) -> int | None:
        """Return the highest timestamp of the first batch, from which on the time counts after which the segment is
        closed.

        Raises CorruptLog.
        """
        if self._first_timestamp is None and self._file.size() >= HEADER_BYTES:
            self._first_timestamp = self._header_at(0).max_timestamp
        return self._first_timestamp

    def index_bytes(self) -> bytes:
        """Return the index file's bytes for all that has been appended."""
        summary = Summary(self.base_offset, self.end_offset, self._file.size(), self.max_timestamp)
        return index.encode(summary, self._index)

    def scan(self, on_batch: OnBatch, show_from: int = 0) -> str | None:
        """Check every batch from `sound_bytes` on, build the index, call `on_batch` for those from `show_from` on.

        Returns what is wrong with the first unsound batch, which stands at `sound_bytes`; None when all are sound.
        Raises CorruptLog when the disk doesn't give the bytes: they may be sound, so they must not be cut.
        """
        for header, view, wrong in walk(_Checked(self, self._file), self.sound_bytes, self._thresholds.scan_bytes):
            if header is None:
                return wrong
            base = header.base_offset
            if not self._follows(base, self.end_offset) or header.last_offset_delta < 0:  # offsets are in no CRC
                return f"offsets {base} to {header.last_offset}, {self.end_offset} is next"
            self._note(header, self.sound_bytes)
            self.sound_bytes += len(view)
            if base >= show_from:
                on_batch(header, view)
        return None

    def batches(self) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Yield all batches in order, checked. Raises CorruptLog at one that isn't sound."""
        at = 0
        for header, view, wrong in walk(_Checked(self, self._file), 0, self._thresholds.scan_bytes):
            if header is None:
                raise self._corrupt(at, wrong)
            yield header, view
            at += header.size_bytes

    def _follows(self, base_offset: int, expected: int) -> bool:
        """Return whether a batch may begin at `base_offset` where `expected` is next."""
        return base_offset == expected or expected < base_offset <= self.gaps_below

    def _corrupt(self, at: int, wrong: str) -> CorruptLog:
        return CorruptLog(f"{self.path} at byte {at}: {wrong}")

    def read_bytes(self, at: int, size: int) -> bytes:
        """Read bytes as they are, see fs.File. Raises CorruptLog."""
        try:
            return self._file.read(at, size)
        except OSError as cause:
            raise self._corrupt(at, f"{size} bytes can't be read: {cause}") from cause

    def _header_at(self, at: int) -> BatchHeader:
        try:
            return read_header(self.read_bytes(at, HEADER_BYTES))
        except (CorruptBatch, UnsupportedMagic) as cause:
            raise self._corrupt(at, str(cause)) from cause

    def truncate(self, size_bytes: int) -> None:
        """Truncate what `scan` didn't find sound. Raises OSError."""
        self._file.truncate(size_bytes)

    def _note(self, header: BatchHeader, position: int) -> None:
        positions = self._index.positions
        if position == 0:
            self._first_timestamp = header.max_timestamp
        if not positions or position - positions[-1] >= self._thresholds.index_bytes:
            self._index.add(header.base_offset, position, self.max_timestamp)
        self.end_offset = header.last_offset + 1
        if header.max_timestamp > self.max_timestamp:
            self.max_timestamp = header.max_timestamp

    def append(self, header: BatchHeader, batch: Buffer) -> None:
        """Append one stamped batch; raises OSError with nothing changed."""
        position = self._file.size()
        self._file.append(batch)
        self._note(header, position)  # last: a flush by another thread counts what is below end_offset as written

    def read(self, offset: int, bytes_max: int, up_to: int) -> bytes:
        """Read whole batches from the one that holds `offset` to below `up_to`; at least one if there is any.

        Raises CorruptLog when what is there now is not what was written.
        """
        if offset >= min(self.end_offset, up_to):
            return b""
        begin, expected = self._position_of(offset)
        end = self._end_of_read(begin, bytes_max, up_to)
        if end <= begin:
            return b""
        data = self.read_bytes(begin, end - begin)
        self._check(data, begin, expected)
        return data

    def _check(self, data: bytes, begin: int, expected: int) -> None:
        """Raise CorruptLog unless `data`, read at `begin`, is whole batches with right CRCs, from `expected` on."""
        view, at, size = memoryview(data), 0, len(data)
        while at < size:
            base, end, last_delta = self._place(data, at, begin, expected)
            if end > size:
                raise self._corrupt(begin + at, f"a batch of {end - at} bytes in {size - at}")
            if crc32c(view[at + CRC_START : end]) != _CRC.unpack_from(data, at + 17)[0]:
                raise self._corrupt(begin + at, f"the CRC of the batch at offset {base} is wrong")
            at, expected = end, base + last_delta + 1

    def _place(self, block: bytes, at: int, start: int, expected: int | None = None) -> tuple[int, int, int]:
        """Return (base offset, where the batch ends in `block`, last offset delta) of the batch at `at`.

        Raises CorruptLog when none can be there, or it doesn't begin at offset `expected`.
        """
        try:
            base, length, magic, last_delta = _PLACE.unpack_from(block, at)
        except error as cause:
            raise self._corrupt(start + at, "no batch begins here") from cause
        if length < HEADER_BYTES - LENGTH_OVERHEAD or magic != MAGIC:  # a loop must get on
            raise self._corrupt(start + at, f"batch length {length}, magic {magic}")
        if expected is not None and not (last_delta >= 0 and self._follows(base, expected)):
            raise self._corrupt(start + at, f"offsets {base} to {base + last_delta}, {expected} is next")
        return base, at + LENGTH_OVERHEAD + length, last_delta

    def position_of(self, offset: int) -> int:
        """Return where the first batch begins that ends at or after `offset`; the end of the file if there is none.

        Reads `index_bytes` at most. Raises CorruptLog.
        """
        return self._position_of(offset)[0] if offset < self.end_offset else self._file.size()

    def _position_of(self, offset: int) -> tuple[int, int]:
        """Return where the first batch begins that ends at or after `offset`, which is below `end_offset`; the offset
        there.

        That offset is as the batches before it say, so `_check` can tell if the batch itself says another.
        """
        entry = max(bisect_right(self._index.offsets, offset) - 1, 0)
        start, expected = self._index.positions[entry], self._index.offsets[entry]
        if expected >= offset:
            return start, expected
        stop = self._entry_end(entry) - start
        block, at = self.read_bytes(start, self._thresholds.index_bytes + HEADER_BYTES), 0
        while at < stop:
            base, end, last_delta = self._place(block, at, start, expected)
            if base + last_delta >= offset:
                break
            at, expected = end, base + last_delta + 1
        return start + at, expected

    def _end_of_read(self, begin: int, bytes_max: int, up_to: int) -> int:
        """Return where a read from `begin` ends: before the first batch that exceeds `bytes_max` or begins at
        `up_to`.
        """
        limit, size = begin + bytes_max, self._file.size()
        if up_to >= self.end_offset and size <= limit:
            return size
        entry = bisect_right(self._index.positions, limit) - 1
        if up_to < self.end_offset:
            entry = min(entry, bisect_left(self._index.offsets, up_to) - 1)
        if entry < 0:
            return begin
        start = max(self._index.positions[entry], begin)
        stop, limit, at = self._entry_end(entry) - start, limit - start, 0
        block = self.read_bytes(start, self._thresholds.index_bytes + HEADER_BYTES)
        while at < stop:
            base, end, _ = self._place(block, at, start)
            if base >= up_to or (end > limit and start + at > begin):
                break
            at = end
            if at >= limit:
                break
        return start + at

    def _entry_end(self, entry: int) -> int:
        """Return where the batches of an index entry end."""
        positions = self._index.positions
        return positions[entry + 1] if entry + 1 < len(positions) else self._file.size()

    def batch_at_time(self, timestamp_ms: int, offset_min: int) -> tuple[BatchHeader, bytes] | None:
        """Find the first batch whose header says that it has a record at or after a time, and that ends at `offset_min`
        or above. None when there is none. Raises CorruptLog."""
        for header, at in self._headers_from(timestamp_ms, offset_min):
            if header.max_timestamp >= timestamp_ms and header.last_offset >= offset_min:
                data = self.read_bytes(at, header.size_bytes)
                self._check(data, at, header.base_offset)
                return header, data
        return None

    def latest_batch(self) -> BatchHeader | None:
        """Find the header of the first batch with the segment's highest timestamp. Raises CorruptLog."""
        if self.max_timestamp < 0:
            return None
        found = (header for header, _ in self._headers_from(self.max_timestamp, self.base_offset))
        return next((header for header in found if header.max_timestamp == self.max_timestamp), None)

    def _headers_from(self, timestamp_ms: int, offset_min: int) -> Iterator[tuple[BatchHeader, int]]:
        """Yield headers and positions, from a batch before which no record at or after both bounds stands."""
        if offset_min >= self.end_offset or timestamp_ms > self.max_timestamp:
            return
        entry = max(bisect_left(self._index.times, timestamp_ms) - 1, 0)
        at = max(self._index.positions[entry], self._position_of(offset_min)[0])
        while at < self._file.size():
            header = self._header_at(at)
            yield header, at
            at += header.size_bytes

    def write_again(self, offset: int) -> None:
        """Write all batches from the one with `offset` on once more, in their places. Raises OSError, CorruptLog."""
        if offset < self.end_offset:
            self._file.write_again(0 if offset <= self.base_offset else self._position_of(offset)[0])

    def sync(self) -> None:
        """Make all appended bytes durable; from any thread. Raises SyncFailed."""
        self._file.sync()

    def hold(self) -> None:
        """Keep the file open for a reader in another thread, until `release`, even if the segment is removed."""
        self._holds += 1

    def release(self) -> None:
        """End a `hold`."""
        self._holds -= 1
        if self._is_closed and not self._holds:
            self._file.close()

    def close(self) -> None:
        """Close the file, once nobody holds it."""
        self._is_closed = True
        if not self._holds:
            self._file.close()


class _Checked:
    """A segment's file for `walk`, which must not take a disk that fails for the end of what is sound."""

    def __init__(self, segment: Segment, file: Readable) -> None:
        self._segment, self.size = segment, file.size

    def read(self, at: int, size: int) -> bytes:
        """See Readable."""
        return self._segment.read_bytes(at, size)
