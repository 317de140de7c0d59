"""More planted bugs: in compaction and retention."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from embedded_broker.simulation.history import ViolationKind
from embedded_broker.simulation.schedule import WorkloadKind
from embedded_broker.storage import cleaner, retention
from embedded_broker.storage.cleaner import Job
from embedded_broker.storage.log import cleaning
from embedded_broker.storage.log.cleaning import Cleaner
from embedded_broker.storage.log.segment import Segment
from embedded_broker.storage.partition import Partition
from kafka_records.batch import BatchHeader
from kafka_records.records import Record
from tests.embedded_broker.simulation.mutations import Mutations, Patch

MUTATIONS = Mutations(WorkloadKind.RETENTION)
mutation = MUTATIONS.add


@mutation(ViolationKind.LOST_WRITE)
def let_aborted_records_stand_for_their_keys(patch: Patch) -> None:
    latest = cleaning.latest_offsets
    patch.setattr(cleaner, "latest_offsets", lambda segments, aborted, *rest: latest(segments, [], *rest))


@mutation(ViolationKind.LOST_WRITE)
def keep_the_first_record_of_each_key(patch: Patch) -> None:
    latest = cleaning.latest_offsets

    def first(*args: Any) -> Any:
        found, count = latest(*args)
        return {key: offset + 1 for key, offset in found.items()}, count

    patch.setattr(cleaner, "latest_offsets", first)


@mutation(ViolationKind.ABORTED_READ)
def drop_abort_markers_before_what_they_abort(patch: Patch) -> None:
    def marker(self: Cleaner, header: BatchHeader, view: memoryview) -> Any:
        self.markers_gone.add(header.base_offset)
        return view

    def data(self: Cleaner, segment: Segment, header: BatchHeader, view: memoryview) -> Any:
        return view

    patch.setattr(Cleaner, "_marker", marker)
    patch.setattr(Cleaner, "_data", data)


@mutation(ViolationKind.LOST_WRITE)
def compact_without_an_fsync(patch: Patch) -> None:
    sync = Segment.sync

    def lazy(self: Segment) -> None:
        if not self.path.name.endswith(".cleaned"):
            sync(self)

    patch.setattr(Segment, "sync", lazy)


@mutation(ViolationKind.LOST_WRITE)
def delete_before_its_time(patch: Patch) -> None:
    keep = retention.keep_from
    patch.setattr(retention, "keep_from", lambda partition, now_ms: keep(partition, now_ms + 1_000))


@mutation(ViolationKind.LOST_WRITE, ViolationKind.BROKEN)
def delete_what_is_compacted(patch: Patch) -> None:
    configure = Partition.configure
    deletes = partial(replace, deletes=True, retention_ms=1_500)
    patch.setattr(Partition, "configure", lambda self, config: configure(self, deletes(config)))


@mutation(ViolationKind.DUPLICATE)
def forget_producers_of_what_is_deleted(patch: Patch) -> None:
    def delete_before(self: Partition, offset: int) -> None:
        self._write(partial(self.log.delete_before, offset))
        for entry in self.producers.entries():
            if entry.first_offset_open is None:
                del self.producers._entries[entry.producer_id]
        self._forget_before_start()
        self._wake()

    patch.setattr(Partition, "delete_before", delete_before)


@mutation(ViolationKind.LOST_WRITE, ViolationKind.ABORTED_READ, ViolationKind.BROKEN)
def compact_transactions_that_are_open(patch: Patch) -> None:
    find_job = cleaner.find_job

    def early(partition: Partition, now_ms: int) -> Job | None:
        with_all = type("", (), {"__getattr__": lambda self, name: getattr(partition, name)})()
        with_all.last_stable = partition.high_watermark
        return find_job(with_all, now_ms)

    patch.setattr(cleaner, "find_job", early)


@mutation(ViolationKind.LOST_WRITE)
def drop_keys_that_the_pass_has_not_met(patch: Patch) -> None:
    stays = Cleaner._stays

    def forgetful(self: Cleaner, record: Record, tombstones_gone: bool) -> bool:
        return cleaning.digest(record.key or b"") in self.latest and stays(self, record, tombstones_gone)

    patch.setattr(Cleaner, "_stays", forgetful)
