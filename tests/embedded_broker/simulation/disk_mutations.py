"""More planted bugs: in what happens during an fsync, after a failed one, and in each fsync mode."""

from __future__ import annotations

from typing import Any

from embedded_broker.config.settings import Fsync
from embedded_broker.simulation.history import ViolationKind
from embedded_broker.simulation.schedule import WorkloadKind
from embedded_broker.storage.flush_scheduler import FlushScheduler
from embedded_broker.storage.log import checkpoint, recovery, segment, walking
from embedded_broker.storage.log.format import CHECKPOINT
from embedded_broker.storage.log.partition_log import Capture, PartitionLog
from embedded_broker.storage.partition import Partition
from tests.embedded_broker.simulation.mutations import Mutations, Patch

PRODUCERS, DURABILITY = Mutations(WorkloadKind.PRODUCERS), Mutations(WorkloadKind.DURABILITY)


@PRODUCERS.add(ViolationKind.LOST_WRITE)
def count_what_was_appended_during_the_fsync(patch: Patch) -> None:
    flush = PartitionLog.flush

    def late(self: PartitionLog) -> int:
        flush(self)
        self.durable_end = self.log_end
        return self.log_end

    patch.setattr(PartitionLog, "flush", late)


@PRODUCERS.add(ViolationKind.DIRTY_READ, ViolationKind.NON_MONOTONIC)
def show_what_was_appended_during_the_fsync(patch: Patch) -> None:
    advance = Partition.advance
    patch.setattr(Partition, "advance", lambda self, durable_end: advance(self, self.log_end))


@PRODUCERS.add(ViolationKind.LOST_WRITE)
def take_the_round_under_way_for_the_next_one(patch: Patch) -> None:
    async def one_round(self: FlushScheduler) -> None:
        waiting = self._next
        assert waiting is not None
        try:
            await self._flush(waiting)
        finally:
            self._next = None if self._next is waiting else self._next

    patch.setattr(FlushScheduler, "_one_round", one_round)


@PRODUCERS.add(ViolationKind.LOST_WRITE, ViolationKind.BROKEN)
def trust_what_a_failed_fsync_has_left_in_memory(patch: Patch) -> None:
    patch.setattr(PartitionLog, "_write_again", lambda self: None)


@DURABILITY.add(ViolationKind.LOST_WRITE)
def take_what_is_found_at_a_start_for_durable(patch: Patch) -> None:
    patch.setattr(PartitionLog, "_write_again", lambda self: setattr(self, "durable_end", self.log_end))


@DURABILITY.add(ViolationKind.LOST_WRITE)
def make_no_rounds_by_interval(patch: Patch) -> None:
    run = FlushScheduler._run

    async def idle(self: FlushScheduler) -> None:
        if self._fsync is not Fsync.INTERVAL:
            await run(self)
        self._next = self._task = None

    patch.setattr(FlushScheduler, "_run", idle)


@DURABILITY.add(ViolationKind.BROKEN, ViolationKind.LOST_WRITE)
def say_that_data_is_durable_before_its_fsync(patch: Patch) -> None:
    sync = PartitionLog._sync

    def hasty(self: PartitionLog, segments: Any) -> None:
        self._mark_durable(self.log_end)
        sync(self, segments)

    patch.setattr(PartitionLog, "_sync", hasty)


@DURABILITY.add(ViolationKind.BROKEN, ViolationKind.LOST_WRITE)
def write_a_checkpoint_of_what_is_not_on_disk(patch: Patch) -> None:
    def hasty(self: PartitionLog, captured: Capture) -> int:
        data = checkpoint.encode(captured.checkpoint)
        self._fs.write_atomically(self.directory / CHECKPOINT, data)
        return len(data)

    patch.setattr(PartitionLog, "store_checkpoint", hasty)


@DURABILITY.add(ViolationKind.BROKEN, ViolationKind.LOST_WRITE)
def sync_the_last_segment_only(patch: Patch) -> None:
    sync = PartitionLog._sync
    patch.setattr(PartitionLog, "_sync", lambda self, segments: sync(self, segments[-1:]))


@DURABILITY.add(ViolationKind.BROKEN, ViolationKind.LOST_WRITE)
def sync_no_names_of_new_segments(patch: Patch) -> None:
    sync = PartitionLog._sync

    def nameless(self: PartitionLog, segments: Any) -> None:
        for each in segments:
            each.is_named = each.base_offset > 0  # the first one's is synced, with that of its directory
        sync(self, segments)

    patch.setattr(PartitionLog, "_sync", nameless)


@DURABILITY.add(ViolationKind.BROKEN, ViolationKind.LOST_WRITE)
def keep_the_segments_behind_a_torn_one(patch: Patch) -> None:
    patch.setattr(recovery, "_cut", lambda fs, directory, bases: None)


@DURABILITY.add(ViolationKind.BROKEN, ViolationKind.LOST_WRITE)
def take_torn_batches_for_sound(patch: Patch) -> None:
    patch.setattr(walking, "check_crc", lambda view: None)


@DURABILITY.add(ViolationKind.BROKEN, ViolationKind.LOST_WRITE)
def scan_no_batch_that_is_larger_than_a_chunk(patch: Patch) -> None:
    class Short:
        def __init__(self, file: walking.Readable, chunk_bytes: int) -> None:
            self._file, self._chunk_bytes = file, chunk_bytes

        def read(self, at: int, size: int) -> bytes:
            return self._file.read(at, min(size, self._chunk_bytes))

        def size(self) -> int:
            return self._file.size()

    walk = walking.walk
    patch.setattr(segment, "walk", lambda file, at, chunk: walk(Short(file, chunk), at, chunk))


MUTATIONS = [*PRODUCERS, *DURABILITY]
