"""One partition: its log, its producers, its watermarks and who waits for them. The event loop owns it.

Invariants
- Readers see offsets below the high watermark only; that is what has been made durable.
- The last stable offset is below every transaction that is open, or whose marker is not durable yet.
- Producer state changes with the append, in one step of the event loop.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from embedded_broker.log.fs import FileSystem
from embedded_broker.log.partition_log import PartitionLog
from embedded_broker.state.producers import PartitionProducers
from embedded_broker.wire.batch import BatchHeader, read_header, stamp
from embedded_broker.wire.records import marker_commits


class Waiter(Protocol):
    """Somebody who waits for a partition to move."""

    def wake(self) -> None:
        """Called whenever the high watermark, the last stable offset or the log start has moved."""


class Partition:
    """See the module."""

    def __init__(self, topic: str, index: int, leader_epoch: int) -> None:
        self.topic, self.index, self.leader_epoch = topic, index, leader_epoch
        self.configs: Mapping[str, str] = {}
        self.producers = PartitionProducers()
        self.high_watermark = 0
        self.closed = False
        self.log: PartitionLog
        self._waiters: set[Waiter] = set()
        self._undecided: list[tuple[int, int]] = []  # (first offset, marker offset), marker not durable yet
        self._first_open: int | None = None
        self._epochs: list[tuple[int, int]] = []  # (leader epoch, its first offset), ascending

    @classmethod
    def open(
        cls, fs: FileSystem, directory: Path, topic: str, index: int, *, leader_epoch: int, segment_bytes: int
    ) -> Partition:
        """Recover from `directory`. Raises CorruptLog or OSError."""
        partition = cls(topic, index, leader_epoch)
        partition.log = PartitionLog.open(fs, directory, segment_bytes, partition._replay)
        partition.producers.forget_before(partition.log.log_start)
        partition._first_open = partition.producers.first_unstable()
        partition.high_watermark = partition.log.log_end
        return partition

    def _replay(self, header: BatchHeader, batch: memoryview) -> None:
        self._note_epoch(header)
        self.producers.apply(header, marker_commits(batch) if header.is_control else None)

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
        """Offset below which every transaction is decided."""
        stable = self.high_watermark
        if self._first_open is not None and self._first_open < stable:
            stable = self._first_open
        if self._undecided and self._undecided[0][0] < stable:
            stable = self._undecided[0][0]
        return stable

    def limit(self, read_committed: bool) -> int:
        """Offset up to which a reader of that isolation level may read (exclusive)."""
        return self.last_stable if read_committed else self.high_watermark

    def append(self, batch: bytes | bytearray | memoryview, append_time_ms: int | None = None) -> int:
        """Give a batch its offsets, append it and take in what it says of its producer. Not durable yet.

        `append_time_ms` makes it a LogAppendTime batch. Returns the base offset; raises OSError, nothing changed then.
        """
        stamped = bytearray(batch)
        stamp(stamped, self.log.log_end, self.leader_epoch, append_time_ms)
        header = read_header(stamped)
        self.log.append(stamped)
        self._note_epoch(header)
        if header.producer_id >= 0:
            self._apply(header, stamped)
        return header.base_offset

    def _apply(self, header: BatchHeader, batch: bytearray) -> None:
        if header.is_control:
            known = self.producers.producers.get(header.producer_id)
            if known is not None and known.open_since >= 0:
                self._undecided.append((known.open_since, header.base_offset))
                self._undecided.sort()
            self.producers.apply(header, marker_commits(batch))
            self._first_open = self.producers.first_unstable()
            return
        self.producers.apply(header, None)
        if header.is_transactional and self._first_open is None:
            self._first_open = self.producers.first_unstable()

    def advance(self, durable_end: int) -> None:
        """The log is durable below `durable_end`: show that to readers."""
        if durable_end <= self.high_watermark:
            return
        self.high_watermark = durable_end
        if self._undecided:
            self._undecided = [each for each in self._undecided if each[1] >= durable_end]
        self._wake()

    def delete_before(self, offset: int) -> None:
        """Raise the log start (DeleteRecords, retention). Hold `GroupCommit.exclusive`; raises OSError."""
        self.log.delete_before(offset)
        self.producers.forget_before(self.log.log_start)
        self._epochs = [
            (epoch, max(start, self.log_start))
            for number, (epoch, start) in enumerate(self._epochs)
            if number + 1 == len(self._epochs) or self._epochs[number + 1][1] > self.log_start
        ]
        self._wake()

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """(largest known epoch not above `epoch`, offset after its last record); (-1, -1) when there is none."""
        if epoch == self.leader_epoch:
            return epoch, self.log_end
        found = (-1, -1)
        for number, (known, _) in enumerate(self._epochs):
            if known <= epoch:
                last = number + 1 == len(self._epochs)
                found = known, self.log_end if last else self._epochs[number + 1][1]
        return found

    def epoch_of(self, offset: int) -> int:
        """Leader epoch of the record at `offset`; the current one at the end of the log."""
        found = self.leader_epoch if offset >= self.log_end else -1
        for epoch, start in self._epochs:
            if start <= offset < self.log_end:
                found = epoch
        return found

    def add_waiter(self, waiter: Waiter) -> None:
        """Wake `waiter` at every move until it is removed."""
        self._waiters.add(waiter)

    def remove_waiter(self, waiter: Waiter) -> None:
        """No more waking."""
        self._waiters.discard(waiter)

    def _wake(self) -> None:
        for waiter in tuple(self._waiters):
            waiter.wake()

    def close(self) -> None:
        """Flush and close the files."""
        self.closed = True
        self.log.close()
        self._wake()

    def destroy(self) -> None:
        """Remove the files; readers find the partition gone. Hold `GroupCommit.exclusive`."""
        self.closed = True
        self.log.destroy()
        self._wake()
