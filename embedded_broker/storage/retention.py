"""Deletes segments by retention.ms and retention.bytes, the active one, too; periodically, with compaction after it.

`Broker` starts one `Retention`. Source: org.apache.kafka.storage.internals.log.UnifiedLog.deleteOldSegments.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from embedded_broker.config.settings import BrokerConfig
from embedded_broker.runtime.clock import Clock
from embedded_broker.runtime.fair_share import FairShare, Share
from embedded_broker.storage.cleaner import Compaction
from embedded_broker.storage.disk_space import suppress_disk_full
from embedded_broker.storage.flush_scheduler import FlushScheduler
from embedded_broker.storage.log.segment import CorruptLog
from embedded_broker.storage.partition import Partition

FORGOTTEN_MIN = 100
"""Of a partition's producers at once: then its log isn't to bring them back at the next start."""
LOOK_STEPS = 20
"""What it takes to see that nothing of a partition has expired."""


class Retention:
    """A periodic task that deletes or compacts segments of all partitions."""

    def __init__(
        self,
        config: BrokerConfig,
        partitions: Callable[[], list[Partition]],
        compaction: Compaction,
        flush_scheduler: FlushScheduler,
        clock: Clock,
        fair_share: FairShare,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        """
        Args:
            config: says how often, and when idle producers are forgotten.
            partitions: all that the broker has now.
            compaction: done after the deletions.
            flush_scheduler: held while files are removed.
            clock: wall time.
            fair_share: lets requests go on between partitions, of which there may be thousands.
            on_failure: called with what goes wrong: when a file can't be removed or written, the broker must stop.
        """
        self._config, self._partitions, self._compaction = config, partitions, compaction
        self._flush_scheduler, self._clock, self._on_failure = flush_scheduler, clock, on_failure
        self._fair_share = fair_share
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the task."""
        self._task = asyncio.create_task(self._run(), name="retention")

    async def stop(self) -> None:
        """Cancel the task, and wait for its end."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._config.retention_check_interval_ms / 1000)
            share = self._fair_share.request()
            for partition in self._partitions():
                # One by one: what goes wrong with a partition must not keep the others from it.
                for work in (partial(self.enforce_one, share=share), self._compaction.run_for):
                    try:
                        await work(partition)
                    except Exception as error:  # noqa: BLE001 - the broker decides whether it can go on
                        self._on_failure(error)

    async def enforce(self) -> None:
        """Delete what has expired in all partitions, once. Raises OSError."""
        share = self._fair_share.request()
        for partition in self._partitions():
            await self.enforce_one(partition, share)

    async def enforce_one(self, partition: Partition, share: Share) -> None:
        """Delete what has expired in a partition. Raises OSError."""
        await share.spent(LOOK_STEPS)
        if partition.closed:
            return
        now_ms = self._clock.now_ms()
        if partition.producers.expire(now_ms, self._config.producer_id_expiration_ms) >= FORGOTTEN_MIN:
            with suppress_disk_full():  # a start would find them again
                await self._flush_scheduler.checkpoint(partition)
        if partition.closed:
            return
        if partition.stopped is not None or partition.internal or not partition.config.deletes:
            return
        try:
            offset = keep_from(partition, now_ms)
        except CorruptLog as error:
            partition.stop(error)
            return
        if offset > partition.log_start:
            async with self._flush_scheduler.exclusive():
                if not partition.closed:
                    with suppress_disk_full():  # retried when disk space has been freed
                        partition.delete_before(offset)
            await share.spent(self._fair_share.slice_steps)  # it has waited for the disk


def keep_from(partition: Partition, now_ms: int) -> int:
    """Return the first offset that retention keeps; never above the last stable offset, so no open transaction is
    deleted.

    A segment whose records have no timestamps (-1) is as old as its file. Source: UnifiedLog.deletableSegments. Raises
    CorruptLog.
    """
    retention_ms, retention_bytes = partition.config.retention_ms, partition.config.retention_bytes
    keep = partition.log_start
    excess_bytes = partition.log.size_bytes - retention_bytes if retention_bytes >= 0 else 0
    segments = partition.log.segments
    for segment, following in zip(segments, [*segments[1:], None], strict=True):
        expired = 0 <= retention_ms < now_ms - segment.largest_timestamp()
        excess_bytes -= segment.size_bytes
        is_over = expired or (retention_bytes >= 0 and excess_bytes >= 0)
        if not is_over or (following is None and not segment.size_bytes):
            break
        # Compaction may have left a gap between the two, or nothing at all of the first.
        keep = segment.end_offset if following is None else following.base_offset
    return min(keep, partition.last_stable)
