"""A partition's log: segments, log start, and what is known to be durable. Format: docs/log-format.md.

Invariants
- Each batch, and each segment, begins where its predecessor ends; below `compacted_end`, there or later.
- What is below `durable_end` is on disk, with the names of its files; it is never cut.
- Everything is called by one thread, except `flush` and `store_checkpoint`, which any other thread may call.
- After a failed fsync it is unknown what is on disk (and a second fsync would report success): the log refuses
  everything but reading. Opening it again writes what it finds above the durable end anew, before that counts. That
  there was no file for an fsync is no such failure: the next flush repeats it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from embedded_broker.config.thresholds import DEFAULTS, Thresholds
from embedded_broker.storage.log import checkpoint
from embedded_broker.storage.log.checkpoint import Checkpoint, State
from embedded_broker.storage.log.format import CHECKPOINT, CLEAN, COMPACTED, DURABLE, LOG_START, encode_offset
from embedded_broker.storage.log.fs import DISK_FULL_ERRNOS, FileSystem
from embedded_broker.storage.log.open_files import is_out_of_files
from embedded_broker.storage.log.recovery import OnState, Recovered, recover, remove_segment
from embedded_broker.storage.log.segment import OnBatch, Segment
from embedded_broker.wire.checked_batch import CheckedBatch
from kafka_records.batch import BatchHeader

SEGMENT_MS_MAX = 2**63 - 1
BATCH_SCAN_BYTES = 10_000  # a scan spends on each batch what it spends on that many bytes


@dataclass(frozen=True, slots=True)
class Capture:
    """A checkpoint to be, and the index files that go with it, as of one moment."""

    checkpoint: Checkpoint
    indexes: list[tuple[Segment, int, bytes]]
    """Segment, its end offset then, the index file's bytes."""
    scan_cost_bytes: int


class PartitionLog:
    """The log of one partition. Create it with `PartitionLog.open`."""

    def __init__(
        self,
        fs: FileSystem,
        directory: Path,
        segment_bytes: int,
        found: Recovered,
        open_first: bool = True,
        thresholds: Thresholds = DEFAULTS,
    ) -> None:
        """`segment_bytes` may be changed at any time; it holds for the next append.

        With `open_first` a log without segments gets one: there is always one to append to.
        """
        self._fs, self.directory, self.thresholds = fs, directory, thresholds
        self._durable_path = directory / DURABLE
        self.segment_bytes = segment_bytes
        is_new = open_first and not found.segments
        first = [Segment(fs, directory, found.log_start, thresholds=thresholds)] if is_new else []
        segments = self.segments = found.segments + first
        self.log_start = found.log_start
        durable = self.durable_end = found.durable_end
        self.segment_ms = SEGMENT_MS_MAX  # may be changed, too
        self.compacted_end = found.compacted_end  # offsets may be missing below
        self.clean_end = found.clean_end  # compaction has nothing to do below
        self.checkpoint_end = found.checkpoint_end  # -1: there is none
        self.checkpoint_bytes = 0  # how large it was with its index files when it was written last
        self.scan_cost_bytes = found.scanned_bytes  # what a start after a kill would have to go through now
        self._appended_bytes = self._flushed_bytes = 0  # since it was opened
        self._failure: OSError | None = None
        self._flushing = fs.mutex()  # held through an fsync: files are closed and removed only under it
        # Segments with bytes that may not be durable, in order; the last segment is always among them. With
        # `segments`' end it is read by `flush` and changed by a roll, under `_rolling`.
        self._unsynced = [segment for segment in segments[:-1] if segment.end_offset > durable] + segments[-1:]
        self._rolling = Lock()

    @classmethod
    def open(
        cls,
        fs: FileSystem,
        directory: Path,
        segment_bytes: int,
        on_batch: OnBatch,
        on_state: OnState | None = None,
        thresholds: Thresholds = DEFAULTS,
    ) -> PartitionLog:
        """Recover the log in `directory`, calling `on_batch` for every batch in order. All of it is durable then.

        With `on_state` it starts from the checkpoint, if there is one: that is called first, and `on_batch` for the
        batches behind the checkpoint only. Raises CorruptLog when bytes that were durable are unsound; OSError.
        """
        found = recover(fs, directory, on_batch, on_state, thresholds)
        log = cls(fs, directory, segment_bytes, found, thresholds=thresholds)
        try:
            log._write_again()
            log.flush()
        except OSError:
            log.close()
            raise
        return log

    def _write_again(self) -> None:
        """Let `flush` really bring to the disk what was found above the durable end. It was read from the page cache,
        and the fsync that was to secure it may have failed, which was why the broker ended."""
        for segment in self._unsynced:
            segment.write_again(self.durable_end)

    @property
    def log_end(self) -> int:
        """Offset that the next record gets."""
        return self.segments[-1].end_offset

    @property
    def has_failed(self) -> bool:
        """Whether an fsync has failed: nothing more can be written."""
        return self._failure is not None

    @property
    def size_bytes(self) -> int:
        """Bytes in all segments."""
        return sum(segment.size_bytes for segment in self.segments)

    @property
    def unflushed_bytes(self) -> int:
        """What the next flush has to bring to the disk."""
        return self._appended_bytes - self._flushed_bytes

    def append(self, batch: CheckedBatch) -> None:
        """Append one batch whose offset is stamped already. Not durable before `flush`.

        Raises OSError with nothing appended; the next append may work. ValueError for any other offset than the next.
        """
        self._check_failure()
        header, segment = batch.header, self.segments[-1]
        size_bytes = len(batch.data)
        if header.base_offset != segment.end_offset or header.size_bytes != size_bytes:
            raise ValueError(f"batch of {size_bytes} bytes does not fit at {segment.end_offset}: {header}")
        if segment.size_bytes and self._is_complete(segment, header, size_bytes):
            segment = self._roll(segment.end_offset)
        segment.append(header, batch.data)
        self._appended_bytes += size_bytes
        self.scan_cost_bytes += size_bytes + BATCH_SCAN_BYTES

    def _is_complete(self, segment: Segment, header: BatchHeader, size_bytes: int) -> bool:
        """Return whether a batch of that size begins a new segment. Each is an open file, so many small ones aren't
        made.
        """
        if len(self.segments) >= self.thresholds.segments_max:
            return segment.size_bytes + size_bytes > max(self.segment_bytes, self.thresholds.crowded_segment_bytes)
        too_late = header.max_timestamp - (segment.first_timestamp() or 0) > self.segment_ms
        return too_late or segment.size_bytes + size_bytes > self.segment_bytes

    def _roll(self, base_offset: int) -> Segment:
        """Begin a new segment. No fsync here: the next flush makes the old one, the name and the new one durable."""
        segment = Segment(self._fs, self.directory, base_offset, thresholds=self.thresholds)
        with self._rolling:
            self.segments.append(segment)
            self._unsynced.append(segment)
        return segment

    def flush(self) -> int:
        """Make everything appended before the call durable; the offset up to which that holds.

        Raises OSError. If no file could be opened (`is_out_of_files`), the next flush may work.
        """
        with self._flushing:
            self._check_failure()
            with self._rolling:
                end, waiting = self.log_end, list(self._unsynced)
                appended_bytes = self._appended_bytes
            if end > self.durable_end:
                try:
                    self._sync(waiting)
                    self._mark_durable(end)
                except OSError as error:
                    if not is_out_of_files(error):
                        self._failure = error
                    raise
                with self._rolling:
                    del self._unsynced[: len(waiting) - 1]
                self.durable_end, self._flushed_bytes = end, appended_bytes
            return end

    def _sync(self, segments: list[Segment]) -> None:
        for segment in segments:
            segment.sync()
        unnamed = [segment for segment in segments if not segment.is_named]
        if unnamed:
            self._mark_durable(self.durable_end)  # its name, too
            self._fs.sync_directory(self.directory)
            self._fs.sync_directory(self.directory.parent)
        for segment in unnamed:
            segment.is_named = True

    def _mark_durable(self, end: int) -> None:
        """Say how far all is durable. On a full disk, or without a file, that may not be possible at first; it may lag
        behind anyway.
        """
        try:
            self._fs.overwrite(self._durable_path, encode_offset(end))
        except OSError as error:
            if error.errno not in DISK_FULL_ERRNOS and not is_out_of_files(error):
                raise

    def capture(self, state: State) -> Capture:
        """Return what `write_checkpoint` will write; `state` is what all batches up to now have led to."""
        stale = [segment for segment in self.segments if segment.indexed_end != segment.end_offset]
        indexes = [(segment, segment.end_offset, segment.index_bytes()) for segment in stale]
        return Capture(Checkpoint(self.log_end, state), indexes, self.scan_cost_bytes)

    def write_checkpoint(self, captured: Capture) -> None:
        """Make the log durable as far as the checkpoint speaks of it, then the checkpoint. Segments must not be removed
        meanwhile. Raises OSError; the checkpoint before is still good then."""
        self.checkpoint_stored(captured, self.store_checkpoint(captured))

    def store_checkpoint(self, captured: Capture) -> int:
        """Do what `write_checkpoint` does but for what the log notes of it in `checkpoint_stored`; from any thread.

        Returns: bytes of the checkpoint and the index files that came with it.
        """
        if self.durable_end < captured.checkpoint.offset:
            self.flush()
        for segment, _, data in captured.indexes:
            self._fs.write_atomically(segment.index_path, data)
        data = checkpoint.encode(captured.checkpoint)
        self._fs.write_atomically(self.directory / CHECKPOINT, data)
        return len(data) + sum(len(each) for _, _, each in captured.indexes)

    def checkpoint_stored(self, captured: Capture, size_bytes: int) -> None:
        """Note what `store_checkpoint` has written."""
        for segment, end, _ in captured.indexes:
            segment.indexed_end = end
        self.checkpoint_end = captured.checkpoint.offset
        self.checkpoint_bytes = size_bytes
        self.scan_cost_bytes -= captured.scan_cost_bytes

    def _check_failure(self) -> None:
        if self._failure is not None:
            raise OSError(self._failure.errno, f"{self.directory}: an earlier fsync failed: {self._failure}")

    def read(self, offset: int, bytes_max: int, up_to: int) -> bytes:
        """Read whole batches from the one with `offset`, below `up_to`, within one segment; at least one.

        Empty when there is none. The first batch may begin below `offset`. Raises OSError.
        """
        segment = self.segment_of(offset)
        return segment.read(max(offset, segment.base_offset), bytes_max, up_to)

    def segment_of(self, offset: int) -> Segment:
        """Return the segment that is read for `offset`."""
        place = max(bisect_right(self.segments, offset, key=lambda segment: segment.base_offset) - 1, 0)
        while place + 1 < len(self.segments) and offset >= self.segments[place].end_offset:
            place += 1  # compaction has removed what was between the two
        return self.segments[place]

    def batch_at_time(self, timestamp_ms: int, offset_min: int) -> tuple[BatchHeader, bytes] | None:
        """Find the first batch from `offset_min` on whose header says that it has a record at or after a time; the
        header may be wrong. None when there is none.

        Markers count, as in org.apache.kafka.common.record.FileRecords.searchForTimestamp.
        """
        for segment in self.segments:
            found = segment.batch_at_time(timestamp_ms, max(offset_min, self.log_start))
            if found is not None:
                return found
        return None

    def latest_batch(self) -> BatchHeader | None:
        """Find the header of the first batch with the highest timestamp; None when there is none.

        Markers count, as in Kafka's UnifiedLog.fetchOffsetByTimestamp.
        """
        return max(self.segments, key=lambda segment: segment.max_timestamp).latest_batch()

    def delete_before(self, offset: int) -> None:
        """Raise the log start, durably, then drop segments that are wholly before it. Raises OSError.

        The first one that stays begins at the log start or before it, though compaction may have left a gap behind the
        end of the one before: otherwise it would look as if a segment were lost. ValueError when the offset is above
        the end. A lower offset than the log start changes nothing.
        """
        if offset > self.log_end:
            raise ValueError(f"{self.directory}: {offset} is above the end, {self.log_end}")
        if offset <= self.log_start:
            return
        if offset > self.durable_end:
            self.flush()
        self._check_failure()
        if offset == self.log_end and self.segments[-1].size_bytes:
            self._roll(offset)  # so that the last one can go, too
        self._fs.write_atomically(self.directory / LOG_START, encode_offset(offset))
        self.log_start = offset
        with self._flushing:
            while len(self.segments) > 1 and self.segments[1].base_offset <= offset:
                remove_segment(self._fs, self.directory, self.segments[0].base_offset)
                self._drop_first()

    def removes_segments(self, offset: int) -> bool:
        """Return whether `delete_before(offset)` would remove batches that the checkpoint does not cover."""
        kept = [segment.base_offset for segment in self.segments[1:] if segment.base_offset <= offset]
        if offset == self.log_end and self.segments[-1].size_bytes:
            kept.append(offset)
        return bool(kept) and kept[-1] > self.checkpoint_end

    def replace(self, groups: Sequence[tuple[list[Segment], Segment]], clean_end: int) -> None:
        """Put what compaction has written in the place of whole segments that are below `clean_end`. Raises OSError.

        Crash-safe at each step: a new segment takes the name of the first that it replaces, at once; the others go
        after it, from the first to the last, so that what is still there of them goes on where the new one ends or is
        found to be in it. A marker never goes before what it decides.
        """
        self._check_failure()
        with self._flushing:
            self._fs.write_atomically(self.directory / COMPACTED, encode_offset(clean_end))
            self.compacted_end = clean_end
            for old, new in groups:
                if old[0] in self.segments:  # not in an attempt before this one
                    self._replace(old, new)
            self._fs.overwrite(self.directory / CLEAN, encode_offset(clean_end))
        self.clean_end = clean_end

    def _replace(self, old: list[Segment], new: Segment) -> None:
        for segment in old:
            self._fs.remove(segment.index_path)
        self._fs.sync_directory(self.directory)  # the index of other bytes must not come back
        self._fs.rename(new.path, old[0].path)
        new.path, new.is_named = old[0].path, True
        self._fs.sync_directory(self.directory)
        place = self.segments.index(old[0])
        self.segments[place : place + len(old)] = [new]
        for segment in old[1:]:
            self._fs.remove(segment.path)
            self._fs.sync_directory(self.directory)
        for segment in old:
            segment.close()
        try:
            self._fs.write_atomically(new.index_path, new.index_bytes())
            new.indexed_end = new.end_offset
        except OSError as error:
            if error.errno not in DISK_FULL_ERRNOS:  # not needed: the index file only saves time at a start
                raise

    def discard(self, segments: Sequence[Segment]) -> None:
        """Remove segments that compaction has written for nothing."""
        for segment in segments:
            segment.close()
            self._fs.remove(segment.path)

    def _drop_first(self) -> None:
        segment = self.segments.pop(0)
        with self._rolling:
            if segment in self._unsynced:  # it was the last one when its end was flushed
                self._unsynced.remove(segment)
        segment.close()

    def close(self) -> None:
        """Flush, unless a flush has failed before, and close. Raises OSError; all files are closed then, too."""
        try:
            if self._failure is None:
                self.flush()
        finally:
            with self._flushing:
                for segment in self.segments:
                    segment.close()

    def destroy(self) -> None:
        """Remove the directory with all that is in it. Raises OSError."""
        with self._flushing:
            for segment in self.segments:
                segment.close()
            for name in self._fs.names(self.directory):
                self._fs.remove(self.directory / name)
            self._fs.remove_directory(self.directory)
