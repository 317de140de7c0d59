"""Which offsets of a log hold no record: what log compaction took, told from what was never written. Pure.

Kafka gives offsets without gaps: in a log that was never compacted every batch begins right behind the one before it
and has as many records as offsets; commit and abort markers and aborted records count like others. Log compaction
(org.apache.kafka.storage.internals.log.LogCleaner) takes records out of batches and removes whole batches. So an
offset that no record has is one that compaction has emptied, as long as it isn't below the log start. Used by
`log_evidence`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, Protocol

from kafka_records.batch import CorruptBatch
from kafka_records.compression import DecodedTooLarge
from kafka_records.fetched import FetchedBatch, OldMessage, holes_in, read_batches
from replicator.model.errors import Incident
from replicator.model.partition import Partition, Span

FETCH_BYTES_FIRST, FETCH_BYTES_MAX = 64 * 1024, 4 * 1024 * 1024
"""Asked for where a log is read from a new place, and where it was read on for a while."""
DECODED_BYTES_MAX = 256 * 1024 * 1024
BELOW_START = "below the log start"
ABOVE_END = "at or above the log's end"
OLD_FORMAT = "in a message format before v2, which doesn't show what compaction took"
TOO_LARGE = f"in a batch of more than {DECODED_BYTES_MAX} bytes"
NO_BATCH = "in a part of the log of which the broker returned nothing"

Progress = Callable[[int], None]
"""Is told now and then up to which offset the log was looked at; may raise, to end the search."""


class Unknown(NamedTuple):
    """Offsets [first, end) of which the log doesn't tell whether it held records there; `why` follows "they are"."""

    first: int
    end: int
    why: str


class IntervalHoles(NamedTuple):
    """What is known of one interval. All other offsets of it hold a record or a marker."""

    holes: tuple[Span, ...] = ()
    unknown: tuple[Unknown, ...] = ()


class OffsetOutOfRange(Exception):
    """A fetch began below the log start or above the log's end."""


class Log(Protocol):
    """One partition's log, as its leader shows it."""

    def start(self) -> int:
        """Return the log start offset, now."""

    def end(self) -> int:
        """Return the high watermark, now."""

    def fetch(self, offset: int, bytes_max: int) -> bytes | None:
        """Fetch batches from the one on that holds `offset`, or the next one; at least one whole, else `bytes_max` at
        most.

        Empty: there is none from `offset` to the end that the log had when it was asked last. None: nothing was
        returned, and there may be some. Raises OffsetOutOfRange.
        """


def find_holes(
    at: Partition,
    log: Log,
    intervals: Sequence[Span],
    told: Progress | None = None,
    decoded_bytes_max: int | None = None,
) -> list[IntervalHoles]:
    """Find the holes in each of `intervals`.

    Args:
        at: the partition, for messages.
        intervals: offsets [first, end), sorted and disjoint.
        told: see `Progress`.
        decoded_bytes_max: how large the records of one batch may be, decompressed; `DECODED_BYTES_MAX` by default.

    Raises:
        ValueError: `intervals` are not sorted, or not disjoint.
        Incident: batch_corrupt, with topic, partition and offset.
        ReplicatorError: what the log raises.
    """
    after = 0
    for first, end in intervals:
        if not after <= first <= end:
            raise ValueError(f"intervals are not sorted and disjoint at {first} to {end}")
        after = end
    search = _Search(at, log, told or (lambda offset: None), decoded_bytes_max or DECODED_BYTES_MAX)
    found = [search.interval(first, end) for first, end in intervals]
    # Asked once more: while segments were being deleted, a fetch may have skipped some that held records.
    start = log.start() if any(item.holes for item in found) else 0
    return [_from_start(item, start) for item in found]


class _Search:
    """Goes through a log once, from its lower offsets to its higher ones."""

    def __init__(self, at: Partition, log: Log, told: Progress, decoded_bytes_max: int) -> None:
        self._at, self._log, self._told, self._decoded_bytes_max = at, log, told, decoded_bytes_max
        self._start, self._end = log.start(), log.end()
        self._fetched: deque[FetchedBatch | OldMessage] = deque()
        self._fetched_from = self._fetched_to = -1  # the offsets that `_fetched` says something about
        self._bytes_max = FETCH_BYTES_FIRST
        self._holes: list[Span] = []
        self._unknown: list[Unknown] = []

    def interval(self, first: int, end: int) -> IntervalHoles:
        self._holes, self._unknown = [], []
        offset = self._skip_deleted(first, end)
        while offset < min(end, self._end):
            try:
                offset = self._step(offset, min(end, self._end))
            except OffsetOutOfRange:
                self._start = self._log.start()
                if offset >= self._start:
                    self._end = offset  # it was cut since its end was asked for
                offset = self._skip_deleted(offset, end)
            except CorruptBatch as error:
                raise Incident(
                    "batch_corrupt",
                    f"a batch isn't sound: {error}",
                    topic=self._at.topic,
                    partition=self._at.partition,
                    offset=error.offset if error.offset >= 0 else offset,
                ) from error
        self._add_unknown(max(first, offset), end, ABOVE_END)
        return IntervalHoles(tuple(self._holes), tuple(self._unknown))

    def _skip_deleted(self, offset: int, end: int) -> int:
        deleted_to = min(self._start, end)
        self._add_unknown(offset, deleted_to, BELOW_START)
        return max(offset, deleted_to)

    def _step(self, offset: int, end: int) -> int:
        """Look at the batch that holds `offset`, or at the next one; return what is to be looked at next."""
        batch = self._batch(offset)
        if not isinstance(batch, FetchedBatch | OldMessage):
            if batch is None:
                self._add_unknown(offset, end, NO_BATCH)
            else:
                self._add_hole(offset, end)
            return end
        after = min(batch.last_offset + 1, end)
        if isinstance(batch, OldMessage):
            self._add_unknown(offset, after, OLD_FORMAT)
            return after
        self._add_hole(offset, min(batch.first_offset, end))
        try:
            for first, last in holes_in(batch, self._decoded_bytes_max):
                self._add_hole(max(first, offset), min(last, end))
        except DecodedTooLarge:
            self._add_unknown(max(batch.first_offset, offset), after, TOO_LARGE)
        return after

    def _batch(self, offset: int) -> FetchedBatch | OldMessage | Literal[b""] | None:
        """Return the first batch that ends at or above `offset`; what the log returned when that was nothing."""
        if not self._fetched_from <= offset < self._fetched_to:
            self._told(offset)
            read_on = offset == self._fetched_to
            self._bytes_max = min(2 * self._bytes_max, FETCH_BYTES_MAX) if read_on else FETCH_BYTES_FIRST
            self._fetched.clear()  # one response at a time is kept in memory
            self._fetched_to = -1
            data = self._log.fetch(offset, self._bytes_max)
            if not data:
                return None if data is None else b""
            self._fetched = deque(read_batches(data))
            if not self._fetched or self._fetched[-1].last_offset < offset:
                raise CorruptBatch(f"none of {len(data)} bytes reaches offset {offset}")
            self._fetched_from, self._fetched_to = offset, self._fetched[-1].last_offset + 1
        while self._fetched[0].last_offset < offset:
            self._fetched.popleft()
        return self._fetched[0]

    def _add_hole(self, first: int, end: int) -> None:
        if first >= end:
            return
        if self._holes and self._holes[-1][1] == first:
            first = self._holes.pop()[0]
        self._holes.append((first, end))

    def _add_unknown(self, first: int, end: int, why: str) -> None:
        if first >= end:
            return
        if self._unknown and self._unknown[-1][1:] == (first, why):
            first = self._unknown.pop().first
        self._unknown.append(Unknown(first, end, why))


def _from_start(found: IntervalHoles, start: int) -> IntervalHoles:
    """Leave out the holes below `start`: what stood there when it was read may have been records."""
    below = [(first, min(end, start)) for first, end in found.holes if first < start]
    if not below:
        return found
    holes = tuple((max(first, start), end) for first, end in found.holes if end > start)
    unknown = sorted([*found.unknown, *(Unknown(first, end, BELOW_START) for first, end in below)])
    return IntervalHoles(holes, tuple(unknown))
