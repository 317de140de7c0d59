"""Compaction of topics with cleanup.policy=compact: chooses partitions, rewrites their segments, and replaces them.

Run by `retention.Retention`. Source: Kafka `LogCleaner`, `LogCleanerManager`. Only whole segments are cleaned, never
the active one, and nothing at or above the last stable offset. New segments are written in a thread; only their
exchange with the old ones happens on the event loop. Whoever deletes a partition ends its pass first (`CleaningState`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from embedded_broker.config.thresholds import DEFAULTS, Thresholds
from embedded_broker.runtime.clock import Clock
from embedded_broker.storage.cleaning_state import CleaningAborted
from embedded_broker.storage.disk_space import DiskSpace, suppress_disk_full
from embedded_broker.storage.flush_scheduler import FlushScheduler
from embedded_broker.storage.log.cleaning import Aborted, CleanedTransactions, Cleaner, Last, latest_offsets
from embedded_broker.storage.log.format import CLEANED_SUFFIX, segment_name
from embedded_broker.storage.log.fs import FileSystem
from embedded_broker.storage.log.partition_log import PartitionLog
from embedded_broker.storage.log.segment import CorruptLog, Segment
from embedded_broker.storage.partition import Partition
from kafka_records.batch import CorruptBatch, read_header

Group = tuple[list[Segment], Segment]
"""Consecutive segments, and the new one that replaces them."""
log = logging.getLogger("embedded_broker")


@dataclass(frozen=True, slots=True)
class Job:
    """Input of one pass over a partition, captured on the event loop."""

    clean: list[Segment]
    dirty: list[Segment]
    end_offset: int
    """Where the segment behind them begins."""
    aborted: list[Aborted]
    producers: dict[int, Last]
    segment_bytes: int
    delete_retention_ms: int
    now_ms: int


@dataclass(frozen=True, slots=True)
class CleaningResult:
    """Output of one pass."""

    groups: list[Group]
    clean_end: int
    markers_gone: set[int]


class Compaction:
    """Compacts partitions of topics with cleanup.policy=compact."""

    def __init__(
        self,
        fs: FileSystem,
        flush_scheduler: FlushScheduler,
        disk_space: DiskSpace,
        clock: Clock,
        thresholds: Thresholds = DEFAULTS,
    ) -> None:
        self._keys_max = thresholds.cleaner_keys_max
        self._fs, self._flush_scheduler, self._disk_space, self._clock = fs, flush_scheduler, disk_space, clock

    async def run_once(self, partitions: Iterable[Partition]) -> None:
        """Clean those that are to be compacted and dirty enough. Raises OSError."""
        for partition in partitions:
            await self.run_for(partition)

    async def run_for(self, partition: Partition) -> None:
        """Clean a partition if it is to be compacted and dirty enough. Raises OSError."""
        if partition.config.compacts and not partition.internal and not self._disk_space.full:
            await self.clean(partition)

    async def clean(self, partition: Partition) -> None:
        """Clean a partition if it is dirty enough. Raises OSError."""
        try:
            job = find_job(partition, self._clock.now_ms())
        except CorruptLog as error:
            partition.stop(error)
            return
        if job is None:
            return
        segments = job.clean + job.dirty
        for segment in segments:
            segment.hold()
        partition.cleaning.begin()
        try:
            with suppress_disk_full():
                await self._exchange(partition, await self._written(partition, job))
        except CleaningAborted:
            log.info("partition %s-%d is not compacted: it is being deleted", partition.topic, partition.index)
        except CorruptBatch as error:
            partition.cleaning.is_allowed = False
            log.error("partition %s-%d can't be compacted: %s", partition.topic, partition.index, error)
        except CorruptLog as error:
            partition.stop(error)
        finally:
            for segment in segments:
                segment.release()
            partition.cleaning.end()

    async def _written(self, partition: Partition, job: Job) -> CleaningResult:
        """Write the new segments in a thread. Cancelled, as when the broker stops, it waits for the thread, too: the
        files that this reads are closed then. Raises what `write_clean` does.
        """
        check = partition.cleaning.check
        written = asyncio.get_running_loop().run_in_executor(
            None, write_clean, self._fs, partition.log, job, self._keys_max, check
        )
        try:
            return await asyncio.shield(written)
        except asyncio.CancelledError:
            partition.cleaning.is_allowed = False
            await asyncio.wait([written])
            if not written.cancelled() and written.exception() is None:
                _discard_left_over(partition.log, written.result())
            raise

    async def _exchange(self, partition: Partition, result: CleaningResult) -> None:
        """Put what was written in the place of the old segments. Raises OSError."""
        try:
            async with self._flush_scheduler.exclusive():
                partition.exchange(result.groups, result.clean_end, result.markers_gone)
        finally:
            _discard_left_over(partition.log, result)


def _discard_left_over(partition_log: PartitionLog, result: CleaningResult) -> None:
    """Remove the new segments that were not put in the place of others: the disk is full, or some of those are gone."""
    partition_log.discard([new for _, new in result.groups if new.path.name.endswith(CLEANED_SUFFIX)])


def find_job(partition: Partition, now_ms: int) -> Job | None:
    """Return the job for a partition, if it is dirty enough; else None. Raises CorruptLog.

    Source: `LogToClean`, `LogCleanerManager`.
    """
    if partition.closed or partition.stopped is not None or not partition.cleaning.is_allowed:
        return None
    config, segments = partition.config, partition.log.segments[:-1]
    clean = [segment for segment in segments if segment.end_offset <= partition.log.clean_end]
    dirty = []
    lag_ms = config.compaction_lag_ms_min
    for segment in segments[len(clean) :]:
        is_young = lag_ms > 0 and segment.largest_timestamp() > now_ms - lag_ms
        if segment.end_offset > partition.last_stable or is_young:
            break
        dirty.append(segment)
    dirty_bytes = sum(segment.size_bytes for segment in dirty)
    if not dirty_bytes:
        return None
    share = dirty_bytes / (dirty_bytes + sum(segment.size_bytes for segment in clean))
    overdue_ms = now_ms - config.compaction_lag_ms_max
    times_ms = [segment.first_timestamp() or -1 for segment in dirty]
    is_overdue = any(0 < time_ms < overdue_ms for time_ms in times_ms)  # without a timestamp it never is, as in Kafka
    if share <= config.dirty_ratio_min and not is_overdue:
        return None
    return Job(
        clean,
        dirty,
        partition.log.segments[len(clean) + len(dirty)].base_offset,
        [Aborted(a.producer_id, a.first_offset, a.marker_offset) for a in partition.producers.aborted_transactions()],
        {e.producer_id: Last(e.last_data_offset, e.epoch) for e in partition.producers.entries()},
        config.segment_bytes,
        config.delete_retention_ms,
        now_ms,
    )


def write_clean(
    fs: FileSystem, partition_log: PartitionLog, job: Job, keys_max: int, check: Callable[[], None]
) -> CleaningResult:
    """Write new segments beside the old ones. Called in a thread.

    Raises CorruptBatch when records can't be read though the CRC is right; CorruptLog; OSError; and, with nothing left
    behind, what `check` does, which is called often.
    """
    partition_log.flush()  # what is replaced must not be younger than what replaces it
    latest, count = latest_offsets(job.dirty, job.aborted, keys_max, check)
    rest = job.dirty[count:]
    clean_end = rest[0].base_offset if rest else job.end_offset
    transactions = CleanedTransactions(job.aborted)
    cleaner = Cleaner(latest, transactions, job.producers, job.now_ms, job.delete_retention_ms, check)
    writer = _Writer(fs, partition_log, clean_end, job.segment_bytes)
    try:
        for segment in job.clean + job.dirty[:count]:
            writer.begin(segment)
            for batch in cleaner.kept(segment):
                writer.add(batch)
        return CleaningResult(writer.finish(check), clean_end, cleaner.markers_gone)
    except BaseException:
        partition_log.discard([new for _, new in writer.groups])
        raise


class _Writer:
    """Writes new segments, each in the place of one or, if they are small, several."""

    def __init__(self, fs: FileSystem, partition_log: PartitionLog, gaps_below: int, segment_bytes: int) -> None:
        self.groups: list[Group] = []
        self._fs, self._log = fs, partition_log
        self._gaps_below, self._segment_bytes = gaps_below, segment_bytes
        self._changed: list[bool] = []

    def begin(self, segment: Segment) -> None:
        """Begin `segment`: what follows is of it."""
        if self.groups and self.groups[-1][1].size_bytes + segment.size_bytes <= self._segment_bytes:
            self.groups[-1][0].append(segment)
            self._changed[-1] = True
            return
        name = segment_name(segment.base_offset) + CLEANED_SUFFIX
        self._fs.remove(self._log.directory / name)  # of a pass that has failed
        new = Segment(self._fs, self._log.directory, segment.base_offset, self._gaps_below, name, self._log.thresholds)
        self.groups.append(([segment], new))
        self._changed.append(False)

    def add(self, batch: bytes | memoryview) -> None:
        """Append a batch that stays; one that was made anew is bytes."""
        self._changed[-1] |= isinstance(batch, bytes)
        self.groups[-1][1].append(read_header(batch), bytes(batch))

    def finish(self, check: Callable[[], None]) -> list[Group]:
        """Make them durable; those that are as they were are left out. Raises OSError, and what `check` does."""
        for old, new in self.groups:
            check()
            new.set_modified_ms(old[-1].modified_ms())  # records without timestamps must not become younger
            new.sync()
        as_before = [
            (old, new)
            for (old, new), changed in zip(self.groups, self._changed, strict=True)
            if not changed and new.size_bytes == old[0].size_bytes
        ]
        self._log.discard([new for _, new in as_before])
        self.groups = [group for group in self.groups if group not in as_before]
        return self.groups
