"""A partition's log: segments, log start, and what is known to be durable. Format: docs/log-format.md.

Invariants
- Offsets only grow; a batch is in exactly one segment; segments follow one another without overlap.
- Nothing below the checkpoint's bytes may be cut at recovery: it was acknowledged. What is behind it may be torn,
  and is cut at the first unsound batch.
- `append` and `read` are called by one thread, `flush` by another.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from pathlib import Path

from embedded_broker.log.fs import FileSystem
from embedded_broker.log.segment import CorruptLog, OnBatch, Segment
from embedded_broker.wire.batch import read_header
from embedded_broker.wire.records import decode

CHECKPOINT = "checkpoint.json"
CHECKPOINT_BYTES = 64 * 1024 * 1024


class PartitionLog:
    """See the module. Open with `PartitionLog.open`."""

    def __init__(self, fs: FileSystem, directory: Path, segment_bytes: int) -> None:
        self._fs, self.directory = fs, directory
        self.segment_bytes = segment_bytes
        self.segments: list[Segment] = []
        self.log_start = 0
        self._unsynced: list[Segment] = []

    @classmethod
    def open(cls, fs: FileSystem, directory: Path, segment_bytes: int, on_batch: OnBatch) -> PartitionLog:
        """Recover the log in `directory`, calling `on_batch` for every sound batch in order.

        Raises CorruptLog when bytes that were durable are unsound.
        """
        log = cls(fs, directory, segment_bytes)
        names = [name for name in fs.names(directory) if name.endswith(".log")]
        saved = json.loads(fs.read_small(directory / CHECKPOINT) or b'{"start": 0, "durable": {}}')
        log.log_start = saved["start"]
        for number, name in enumerate(names):
            segment = Segment(fs, directory, int(name.removesuffix(".log")))
            last = number == len(names) - 1
            segment.recover(saved["durable"].get(name, 0) if last else segment.size_bytes, on_batch)
            if log.segments and segment.base_offset < log.segments[-1].end_offset:
                raise CorruptLog(f"{segment.path} begins before its predecessor ends")
            log.segments.append(segment)
        if not log.segments:
            log._roll(log.log_start)
        return log

    @property
    def log_end(self) -> int:
        """Offset that the next record gets."""
        return self.segments[-1].end_offset

    @property
    def size_bytes(self) -> int:
        """Bytes in all segments."""
        return sum(segment.size_bytes for segment in self.segments)

    def _roll(self, base_offset: int) -> None:
        """Begin a new segment. The old one is made durable first, so only the last can be torn."""
        if self.segments:
            self.flush()
            self.segments[-1].sync()
        self.segments.append(Segment(self._fs, self.directory, base_offset))
        self._fs.sync_directory(self.directory)
        self._save(len(self.segments) > 1)

    def _save(self, needed: bool = True) -> None:
        if needed:
            last = self.segments[-1]
            state = {"start": self.log_start, "durable": {last.path.name: last.size_bytes}}
            self._fs.write_atomically(self.directory / CHECKPOINT, json.dumps(state).encode())

    def append(self, batch: bytes | bytearray) -> None:
        """Append one batch whose offset is stamped already. Not durable before `flush`; raises OSError."""
        segment = self.segments[-1]
        if segment.size_bytes and segment.size_bytes + len(batch) > self.segment_bytes:
            self._roll(segment.end_offset)
            segment = self.segments[-1]
        segment.append(read_header(batch), batch)
        if segment not in self._unsynced:
            self._unsynced.append(segment)

    def flush(self) -> int:
        """Make everything appended before the call durable; the offset up to which that holds."""
        end, waiting = self.log_end, self._unsynced
        self._unsynced = []
        for segment in waiting:
            segment.sync()
        return end

    def read(self, offset: int, bytes_max: int, up_to: int) -> bytes:
        """Whole batches from the one with `offset`, below `up_to`, within one segment; at least one."""
        bases = [segment.base_offset for segment in self.segments]
        for segment in self.segments[max(bisect_right(bases, offset) - 1, 0) :]:
            if segment.base_offset >= up_to:
                break
            if segment.end_offset > offset:
                found = segment.read(offset, bytes_max, up_to)
                if found:
                    return found
        return b""

    def offset_for_time(self, timestamp_ms: int) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record at or after a time; None when there is none."""
        for segment in self.segments:
            if segment.max_timestamp < timestamp_ms:
                continue
            for batch in segment.batches_from_time(timestamp_ms):
                if read_header(batch).is_control:
                    continue
                for record in decode(batch):
                    if record.timestamp_ms >= timestamp_ms and record.offset >= self.log_start:
                        return record.offset, record.timestamp_ms
        return None

    def max_timestamp(self) -> tuple[int, int] | None:
        """(offset, timestamp) of the record with the highest timestamp."""
        highest = max((segment.max_timestamp for segment in self.segments), default=-1)
        return None if highest < 0 else self.offset_for_time(highest)

    def delete_before(self, offset: int) -> None:
        """Raise the log start, durably, then drop segments that are wholly before it."""
        self.flush()
        self.log_start = max(self.log_start, offset)
        self._save()
        while len(self.segments) > 1 and self.segments[0].end_offset <= self.log_start:
            segment = self.segments.pop(0)
            segment.close()
            self._fs.remove(segment.path)

    def close(self) -> None:
        """Flush, note how much is durable, close."""
        self.flush()
        self._save()
        for segment in self.segments:
            segment.close()

    def destroy(self) -> None:
        """Remove all files of the partition."""
        for segment in self.segments:
            segment.close()
            self._fs.remove(segment.path)
        self._fs.remove(self.directory / CHECKPOINT)
        self.directory.rmdir()
