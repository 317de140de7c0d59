"""More planted bugs: in the broker's own logs, their compaction, and checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from embedded_broker.coordinators.compaction import Compactor, LiveRecords
from embedded_broker.coordinators.group_registry import GroupRegistry
from embedded_broker.coordinators.producer_ids import ProducerIds
from embedded_broker.coordinators.transactions import TransactionCoordinator, _record
from embedded_broker.metadata.metadata_log import MetadataLog
from embedded_broker.metadata.topic_names import TRANSACTION_TOPIC
from embedded_broker.simulation.history import ViolationKind
from embedded_broker.simulation.schedule import WorkloadKind
from embedded_broker.state import transactions
from embedded_broker.state.producers import PartitionProducers
from embedded_broker.state.transaction_log import encode_producer_ids
from embedded_broker.storage.partition import Partition
from kafka_records.records import encode
from tests.embedded_broker.simulation.mutations import Mutations, Patch

PRODUCERS, GROUPS = Mutations(WorkloadKind.PRODUCERS), Mutations(WorkloadKind.GROUPS)
LOST_STATE = (
    ViolationKind.BROKEN,
    ViolationKind.LOST_WRITE,
    ViolationKind.TORN_TRANSACTION,
    ViolationKind.WRONG_GROUP_OFFSET,
)
SHARED_IDS = (ViolationKind.BROKEN, ViolationKind.LOST_WRITE, ViolationKind.DUPLICATE, ViolationKind.REORDERING)


@PRODUCERS.add(*LOST_STATE)
def cut_an_internal_log_without_waiting_for_the_disk(patch: Patch) -> None:
    async def trim(self: Compactor, offset: int) -> None:
        await self._host.trim(self._host.internal_log(self._topic), offset)

    patch.setattr(Compactor, "_trim", trim)


@PRODUCERS.add(*LOST_STATE)
def write_what_counted_at_the_compaction_before(patch: Patch) -> None:
    rewrite = Compactor._rewrite

    async def old(self: Compactor, live: Iterator[LiveRecords]) -> bool:
        now = list(live)
        before = self.__dict__.get("before", now)
        self.__dict__["before"] = now
        return await rewrite(self, iter(before))

    patch.setattr(Compactor, "_rewrite", old)


@PRODUCERS.add(*LOST_STATE, ViolationKind.ABORTED_READ, ViolationKind.STALE_COMMIT)
def repeat_what_counted_when_the_compaction_began(patch: Patch) -> None:
    rewrite = Compactor._rewrite

    async def stale(self: Compactor, live: Iterator[LiveRecords]) -> bool:
        return await rewrite(self, iter(list(live)))

    patch.setattr(Compactor, "_rewrite", stale)


@PRODUCERS.add(*LOST_STATE)
def cut_what_a_snapshot_has_not(patch: Patch) -> None:
    patch.setattr(Compactor, "_cut", lambda self, start: start)


@PRODUCERS.add(*LOST_STATE)
def leave_open_transactions_out_of_snapshots(patch: Patch) -> None:
    def live(self: TransactionCoordinator) -> Iterator[LiveRecords]:
        known = [each for each in (entry.logged for entry in self._entries.values()) if each.state in transactions.IDLE]
        yield LiveRecords([self._producer_ids.snapshot(), *map(_record, known)])

    patch.setattr(TransactionCoordinator, "_live", live)


@GROUPS.add(ViolationKind.UNSTABLE_GROUP, ViolationKind.STALE_COMMIT, ViolationKind.TWO_OWNERS)
def leave_groups_out_of_snapshots(patch: Patch) -> None:
    patch.setattr(GroupRegistry, "live", lambda self: iter(()))


@PRODUCERS.add(*SHARED_IDS)
def hand_out_producer_ids_whose_reservation_is_not_on_disk(patch: Patch) -> None:
    async def ensure(self: ProducerIds) -> None:
        thresholds = self._thresholds
        if self._reserved_end - self._next < thresholds.producer_ids_left_min:
            self._reserved_end += thresholds.producer_ids_block
            record = encode([encode_producer_ids(self._reserved_end)], self._host.clock.now_ms())
            self._host.internal_log(TRANSACTION_TOPIC).append(record)

    patch.setattr(ProducerIds, "ensure", ensure)


@PRODUCERS.add(*SHARED_IDS)
def leave_the_reserved_producer_ids_out_of_snapshots(patch: Patch) -> None:
    patch.setattr(ProducerIds, "snapshot", lambda self: encode_producer_ids(0))


@PRODUCERS.add(ViolationKind.BROKEN)
def rewrite_the_metadata_without_waiting_for_the_disk(patch: Patch) -> None:
    async def rewrite(self: MetadataLog) -> None:
        end = self._log.log_end
        if end - self._log.log_start >= self._dead_records_max + 2 * len(self._entries):
            for key, body in self.items():
                self._append({key: body}, own=False)
            async with self._flush_scheduler.exclusive():
                self._log.delete_before(end)

    patch.setattr(MetadataLog, "_rewrite_if_long", rewrite)


@PRODUCERS.add(ViolationKind.DUPLICATE, ViolationKind.BROKEN)
def leave_producers_out_of_checkpoints(patch: Patch) -> None:
    def capture(self: Partition) -> Any:
        return self.log.capture({"epochs": self._epochs, **PartitionProducers().snapshot()})

    patch.setattr(Partition, "capture", capture)


MUTATIONS = [*PRODUCERS, *GROUPS]
