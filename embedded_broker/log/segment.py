"""One segment file: whole batches one after another, with a sparse index in memory.

The index is rebuilt by the scan at open, so it needs no file and cannot disagree with the log.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from pathlib import Path

from embedded_broker.log.fs import File, FileSystem
from embedded_broker.wire.batch import HEADER_BYTES, BatchHeader, CorruptBatch, UnsupportedMagic, check_crc, read_header

INDEX_BYTES = 4096
SCAN_BYTES = 4 * 1024 * 1024
OnBatch = Callable[[BatchHeader, memoryview], None]


class CorruptLog(Exception):
    """Bytes that were durable are wrong now: the partition must not be served."""


def file_name(base_offset: int) -> str:
    """Name of the segment that begins at `base_offset`."""
    return f"{base_offset:020d}.log"


class Segment:
    """Appends and reads in one file. `end_offset` is the offset after its last batch."""

    def __init__(self, fs: FileSystem, directory: Path, base_offset: int) -> None:
        self.base_offset = self.end_offset = base_offset
        self.path = directory / file_name(base_offset)
        self.max_timestamp = -1
        self.created_ms = -1
        self._file: File = fs.open(self.path)
        self._offsets: list[int] = []  # base offset of the batch at the same place in _positions
        self._positions: list[int] = []
        self._times: list[int] = []  # highest timestamp before that batch

    @property
    def size_bytes(self) -> int:
        """Bytes in the file."""
        return self._file.size()

    def recover(self, durable_bytes: int, on_batch: OnBatch) -> None:
        """Scan from the start: check every CRC, rebuild the index, cut a torn tail.

        Raises CorruptLog for a bad batch before `durable_bytes`: that was acknowledged once.
        """
        at = 0
        for header, view in self._scan():
            if header.base_offset < self.end_offset:
                break
            self._note(header, at)
            on_batch(header, view)
            at += header.size_bytes
        if at < min(durable_bytes, self._file.size()) or self._file.size() < durable_bytes:
            raise CorruptLog(f"{self.path}: bad batch at byte {at}, but {durable_bytes} bytes were durable")
        if at < self._file.size():
            self._file.truncate(at)
            self._file.sync()

    def _scan(self) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Sound batches from the start; ends at the first that isn't."""
        at, size, data, start = 0, self._file.size(), memoryview(b""), 0
        while at < size:
            if at + HEADER_BYTES > start + len(data):
                data, start = memoryview(self._file.read(at, SCAN_BYTES)), at
            try:
                header = read_header(data, at - start)
                if at + header.size_bytes > start + len(data):
                    data, start = memoryview(self._file.read(at, max(SCAN_BYTES, header.size_bytes))), at
                view = data[at - start : at - start + header.size_bytes]
                if len(view) < header.size_bytes:
                    return
                check_crc(view)
            except (CorruptBatch, UnsupportedMagic):
                return
            yield header, view
            at += header.size_bytes

    def _note(self, header: BatchHeader, position: int) -> None:
        if not self._positions or position - self._positions[-1] >= INDEX_BYTES:
            self._offsets.append(header.base_offset)
            self._positions.append(position)
            self._times.append(self.max_timestamp)
        self.end_offset = header.last_offset + 1
        self.max_timestamp = max(self.max_timestamp, header.max_timestamp)

    def append(self, header: BatchHeader, batch: bytes | bytearray) -> None:
        """Append one stamped batch; raises OSError with nothing changed."""
        position = self._file.size()
        self._file.append(batch)
        self._note(header, position)

    def read(self, offset: int, bytes_max: int, up_to: int) -> bytes:
        """Whole batches from the one that holds `offset` to below `up_to`; at least one if there is any."""
        place = bisect_right(self._offsets, offset) - 1
        at = self._positions[max(place, 0)] if self._positions else 0
        size = self._file.size()
        data = self._file.read(at, min(size - at, bytes_max + INDEX_BYTES + HEADER_BYTES))
        begin, end = self._span(data, offset, up_to, bytes_max)
        if begin < 0:
            return b""
        if end > len(data):
            return self._file.read(at + begin, end - begin)
        return data[begin:end]

    def _span(self, data: bytes, offset: int, up_to: int, bytes_max: int) -> tuple[int, int]:
        """Byte range of the wanted batches in `data`; the first may reach beyond it."""
        at, begin, size = 0, -1, len(data)
        while at + 27 <= size:
            base = int.from_bytes(data[at : at + 8], "big")
            if base >= up_to:
                break
            end = at + 12 + int.from_bytes(data[at + 8 : at + 12], "big")
            if begin < 0 and base + int.from_bytes(data[at + 23 : at + 27], "big") >= offset:
                begin = at
                if end - begin >= bytes_max or end > size:
                    return begin, end
            elif begin >= 0 and (end - begin > bytes_max or end > size):
                break
            at = end
        return begin, at

    def batches_from_time(self, timestamp_ms: int) -> Iterator[bytes]:
        """Batches that may hold the first record at or after `timestamp_ms`, in order."""
        place = 0
        for index, before in enumerate(self._times):
            if before < timestamp_ms:
                place = index
        offset = self._offsets[place] if self._offsets else self.base_offset
        while offset < self.end_offset:
            batch = self.read(offset, 1, self.end_offset)
            if not batch:
                return
            header = read_header(batch)
            if header.max_timestamp >= timestamp_ms:
                yield batch
            offset = header.last_offset + 1

    def sync(self) -> None:
        """fsync; from any thread."""
        self._file.sync()

    def close(self) -> None:
        """Close the file."""
        self._file.close()
