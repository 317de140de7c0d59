"""Which batches of a Fetch response a read_committed reader gets, and which offsets of them. Sans-I/O.

Called with each response for a partition; what is selected goes to `merge`. The list of aborted transactions is one of
its response, and names each by producer id and first offset; a transaction ends with its abort marker
(org.apache.kafka.clients.consumer.internals.CompletedFetch).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kafka_records.batch import COMPRESSION_MASK, CONTROL, TRANSACTIONAL, CorruptBatch, read_header
from kafka_records.compression import ZSTD
from kafka_records.control import ABORT, marker_kind
from kafka_records.fetched import FetchedBatch, OldMessage, read_together
from kafka_records.small_batches import SmallBatches
from replicator.model.errors import Incident
from replicator.model.partition import Partition, Span

_OFFSET_END = 2**63 - 1


class AbortedRange(NamedTuple):
    """An aborted transaction as a Fetch response names it: whose it is, and the offset of its first record."""

    producer_id: int
    first_offset: int


class SelectedBatch(NamedTuple):
    """A batch with committed records that are wanted: those at the offsets `wanted`, ranges in order.

    `whole`: all of its records are.
    """

    batch: FetchedBatch | OldMessage
    wanted: tuple[Span, ...]
    whole: bool

    @property
    def size_bytes(self) -> int:
        """Bytes of the batch."""
        return len(self.batch.data)


Selected = SelectedBatch | SmallBatches
"""What goes on its way together. All records of small batches are wanted."""


@dataclass(frozen=True, slots=True)
class FetchedRange:
    """Where a partition is read from, and what of it is wanted: nothing at or behind `until` (None: no bound); where
    there are `spans`, which are sorted and disjoint, only what is in them."""

    at: Partition
    start: int
    until: int | None = None
    spans: Sequence[Span] = ()


@dataclass(slots=True)
class Selection:
    """What a response holds.

    `next_offset` is the next one to read, once `batches` are copied: past markers, aborted records and offsets without
    a record too. `leader_epoch` is that of the last batch that was looked at (-1: none). `refused`: what stops the
    partition; `batches` are those before it, and `next_offset` is its offset.
    """

    next_offset: int
    leader_epoch: int = -1
    batches: list[Selected] = field(default_factory=list)
    refused: Incident | None = None


def select(
    asked: FetchedRange, data: bytes | memoryview, aborted: Iterable[AbortedRange], last_stable: int
) -> Selection:
    """Return what is committed and wanted of a response's records.

    Invariant: a batch is selected only if its CRC is right, it lies below the last stable offset, and it is not part of
    an aborted transaction. A broker reads the last stable offset before it reads the log, so batches at or behind it
    may come and be sound: they are left for the next fetch.

    Args:
        asked: what was asked for.
        data: the response's records; the last batch may be cut.
        aborted: the response's list, in any order.
        last_stable: the response's last stable offset; -1: it has none.
    """
    found, filter_ = Selection(asked.start), _AbortedFilter(aborted)
    read, offset_end = 0, _small_until(asked, filter_, last_stable)
    try:
        for batch in read_together(data, asked.start, offset_end):
            read += 1
            if isinstance(batch, SmallBatches):
                found.batches.append(batch if len(batch.rows) > 1 else next(one_by_one(batch)))
                found.next_offset, found.leader_epoch = batch.next_offset, batch.leader_epoch
                continue
            last = batch.last_offset
            if 0 <= last_stable <= last or (asked.until is not None and found.next_offset >= asked.until):
                break
            keep = filter_.keeps(batch)
            if last < asked.start:
                continue
            if keep:
                _add(found, asked, batch, last)
            found.next_offset = last + 1
            if isinstance(batch, FetchedBatch):
                found.leader_epoch = batch.header.leader_epoch
        if len(data) and not read:
            raise CorruptBatch("the response ends inside its first batch")
    except CorruptBatch as error:
        found.refused = corrupt(asked.at, error, found.next_offset)
    if asked.until is not None:
        found.next_offset = max(asked.start, min(found.next_offset, asked.until))
    return found


def _small_until(asked: FetchedRange, filter_: _AbortedFilter, last_stable: int) -> int:
    """Return the offset below which all records of small batches are committed and wanted; 0: that isn't known."""
    if asked.spans or filter_.waits:
        return 0
    return min(last_stable if last_stable >= 0 else _OFFSET_END, _OFFSET_END if asked.until is None else asked.until)


def one_by_one(few: SmallBatches) -> Iterator[SelectedBatch]:
    """Return small batches each for itself."""
    for data in few.batches():
        header = read_header(data)
        yield SelectedBatch(FetchedBatch(header, data), ((header.base_offset, header.last_offset + 1),), True)


def corrupt(at: Partition, error: CorruptBatch, position: int) -> Incident:
    """Make the incident of a batch that isn't sound, at its offset or, where the position lies inside it, there."""
    return Incident(
        "source_corrupt", str(error), topic=at.topic, partition=at.partition, offset=max(error.offset, position)
    )


class _AbortedFilter:
    """Follows the batches of one response, in order."""

    def __init__(self, aborted: Iterable[AbortedRange]) -> None:
        self._coming = [(first, producer_id) for producer_id, first in aborted]
        heapq.heapify(self._coming)
        self._open = set[int]()

    @property
    def waits(self) -> bool:
        """Whether an aborted transaction comes, or its marker."""
        return bool(self._coming or self._open)

    def keeps(self, batch: FetchedBatch | OldMessage) -> bool:
        """Tell whether a batch has committed records."""
        if isinstance(batch, OldMessage):  # these had no transactions
            return True
        header = batch.header
        if not self._coming and not header.attributes & (TRANSACTIONAL | CONTROL):  # nearly all
            return header.record_count > 0
        while self._coming and self._coming[0][0] <= header.last_offset:
            self._open.add(heapq.heappop(self._coming)[1])
        if header.is_control:
            if header.producer_id in self._open and _is_abort(batch):
                self._open.discard(header.producer_id)
            return False
        return header.record_count > 0 and not (header.is_transactional and header.producer_id in self._open)


def _is_abort(batch: FetchedBatch) -> bool:
    if not batch.header.record_count:  # compaction has emptied it
        return False
    try:
        return marker_kind(batch.data) == ABORT
    except CorruptBatch as error:
        raise CorruptBatch(str(error), batch.first_offset) from error


def _add(found: Selection, asked: FetchedRange, batch: FetchedBatch | OldMessage, last: int) -> None:
    """Add what is wanted of a batch that ends at offset `last`.

    An old message doesn't say where its first record is, so it is read from the position on, and is never whole.
    """
    old = isinstance(batch, OldMessage)
    if not (isinstance(batch, OldMessage) or asked.spans) and asked.until is None:  # nearly all
        header = batch.header
        if header.base_offset >= asked.start and header.attributes & COMPRESSION_MASK <= ZSTD:
            found.batches.append(SelectedBatch(batch, ((header.base_offset, last + 1),), True))
            return
    span = found.next_offset if isinstance(batch, OldMessage) else batch.header.base_offset, last + 1
    begin, end = max(span[0], asked.start), span[1] if asked.until is None else min(span[1], asked.until)
    wanted = [(begin, end)] if begin < end else []
    if asked.spans:
        wanted = [(max(first, begin), min(last, end)) for first, last in asked.spans]
        wanted = [(first, last) for first, last in wanted if first < last]
    if not wanted:
        return
    if isinstance(batch, FetchedBatch) and batch.header.compression > ZSTD:
        raise CorruptBatch(f"unknown compression {batch.header.compression}", batch.first_offset)
    found.batches.append(SelectedBatch(batch, tuple(wanted), wanted == [span] and not old))
