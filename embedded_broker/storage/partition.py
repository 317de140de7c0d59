"""One partition: its log, producer state, watermarks and waiting fetches. Owned by the event loop, held by `Topics`.

Invariants
- Readers see offsets below the high watermark only; that is what has been made durable.
- The last stable offset is below every transaction that is open, or whose marker is not durable yet.
- Producer state changes with the append, in one step of the event loop.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from kio.schema.errors import ErrorCode

from embedded_broker.config.thresholds import DEFAULTS, Thresholds
from embedded_broker.state.owners import SOMEBODY, Owner
from embedded_broker.state.producer_quota import ProducerQuota
from embedded_broker.state.producers import PartitionProducers
from embedded_broker.storage.cleaning_state import CleaningState
from embedded_broker.storage.disk_space import DiskSpace, suppress_disk_full
from embedded_broker.storage.log.backlog import Backlog
from embedded_broker.storage.log.checkpoint import State
from embedded_broker.storage.log.fs import FileSystem
from embedded_broker.storage.log.partition_log import Capture, PartitionLog
from embedded_broker.storage.log.recovery import read_log_start
from embedded_broker.storage.log.segment import CorruptLog, OnBatch, Segment
from embedded_broker.storage.log.stopped_log import StoppedLog
from embedded_broker.storage.log_config import LogConfig
from embedded_broker.wire.checked_batch import CheckedBatch
from kafka_records.batch import BatchHeader, iter_batches
from kafka_records.control import marker_commits

T = TypeVar("T")
log = logging.getLogger("embedded_broker")


class PartitionStopped(OSError):
    """Durable data of the partition is corrupt or can't be read: it serves neither writes nor reads."""


class Waiter(Protocol):
    """Waits for a partition to change: a Fetch request."""

    def wake(self) -> None:
        """Take note; called whenever the high watermark, the last stable offset or the log start has moved."""


class Partition:
    """One partition of a topic. Called on the event loop only."""

    def __init__(
        self,
        topic: str,
        index: int,
        leader_epoch: int,
        disk_space: DiskSpace | None,
        internal: bool,
        quota: ProducerQuota | None = None,
    ) -> None:
        self.topic, self.index, self.leader_epoch = topic, index, leader_epoch
        self._disk_space = disk_space
        self.internal = internal
        """Whether only the broker writes here."""
        self.config = LogConfig()
        """See `configure`."""
        self.producers = PartitionProducers(quota)
        self.cleaning = CleaningState()
        self.high_watermark = 0
        self.closed = False
        self.stopped: str | None = None
        """Why nothing is served. A restart checks the files again."""
        self._damage_logged = False
        self.log: PartitionLog
        self._waiters: dict[Waiter, None] = {}  # in the order of arrival
        self._epochs: list[tuple[int, int]] = []  # (leader epoch, its first offset), ascending

    @classmethod
    def open(
        cls,
        fs: FileSystem,
        directory: Path,
        topic: str,
        index: int,
        *,
        leader_epoch: int,
        segment_bytes: int,
        disk_space: DiskSpace | None = None,
        internal: bool = False,
        now_ms: int | None = None,
        on_batch: OnBatch | None = None,
        thresholds: Thresholds = DEFAULTS,
        quota: ProducerQuota | None = None,
    ) -> Partition:
        """Recover from `directory`. Raises CorruptLog or OSError.

        Args:
            fs: where it is.
            directory: of the partition.
            topic: its name.
            index: of the partition in it.
            leader_epoch: of this start of the broker.
            segment_bytes: size at which a segment is closed.
            disk_space: of the data directory; without it a full disk is an error like any other.
            internal: only the broker writes there.
            now_ms: from where the expiry of producers that are found in the log counts.
            on_batch: is shown every batch in order, from the log start on. So the whole log is read, whatever a
                checkpoint says.
            thresholds: of its log.
            quota: which its producers count in.
        """
        partition = cls(topic, index, leader_epoch, disk_space, internal, quota)
        log_start = 0 if on_batch is None else read_log_start(fs, directory)

        def replay(header: BatchHeader, batch: memoryview) -> None:
            partition._note_epoch(header)
            partition.producers.apply(header, marker_commits(batch) if header.is_control else None, now_ms)
            if on_batch is not None and header.last_offset >= log_start:
                on_batch(header, batch)

        on_state = partition._restore if on_batch is None else None
        partition.log = PartitionLog.open(fs, directory, segment_bytes, replay, on_state, thresholds)
        partition._forget_before_start()
        partition.high_watermark = partition.log.log_end
        return partition

    @classmethod
    def unopened(
        cls, fs: FileSystem, directory: Path, topic: str, index: int, *, leader_epoch: int, error: Exception
    ) -> Partition:
        """Make what stands for a partition that can't be opened because of `error`; its files stay as they are."""
        partition = cls(topic, index, leader_epoch, None, False)
        partition.log = StoppedLog(fs, directory, str(error))
        partition.stop(error)
        return partition

    def configure(self, config: LogConfig) -> None:
        """Take the topic's configs, which hold from now on."""
        self.config = config
        self.log.segment_bytes, self.log.segment_ms = config.segment_bytes, config.segment_ms

    @property
    def size_bytes(self) -> int:
        """Of its log."""
        return self.log.size_bytes

    def stop(self, error: BaseException) -> None:
        """Serve nothing from now on; other partitions are not affected. Waiting fetches are woken."""
        if self.stopped is None:
            self.stopped = str(error)
            log.error("partition %s-%d is stopped: %s", self.topic, self.index, error)
            self._wake()

    def read(self, offset: int, bytes_max: int, up_to: int) -> bytes:
        """See PartitionLog.read. Raises PartitionStopped."""
        return self._look(lambda: self.log.read(offset, bytes_max, up_to))

    def count(self, backlog: Backlog, up_to: int) -> int:
        """See Backlog.count. Raises PartitionStopped."""
        return self._look(lambda: backlog.count(up_to))

    def batch_at_time(self, timestamp_ms: int, offset_min: int) -> tuple[BatchHeader, bytes] | None:
        """See PartitionLog.batch_at_time; None once it is closed. Raises PartitionStopped."""
        return None if self.closed else self._look(lambda: self.log.batch_at_time(timestamp_ms, offset_min))

    def latest_batch(self) -> BatchHeader | None:
        """See PartitionLog.latest_batch. Raises PartitionStopped."""
        return self._look(self.log.latest_batch)

    def _look(self, read: Callable[[], T]) -> T:
        if self.stopped is None:
            try:
                return read()
            except (CorruptLog, OSError) as error:
                self._found(error)
                raise PartitionStopped(errno.EIO, str(error)) from error
        raise PartitionStopped(errno.EIO, self.stopped)

    def _found(self, error: CorruptLog | OSError) -> None:
        """Stop the partition, since what was durable is damaged. The internal ones go on: what they hold is in memory,
        and is written anew there when they are compacted; without them nothing could be decided any more."""
        if not self.internal:
            self.stop(error)
        elif not self._damage_logged:
            self._damage_logged = True
            log.error("partition %s-%d is damaged: %s", self.topic, self.index, error)

    def _restore(self, state: State) -> None:
        self._epochs = [(epoch, start) for epoch, start in state["epochs"]]
        self.producers.restore(state)

    def capture(self) -> Capture:
        """Return a checkpoint of this moment, for `PartitionLog.write_checkpoint`."""
        return self.log.capture({"epochs": self._epochs, **self.producers.snapshot()})

    def _note_epoch(self, header: BatchHeader) -> None:
        if not self._epochs or header.leader_epoch > self._epochs[-1][0]:
            self._epochs.append((header.leader_epoch, header.base_offset))

    @property
    def log_start(self) -> int:
        """First offset that can be read."""
        return self.log.log_start

    @property
    def log_end(self) -> int:
        """Offset that the next record gets."""
        return self.log.log_end

    @property
    def last_stable(self) -> int:
        """Offset below which every transaction is decided; what an open one has written may have been deleted."""
        return max(self.log_start, self.producers.last_stable_offset(self.high_watermark))

    def limit(self, read_committed: bool) -> int:
        """Return the offset up to which a reader of that isolation level may read (exclusive)."""
        return self.last_stable if read_committed else self.high_watermark

    def append(self, batch: bytes | bytearray, *, now_ms: int | None = None, own: bool | None = None) -> int:
        """Append one whole batch that the broker has made itself; see `append_checked`."""
        return self.append_checked(CheckedBatch.of(batch), now_ms=now_ms, own=own)

    def append_checked(
        self,
        batch: CheckedBatch,
        *,
        append_time_ms: int | None = None,
        now_ms: int | None = None,
        own: bool | None = None,
        owner: Owner = SOMEBODY,
    ) -> int:
        """Give a batch its offsets, append it and take in what it says of its producer. Not durable yet.

        Args:
            batch: as its producer made it.
            append_time_ms: makes it a LogAppendTime batch with this time.
            now_ms: from where the expiry of its producer counts.
            own: whether it is a write of the broker's own, for which there is the reserve; None: it is, if only the
                broker writes here, or it is a marker.
            owner: whom its producer counts for, if it is new here.

        Returns: the base offset. Raises NoSpace, PartitionStopped or another OSError, nothing changed then.
        """
        if self.stopped is not None:
            raise PartitionStopped(errno.EIO, self.stopped)
        stamped = batch.stamped(self.log.log_end, self.leader_epoch, append_time_ms)
        header = stamped.header
        if own is None:
            own = self.internal or header.is_control
        try:
            self._write(partial(self.log.append, stamped), own=own)
        except CorruptLog as error:  # when the segment was begun can't be read
            self._found(error)
            raise PartitionStopped(errno.EIO, str(error)) from error
        self._note_epoch(header)
        if header.producer_id >= 0:
            commit = marker_commits(stamped.data) if header.is_control else None
            self.producers.apply(header, commit, now_ms, owner)
        return header.base_offset

    def _write(self, write: Callable[[], None], own: bool = True) -> None:
        if self._disk_space is None:
            write()
        elif own:
            self._disk_space.write_internal(write)
        else:
            self._disk_space.write_for_client(write)

    def advance(self, durable_end: int) -> None:
        """Note that the log is durable below `durable_end`: show that to readers."""
        if durable_end <= self.high_watermark:
            return
        self.high_watermark = durable_end
        self._wake()

    def delete_before(self, offset: int) -> None:
        """Raise the log start (DeleteRecords, retention). Hold `FlushScheduler.exclusive`; raises OSError.

        Producers stay known, over a restart, too: else a late retry of what was deleted would be taken for new.
        """
        if self.log.removes_segments(offset):
            self._write(partial(self.log.write_checkpoint, self.capture()))
        self._write(partial(self.log.delete_before, offset))
        self._forget_before_start()
        self._wake()

    def exchange(self, groups: Sequence[tuple[list[Segment], Segment]], clean_end: int, markers_gone: set[int]) -> None:
        """Replace old segments by what compaction has written. Hold `FlushScheduler.exclusive`; raises OSError.

        Nothing happens if some of them have gone meanwhile.
        """
        replaced = {segment for old, _ in groups for segment in old}
        if self.closed or self.stopped is not None or not replaced <= set(self.log.segments):
            return
        self.producers.forget_aborted(markers_gone)  # fetches must not list these, now or after a restart
        if markers_gone or self.producers.has_window_in(self.log.checkpoint_end, clean_end):
            self._write(partial(self.log.write_checkpoint, self.capture()))
        self._write(partial(self.log.replace, groups, clean_end))

    def _forget_before_start(self) -> None:
        self.producers.drop_before(self.log.log_start)
        self._epochs = [
            (epoch, max(start, self.log_start))
            for number, (epoch, start) in enumerate(self._epochs)
            if number + 1 == len(self._epochs) or self._epochs[number + 1][1] > self.log_start
        ]

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """Return (epoch, offset after its last record) for the largest epoch not above `epoch`; (-1, -1) for one to
        come.

        Source: org.apache.kafka.storage.internals.epoch.LeaderEpochFileCache.endOffsetFor.
        """
        if epoch == self.leader_epoch:
            return epoch, self.log_end
        if epoch > self.leader_epoch or epoch < 0:
            return -1, -1
        below = [known for known, _ in self._epochs if known <= epoch]
        above = [start for known, start in self._epochs if known > epoch]
        return below[-1] if below else epoch, above[0] if above else self.log_end

    def epoch_of(self, offset: int) -> int:
        """Return the leader epoch of the record at `offset`; the current one at the end of the log."""
        found = self.leader_epoch if offset >= self.log_end else -1
        for epoch, start in self._epochs:
            if start <= offset < self.log_end:
                found = epoch
        return found

    def check_epoch(self, claimed: int) -> ErrorCode:
        """Check whether the partition is served, and a client's leader epoch the current one (KIP-320); -1: any
        epoch.
        """
        if self.stopped is not None:
            return ErrorCode.kafka_storage_error
        if claimed < 0 or claimed == self.leader_epoch:
            return ErrorCode.none
        return ErrorCode.fenced_leader_epoch if claimed < self.leader_epoch else ErrorCode.unknown_leader_epoch

    def aborted_in(self, offset: int, records: bytes) -> list[tuple[int, int]]:
        """Return (producer id, first offset) of aborted transactions with records in what was read from `offset`."""
        if not records or not self.producers.aborted_in(offset, self.high_watermark):
            return []
        end = offset + 1
        for header, _ in iter_batches(records):
            end = header.last_offset + 1
        return self.producers.aborted_in(offset, end)

    def add_waiter(self, waiter: Waiter) -> None:
        """Wake `waiter` at every move until it is removed."""
        self._waiters[waiter] = None

    def remove_waiter(self, waiter: Waiter) -> None:
        """Wake it no more."""
        self._waiters.pop(waiter, None)

    @property
    def has_waiters(self) -> bool:
        """Whether a Fetch request waits for the partition."""
        return bool(self._waiters)

    def _wake(self) -> None:
        for waiter in tuple(self._waiters):
            waiter.wake()

    def close(self) -> None:
        """Flush and close the files, with a checkpoint if there would be much to read at the next start."""
        self.closed = True
        with ExitStack() as closing:  # these are called from the last to the first, whatever one of them raises
            closing.callback(self._wake)
            closing.callback(self.producers.release)
            closing.callback(self.log.close)
            sound = self.stopped is None and not self.log.has_failed
            if sound and self.log.scan_cost_bytes >= self.log.thresholds.close_checkpoint_bytes:
                with suppress_disk_full():
                    self.log.write_checkpoint(self.capture())

    def destroy(self) -> None:
        """Remove the files; readers find the partition gone. End its compaction first (`cleaning`), then hold
        `FlushScheduler.exclusive`. Raises OSError; readers find it gone then, too.
        """
        self.closed = True
        with ExitStack() as closing:  # as in `close`
            closing.callback(self._wake)
            closing.callback(self.producers.release)
            self.log.destroy()
