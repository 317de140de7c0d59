"""Batches of one partition on their way to the target: passed on, or collected and merged while they are small. Pure.

A produce request has one batch of a partition, so small batches one by one cost a request each. They are collected
until there is enough for a request, or the source is drained, and encoded as one. Invariant: a batch is merged only
with neighbours of the same codec, kind of timestamps and leader epoch, so nothing of a record depends on what it was
merged with.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kafka_records.batch import COMPRESSION_MASK, MAGIC, TIMESTAMP_TYPE, CorruptBatch
from kafka_records.compression import DecodedTooLarge
from kafka_records.fetched import OldMessage
from kafka_records.records import Record
from kafka_records.small_batches import BATCH_BYTES_MAX, BYTES_MAX, RECORDS_MAX, SmallBatches
from replicator.model.errors import Incident
from replicator.model.partition import Partition
from replicator.planes.batches.committed import Selected, SelectedBatch, corrupt, one_by_one
from replicator.planes.batches.decoding import RecordTooLarge, WritableBatch, encoded, epoch_of, wanted_records
from replicator.planes.batches.joining import JoinLimits, join
from replicator.planes.batches.old_messages import RECORD_OBJECT_BYTES

_CODEC_AND_TIMES = COMPRESSION_MASK | TIMESTAMP_TYPE
_Kind = tuple[int, int, int]
"""Format, codec and kind of timestamps, leader epoch."""


@dataclass(frozen=True, slots=True)
class MergeLimits:
    """How much is merged.

    `batch_bytes_max` is max.message.bytes of the target topic, or of another one with a lower limit, and a record alone
    may have `record_bytes_max` (0: no more than that); whether its topic takes it is seen then. A batch is small, and
    waits for others, while it has fewer than `enough_bytes` and at most `small_records` records: each record of it
    costs more time than a larger batch that is passed on. A compressed one is small below `compressed_bytes` only:
    merging it costs its decompression and compression, 75 µs for 10 KiB of text with zstd where passing it on costs 4.
    `decoded_bytes_max` bounds what is decoded at a time.
    `codec`: that of what is decoded (None: the source's).
    """

    batch_bytes_max: int
    enough_bytes: int = 256 * 1024
    small_records: int = 64
    compressed_bytes: int = 32 * 1024
    decoded_bytes_max: int = 64 * 1024 * 1024
    codec: int | None = None
    record_bytes_max: int = 0


@dataclass(slots=True)
class Merged:
    """What can be written, and what stops the partition behind it."""

    batches: list[WritableBatch] = field(default_factory=list)
    refused: Incident | None = None


_NOTHING = Merged()


class BatchMerger:
    """Collects the batches of one partition. After `Merged.refused` nothing else is taken."""

    def __init__(self, at: Partition, limits: MergeLimits) -> None:
        self._at, self._limits = at, limits
        self._waiting: list[Selected] = []
        self._waiting_kind: _Kind = (0, 0, -1)
        self._refused: Incident | None = None
        least_bytes = min(limits.enough_bytes, limits.batch_bytes_max)
        self._small_are_small = limits.small_records >= RECORDS_MAX and least_bytes >= BYTES_MAX + BATCH_BYTES_MAX
        self.waiting_bytes = 0
        """Of the batches that wait for others."""

    def take(self, selected: Selected) -> Merged:
        """Take what comes next; return what can be written by now."""
        if isinstance(selected, SmallBatches) and not self._small_are_small:
            return self._take_singly(selected)
        small, kind = self._is_small(selected), _kind(selected)
        if small and self._waiting and kind == self._waiting_kind and self._refused is None:  # nearly all small ones
            more = self.waiting_bytes + selected.size_bytes
            if more < self._limits.enough_bytes:
                self._waiting.append(selected)
                self.waiting_bytes = more
                return _NOTHING
        merged = Merged(refused=self._refused)
        if self._refused is not None:
            return merged
        if self._waiting and (not small or kind != self._waiting_kind):
            self._empty_into(merged)
        if merged.refused is None:
            self._waiting.append(selected)
            self._waiting_kind = kind
            self.waiting_bytes += selected.size_bytes
            if not small or self.waiting_bytes >= self._limits.enough_bytes:
                self._empty_into(merged)
        self._refused = merged.refused
        return merged

    def _take_singly(self, few: SmallBatches) -> Merged:
        merged = Merged(refused=self._refused)
        for each in one_by_one(few):
            taken = self.take(each)
            merged.batches += taken.batches
            merged.refused = taken.refused
        return merged

    def drain(self) -> Merged:
        """Return what still waits: the source has nothing more."""
        merged = Merged(refused=self._refused)
        if self._refused is None:
            self._empty_into(merged)
            self._refused = merged.refused
        return merged

    def _is_small(self, selected: Selected) -> bool:
        if isinstance(selected, SmallBatches):
            return True
        batch, limits = selected.batch, self._limits
        if isinstance(batch, OldMessage):
            return len(batch.data) < min(limits.enough_bytes, limits.batch_bytes_max)
        enough = min(limits.enough_bytes, limits.compressed_bytes) if batch.header.compression else limits.enough_bytes
        return batch.header.record_count <= limits.small_records and len(batch.data) < min(
            enough, limits.batch_bytes_max
        )

    def _empty_into(self, merged: Merged) -> None:
        waiting, self._waiting, self.waiting_bytes = self._waiting, [], 0
        limits = self._limits
        together = join(waiting, JoinLimits(limits.batch_bytes_max, limits.decoded_bytes_max, limits.codec))
        if together is not None:
            merged.batches += together
            return
        singles: list[SelectedBatch] = []
        for each in waiting:
            singles += one_by_one(each) if isinstance(each, SmallBatches) else [each]
        self._decode_into(merged, singles)

    def _decode_into(self, merged: Merged, waiting: list[SelectedBatch]) -> None:
        collected, codec, size, stop = list[Record](), 0, 0, None
        epoch = epoch_of(waiting[0]) if waiting else -1
        for selected in waiting:
            try:
                codec, records = wanted_records(selected, self._limits.decoded_bytes_max)
            except CorruptBatch as error:
                stop = self._unreadable(selected, error)
                break
            further = sum(RECORD_OBJECT_BYTES + len(each.key or b"") + len(each.value or b"") for each in records)
            if size + further > self._limits.decoded_bytes_max:
                self._encode_into(merged, collected, codec, epoch)
                collected, size = [], 0
            collected += records
            size += further
        self._encode_into(merged, collected, codec, epoch)
        merged.refused = merged.refused or stop

    def _encode_into(self, merged: Merged, records: list[Record], codec: int, epoch: int) -> None:
        if merged.refused is not None:
            return
        limits = self._limits
        try:
            codec = codec if limits.codec is None else limits.codec
            size_max = limits.batch_bytes_max, max(limits.batch_bytes_max, limits.record_bytes_max)
            merged.batches += encoded(self._at, records, codec, size_max, epoch)
        except RecordTooLarge as error:
            merged.batches += error.before
            merged.refused = error.incident

    def _unreadable(self, selected: SelectedBatch, error: CorruptBatch) -> Incident:
        at, offset = self._at, selected.wanted[0][0]
        if isinstance(error, DecodedTooLarge):
            return Incident("record_too_large", str(error), topic=at.topic, partition=at.partition, offset=offset)
        return corrupt(at, error, offset)


def _kind(selected: Selected) -> _Kind:
    """Tell batches apart that aren't merged with each other."""
    if isinstance(selected, SmallBatches):
        return MAGIC, 0, selected.leader_epoch
    batch = selected.batch
    if isinstance(batch, OldMessage):
        return batch.data[16], batch.data[17] & _CODEC_AND_TIMES, -1
    header = batch.header
    return MAGIC, header.attributes & _CODEC_AND_TIMES, header.leader_epoch
