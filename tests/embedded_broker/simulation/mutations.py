"""Bugs that a broker could have, planted by exchanging one function each, and what the checker has to say of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from embedded_broker.api import produce
from embedded_broker.coordinators import single_partition_commit
from embedded_broker.coordinators.markers import MarkerWriter
from embedded_broker.coordinators.offsets import OffsetManager
from embedded_broker.coordinators.transactions import TransactionCoordinator, _record
from embedded_broker.metadata.topics import Topics
from embedded_broker.simulation.history import ViolationKind
from embedded_broker.simulation.schedule import WorkloadKind
from embedded_broker.state.producers import ACCEPT, Duplicate, PartitionProducers, RefuseBatch
from embedded_broker.state.transactions import Step, TxnState
from embedded_broker.storage.disk_space import DiskSpace, NoSpace
from embedded_broker.storage.log.partition_log import PartitionLog
from embedded_broker.storage.partition import Partition, PartitionStopped
from kafka_records.batch import read_header

Patch = pytest.MonkeyPatch


@dataclass(frozen=True)
class Mutation:
    """A bug: `plant` installs it, and a run with the workload must find it as one of `kinds`."""

    name: str
    plant: Callable[[Patch], None]
    kinds: frozenset[ViolationKind]
    workload: WorkloadKind


class Mutations(list[Mutation]):
    """Bugs that runs of one workload find."""

    def __init__(self, workload: WorkloadKind) -> None:
        super().__init__()
        self._workload = workload

    def add(self, *kinds: ViolationKind) -> Callable[[Callable[[Patch], None]], Callable[[Patch], None]]:
        """Put a bug on the list."""

        def take(plant: Callable[[Patch], None]) -> Callable[[Patch], None]:
            self.append(Mutation(plant.__name__, plant, frozenset(kinds), self._workload))
            return plant

        return take


MUTATIONS = Mutations(WorkloadKind.PRODUCERS)
mutation = MUTATIONS.add


@mutation(ViolationKind.LOST_WRITE)
def acknowledge_before_the_fsync(patch: Patch) -> None:
    async def at_once(broker: Any, answer: Any, dirty: list[Partition]) -> Any:
        broker.groups._background.spawn("hasty", broker.flush_scheduler.durable(*dirty))
        return answer

    patch.setattr(produce, "_when_durable", at_once)


@mutation(ViolationKind.DIRTY_READ)
def show_what_is_not_on_disk_yet(patch: Patch) -> None:
    limit = Partition.limit
    patch.setattr(Partition, "limit", lambda self, committed: limit(self, committed) if committed else self.log_end)


@mutation(ViolationKind.DUPLICATE)
def forget_the_producers_window_at_a_restart(patch: Patch) -> None:
    recover = Topics._recover

    def forgetful(self: Topics, *args: Any) -> Partition:
        partition = recover(self, *args)
        producers = partition.producers
        for entry in [each for each in producers.entries() if each.first_offset_open is None]:
            del producers._entries[entry.producer_id]
        return partition

    patch.setattr(Topics, "_recover", forgetful)


@mutation(ViolationKind.DUPLICATE, ViolationKind.REORDERING)
def take_repeated_batches(patch: Patch) -> None:
    _after_the_check(patch, lambda verdict: ACCEPT if isinstance(verdict, Duplicate) else verdict)


def _after_the_check(patch: Patch, change: Callable[[Any], Any]) -> None:
    check = PartitionProducers.check
    patch.setattr(PartitionProducers, "check", lambda self, *args, **options: change(check(self, *args, **options)))


@mutation(ViolationKind.REORDERING, ViolationKind.BROKEN)
def take_batches_of_earlier_epochs(patch: Patch) -> None:
    check = PartitionProducers.check

    def lenient(self: PartitionProducers, header: Any, now_ms: int, **options: Any) -> Any:
        entry = self._entries.get(header.producer_id)
        if entry is not None and header.producer_epoch < entry.epoch and not header.is_transactional:
            return ACCEPT
        return check(self, header, now_ms, **options)

    patch.setattr(PartitionProducers, "check", lenient)


@mutation(ViolationKind.REORDERING, ViolationKind.BROKEN)
def answer_earlier_epochs_by_their_sequence_only(patch: Patch) -> None:
    check = PartitionProducers.check

    def lenient(self: PartitionProducers, header: Any, now_ms: int, **options: Any) -> Any:
        verdict = check(self, header, now_ms, **options)
        if verdict != RefuseBatch(ErrorCode.invalid_producer_epoch) or header.is_transactional:
            return verdict
        return ACCEPT if header.base_sequence == 0 else RefuseBatch(ErrorCode.out_of_order_sequence_number)

    patch.setattr(PartitionProducers, "check", lenient)


@mutation(ViolationKind.TORN_TRANSACTION, ViolationKind.LOST_WRITE, ViolationKind.BROKEN)
def lose_a_marker(patch: Patch) -> None:
    write_one = MarkerWriter.write_one

    async def lossy(self: MarkerWriter, name: Any, *args: Any, **options: Any) -> Any:
        return ErrorCode.none if name == ("transactions", 1) else await write_one(self, name, *args, **options)

    patch.setattr(MarkerWriter, "write_one", lossy)


@mutation(ViolationKind.TORN_TRANSACTION)
def abort_in_one_partition_what_is_committed_in_others(patch: Patch) -> None:
    write_one = MarkerWriter.write_one

    async def torn(self: MarkerWriter, name: Any, producer_id: int, epoch: int, commit: bool, **options: Any) -> Any:
        return await write_one(self, name, producer_id, epoch, commit and name != ("transactions", 1), **options)

    patch.setattr(MarkerWriter, "write_one", torn)


@mutation(ViolationKind.ABORTED_READ)
def let_the_last_stable_offset_be_the_high_watermark(patch: Patch) -> None:
    patch.setattr(PartitionProducers, "last_stable_offset", lambda self, high_watermark: high_watermark)


@mutation(ViolationKind.ABORTED_READ)
def forget_to_say_what_is_aborted(patch: Patch) -> None:
    patch.setattr(PartitionProducers, "aborted_in", lambda self, start, end: [])


@mutation(ViolationKind.LOST_WRITE)
def answer_the_commit_before_its_decision_is_on_disk(patch: Patch) -> None:
    make = TransactionCoordinator._make

    async def hasty(self: TransactionCoordinator, entry: Any, decision: Any, store: Any = None) -> Any:
        if not isinstance(decision, Step) or decision.next.state is not TxnState.PREPARE_COMMIT:
            return await make(self, entry, decision)
        entry.pending = decision.next
        entry.settled.clear()
        self._background.spawn("hasty", (store or self._store)(entry, decision.next, _record(decision.next)))
        return decision.next

    patch.setattr(TransactionCoordinator, "_make", hasty)


@mutation(ViolationKind.TORN_TRANSACTION)
def let_a_single_marker_decide_over_several_partitions(patch: Patch) -> None:
    async def first_only(self: TransactionCoordinator, entry: Any, prepared: Any, record: Any) -> None:
        name = min(prepared.partitions)
        await self.markers.write_one(name, prepared.producer_id, prepared.epoch, True)
        await self._store(entry, prepared, record)

    patch.setattr(single_partition_commit, "applies_to", lambda topics, ending: True)
    patch.setattr(TransactionCoordinator, "_commit_single_partition", first_only)


@mutation(ViolationKind.BROKEN, ViolationKind.LOST_WRITE)
def forget_prepared_transactions_at_a_restart(patch: Patch) -> None:
    async def start(self: TransactionCoordinator) -> None:
        for entry in self._entries.values():
            self._deadlines.watch(entry)

    patch.setattr(TransactionCoordinator, "start", start)


@mutation(ViolationKind.WRONG_GROUP_OFFSET)
def write_offsets_outside_of_the_transaction(patch: Patch) -> None:
    async def outside(self: OffsetManager, who: Any, group: Any, producer_id: int, epoch: int, commits: Any) -> Any:
        return await self.commit(who, group, commits)

    patch.setattr(OffsetManager, "commit_in_transaction", outside)


@mutation(ViolationKind.WRONG_GROUP_OFFSET)
def acknowledge_offsets_before_the_fsync(patch: Patch) -> None:
    finish = OffsetManager._apply_once_durable

    async def hasty(self: OffsetManager, *args: Any) -> None:
        self._background.spawn("hasty", finish(self, *args))

    patch.setattr(OffsetManager, "_apply_once_durable", hasty)


@mutation(ViolationKind.WRONG_GROUP_OFFSET)
def leave_out_pending_offsets_at_a_restart(patch: Patch) -> None:
    def replay(self: OffsetManager, record: Any, producer_id: int) -> None:
        if producer_id < 0:
            self.state.apply(record, producer_id)

    patch.setattr(OffsetManager, "replay", replay)


@mutation(ViolationKind.SKIPPED_POLL)
def leave_out_the_first_of_several_batches(patch: Patch) -> None:
    leave_out_batches(patch)


def leave_out_batches(patch: Patch) -> None:
    read = Partition.read

    def skipping(self: Partition, offset: int, *args: Any) -> bytes:
        data = read(self, offset, *args)
        if offset % 5 or self.topic.startswith("__") or not data:
            return data
        first = read_header(data).size_bytes
        return data[first:] or data

    patch.setattr(Partition, "read", skipping)


@mutation(ViolationKind.NON_MONOTONIC, ViolationKind.DIRTY_READ)
def read_from_an_earlier_place(patch: Patch) -> None:
    read, count = Partition.read, [0]

    def earlier(self: Partition, offset: int, *args: Any) -> bytes:
        count[0] += 1
        return read(self, offset if count[0] % 10 else max(offset - 40, 0), *args)

    patch.setattr(Partition, "read", earlier)


@mutation(ViolationKind.LOST_WRITE)
def acknowledge_what_the_disk_refused(patch: Patch) -> None:
    append, count = Partition.append_checked, [0]

    def lossy(self: Partition, *args: Any, **options: Any) -> int:
        count[0] += 1
        if self.topic == "plain" and count[0] % 50 == 0:
            return self.log_end
        return append(self, *args, **options)

    patch.setattr(Partition, "append_checked", lossy)


@mutation(ViolationKind.BROKEN, ViolationKind.LOST_WRITE)
def go_on_after_an_fsync_has_failed(patch: Patch) -> None:
    flush = PartitionLog.flush

    def careless(self: PartitionLog) -> int:
        try:
            return flush(self)
        except OSError:
            self._failure = None
            self.durable_end = self.log_end
            return self.log_end

    patch.setattr(PartitionLog, "flush", careless)


@mutation(ViolationKind.BROKEN)
def never_notice_that_there_is_disk_space_again(patch: Patch) -> None:
    patch.setattr(DiskSpace, "check", lambda self: None)


@mutation(ViolationKind.BROKEN)
def end_when_the_disk_is_full(patch: Patch) -> None:
    patch.setattr(DiskSpace, "mark_full", lambda self, error: self._on_failure(error))


@mutation(ViolationKind.LOST_WRITE)
def acknowledge_what_there_was_no_disk_space_for(patch: Patch) -> None:
    append = Partition.append_checked

    def lossy(self: Partition, *args: Any, **options: Any) -> int:
        try:
            return append(self, *args, **options)
        except NoSpace:
            return self.log_end

    patch.setattr(Partition, "append_checked", lossy)


@mutation(ViolationKind.BROKEN)
def refuse_to_read_when_the_disk_is_full(patch: Patch) -> None:
    read = Partition.read

    def refusing(self: Partition, *args: Any) -> bytes:
        if self._disk_space is not None and self._disk_space.full and not self.topic.startswith("__"):
            raise PartitionStopped("full")
        return read(self, *args)

    patch.setattr(Partition, "read", refusing)
