"""What compaction keeps of a log: for each key the last committed record, and of transactions what readers need.

Pure but for reading segments. Source: Kafka `Cleaner`, `CleanedTransactionMetadata`, `MemoryRecords.filterTo`, KIP-354,
KIP-534.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b

from embedded_broker.storage.log.segment import Segment
from kafka_records.batch import BatchHeader, CorruptBatch
from kafka_records.control import marker_commits
from kafka_records.rebuild import delete_horizon_ms, rebuild
from kafka_records.records import Record, decode

DIGEST_BYTES = 16
log = logging.getLogger("embedded_broker")


@dataclass(frozen=True, slots=True)
class Aborted:
    """An aborted transaction: whose, its first record and its marker."""

    producer_id: int
    first_offset: int
    marker_offset: int


@dataclass(frozen=True, slots=True)
class Last:
    """What must stay of an active producer, so that a scan of the log finds its sequence or at least its epoch."""

    data_offset: int | None
    """Last offset of its last data batch in its epoch; None when its last batch is a marker."""
    epoch: int


class CleanedTransactions:
    """Whether batches, met in the order of the log, belong to aborted transactions, and markers to transactions of
    which something is left."""

    def __init__(self, aborted: Iterable[Aborted]) -> None:
        self._coming = sorted(aborted, key=lambda each: each.first_offset, reverse=True)
        # Producer id → whether a data batch was met.
        self._aborted: dict[int, bool] = {}
        self._committed: set[int] = set()

    def is_aborted(self, header: BatchHeader) -> bool:
        """Take note of a data batch."""
        self._begin(header)
        if not header.is_transactional:
            return False
        if header.producer_id in self._aborted:
            self._aborted[header.producer_id] = True
            return True
        self._committed.add(header.producer_id)
        return False

    def is_empty(self, header: BatchHeader, commit: bool) -> bool:
        """Take note of a marker: whether nothing of its transaction was met."""
        self._begin(header)
        if not commit:
            return not self._aborted.pop(header.producer_id, False)
        if header.producer_id not in self._committed:
            return True
        self._committed.discard(header.producer_id)
        return False

    def _begin(self, header: BatchHeader) -> None:
        while self._coming and self._coming[-1].first_offset <= header.last_offset:
            each = self._coming.pop()
            if each.marker_offset >= header.base_offset:
                self._aborted.setdefault(each.producer_id, False)


def digest(key: bytes) -> bytes:
    """Return the digest that represents a key in memory."""
    return blake2b(key, digest_size=DIGEST_BYTES).digest()


def _go_on() -> None:
    pass


def latest_offsets(
    segments: Iterable[Segment], aborted: Iterable[Aborted], keys_max: int, check: Callable[[], None] = _go_on
) -> tuple[dict[bytes, int], int]:
    """Return (digest of each key → offset of its last committed record, how many segments were read).

    Stops before the segment that comes when there are `keys_max` keys; reads one at least. `check` is called before
    each batch. Raises CorruptLog, CorruptBatch, OSError, and what `check` does.
    """
    latest: dict[bytes, int] = {}
    transactions, count = CleanedTransactions(aborted), 0
    for segment in segments:
        if len(latest) >= keys_max:
            break
        count += 1
        for header, view in segment.batches():
            check()
            if header.is_control:
                transactions.is_empty(header, marker_commits(view))
            elif not transactions.is_aborted(header):
                for record in _decoded(segment, header, view) or ():
                    if record.key is not None:
                        latest[digest(record.key)] = record.offset
    return latest, count


def _decoded(segment: Segment, header: BatchHeader, view: memoryview) -> list[Record] | None:
    """Decode a batch; None if the records can't be read although the CRC is right: they came like that, and stay like
    that.
    """
    try:
        return decode(view)
    except CorruptBatch as error:
        log.warning("%s, batch at offset %d stays whole: %s", segment.path, header.base_offset, error)
        return None


@dataclass(slots=True)
class Cleaner:
    """One pass over a log's segments from the first on."""

    latest: Mapping[bytes, int]
    transactions: CleanedTransactions
    producers: Mapping[int, Last]
    now_ms: int
    delete_retention_ms: int
    check: Callable[[], None] = _go_on
    """Called before each batch."""
    markers_gone: set[int] = field(default_factory=set)
    """Offsets of the abort markers that were left out."""

    def kept(self, segment: Segment) -> Iterator[bytes | memoryview]:
        """Yield what stays of a segment, batch by batch. Raises CorruptLog, CorruptBatch, OSError, and what `check`
        does.
        """
        for header, view in segment.batches():
            self.check()
            batch = self._marker(header, view) if header.is_control else self._data(segment, header, view)
            if batch is not None:
                yield batch

    def _marker(self, header: BatchHeader, view: memoryview) -> bytes | memoryview | None:
        commit = marker_commits(view)
        if not self.transactions.is_empty(header, commit):
            return view
        horizon_ms = delete_horizon_ms(header)
        if horizon_ms is None:
            return rebuild(header, decode(view), self.now_ms + self.delete_retention_ms)
        last = self.producers.get(header.producer_id)
        is_needed = last is not None and last.data_offset is None and last.epoch == header.producer_epoch
        if self.now_ms < horizon_ms or is_needed:
            return view
        if not commit:
            self.markers_gone.add(header.base_offset)
        return None

    def _data(self, segment: Segment, header: BatchHeader, view: memoryview) -> bytes | memoryview | None:
        aborted = self.transactions.is_aborted(header)
        horizon_ms = delete_horizon_ms(header)
        gone = horizon_ms is not None and self.now_ms >= horizon_ms
        records = [] if aborted else _decoded(segment, header, view)
        if records is None:
            return view
        kept = [] if aborted else [record for record in records if self._stays(record, gone)]
        if not kept:
            last = self.producers.get(header.producer_id)
            is_needed = last is not None and last.data_offset == header.last_offset
            return None if not is_needed else (rebuild(header, []) if header.record_count else view)
        if horizon_ms is None and any(record.value is None for record in kept):
            return rebuild(header, kept, self.now_ms + self.delete_retention_ms)
        return view if len(kept) == len(records) else rebuild(header, kept)

    def _stays(self, record: Record, tombstones_gone: bool) -> bool:
        if record.key is None or (record.value is None and tombstones_gone):
            return False
        return record.offset >= self.latest.get(digest(record.key), -1)
