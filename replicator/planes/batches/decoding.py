"""Records of the batches that can't be passed on as they are, decoded, and encoded again as batches. Sans-I/O.

Key, value, headers in order and the timestamp that a reader sees stay as they are, and the codec; offsets are counted
anew. Called by `merge`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kafka_records.batch import MAGIC, BatchHeader, Buffer, CorruptBatch, read_header
from kafka_records.compression import ZSTD, DecodedTooLarge
from kafka_records.fetched import OldMessage
from kafka_records.rebuild import rebuild
from kafka_records.records import Record, body_of, decode
from replicator.model.errors import Incident
from replicator.model.partition import Partition, Span
from replicator.offset_map.runs import runs_of
from replicator.planes.batches.committed import SelectedBatch
from replicator.planes.batches.old_messages import RECORD_OBJECT_BYTES, decode_old

_TIMES_APART_MAX = 2**63


class WritableBatch(NamedTuple):
    """A batch as it goes to the target, once `rewrite.rewritten` has given it a producer.

    `runs` are the source offsets of its records, ranges in order, and `leader_epoch` is theirs there (-1: unknown).
    """

    header: BatchHeader
    data: Buffer
    runs: tuple[Span, ...]
    leader_epoch: int = -1

    @property
    def records(self) -> int:
        """How many records it has, which is how many sequences it takes."""
        return self.header.record_count

    @property
    def next_offset(self) -> int:
        """One past the source offset of its last record."""
        return self.runs[-1][1]


def epoch_of(selected: SelectedBatch) -> int:
    """Return the leader epoch under which a batch was written; -1: its format has none."""
    return -1 if isinstance(selected.batch, OldMessage) else selected.batch.header.leader_epoch


class DecodedRecords(NamedTuple):
    """Records of one selected batch, and the codec that it had."""

    codec: int
    records: list[Record]


def wanted_records(selected: SelectedBatch, decoded_bytes_max: int) -> DecodedRecords:
    """Return the decoded records that are wanted of a batch.

    `decoded_bytes_max` bounds the memory that is taken for it. Raises CorruptBatch, with the batch's offset, when its
    records aren't what its header says; DecodedTooLarge when they need more.
    """
    batch = selected.batch
    if isinstance(batch, OldMessage):
        codec, records = decode_old(batch.data, decoded_bytes_max)
        return DecodedRecords(codec, _within(records, selected.wanted))
    header = batch.header
    if header.record_count * RECORD_OBJECT_BYTES > decoded_bytes_max:
        raise DecodedTooLarge(f"{header.record_count} records need more than {decoded_bytes_max} bytes")
    try:
        records = decode(batch.data, decoded_bytes_max - header.record_count * RECORD_OBJECT_BYTES)
    except DecodedTooLarge:
        raise
    except CorruptBatch as error:
        raise CorruptBatch(str(error), batch.first_offset) from error
    after = batch.first_offset - 1
    for record in records:
        if not -_TIMES_APART_MAX <= record.timestamp_ms < _TIMES_APART_MAX:
            raise CorruptBatch(f"a record has the time {record.timestamp_ms}", batch.first_offset)
        if not after < record.offset <= batch.last_offset:
            raise CorruptBatch(f"a record with offset {record.offset} follows {after}", batch.first_offset)
        after = record.offset
    return DecodedRecords(header.compression, _within(records, selected.wanted))


def dividable(selected: SelectedBatch, decoded_bytes_max: int) -> bool:
    """Return whether a part of a batch can be had, for which all of it must be decoded. Where that takes more than
    `decoded_bytes_max` the batch goes as a whole or not at all."""
    batch = selected.batch
    if isinstance(batch, OldMessage):
        return True
    left_bytes = decoded_bytes_max - batch.header.record_count * RECORD_OBJECT_BYTES
    if left_bytes < 0:
        return False
    try:
        body_of(batch.header, batch.data, left_bytes)
    except DecodedTooLarge:
        return False
    except CorruptBatch:
        return True  # decoding tells what is wrong with it
    return True


def _within(records: list[Record], spans: Sequence[Span]) -> list[Record]:
    """Return the records in `spans`; both are in order."""
    found: list[Record] = []
    at = 0
    for first, end in spans:
        while at < len(records) and records[at].offset < first:
            at += 1
        begin = at
        while at < len(records) and records[at].offset < end:
            at += 1
        found += records[begin:at]
    return found


def encoded(
    at: Partition, records: Sequence[Record], codec: int, size_max: tuple[int, int], leader_epoch: int = -1
) -> list[WritableBatch]:
    """Make batches of records with source offsets, by halves where one is larger than the first of `size_max`; with a
    single record it may have as many bytes as the second.

    All of them were written under the same leader epoch. One that is too large by itself is compressed. Raises
    RecordTooLarge where it is larger in a batch of its own.
    """
    if not records:
        return []
    times = [record.timestamp_ms for record in records]
    if max(times) - min(times) < _TIMES_APART_MAX:  # else the difference has no room in a record
        batch = _encoded(records, codec, leader_epoch)
        if len(batch.data) <= size_max[len(records) == 1]:
            return [batch]
    if len(records) == 1 and not codec:  # the broker counts what is sent
        return encoded(at, records, ZSTD, size_max, leader_epoch)
    if len(records) == 1:
        raise RecordTooLarge(at, records[0].offset, len(batch.data), size_max[1])
    middle, found = len(records) // 2, list[WritableBatch]()
    for half in (records[:middle], records[middle:]):
        try:
            found += encoded(at, half, codec, size_max, leader_epoch)
        except RecordTooLarge as error:
            error.before[:0] = found
            raise
    return found


def _encoded(records: Sequence[Record], codec: int, leader_epoch: int) -> WritableBatch:
    numbered = [record._replace(offset=number) for number, record in enumerate(records)]
    first_ms = records[0].timestamp_ms
    plain = BatchHeader(0, 0, -1, MAGIC, 0, codec, len(records) - 1, first_ms, first_ms, -1, -1, -1, len(records))
    data = rebuild(plain, numbered)
    runs = tuple(runs_of([record.offset for record in records]))
    return WritableBatch(read_header(data), data, runs, leader_epoch)


class RecordTooLarge(Exception):
    """One record is larger than the target takes; `before` has the batches of those before it."""

    def __init__(self, at: Partition, offset: int, size: int, batch_bytes_max: int) -> None:
        self.before = list[WritableBatch]()
        self.incident = Incident(
            "record_too_large",
            f"{size} bytes in a batch of its own, and the target takes {batch_bytes_max}",
            topic=at.topic,
            partition=at.partition,
            offset=offset,
        )
        super().__init__(str(self.incident))
