"""From what was fetched to what is written, for the partitions of one lane: in order, as much as is wanted. No I/O.

Used by `plane`. Invariant: the end of a partition is told only once all that stands before it was handed over, and what
stops a partition only once all before that was: a position may go as far and no further. Nothing behind that follows.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kafka_records.batch import CorruptBatch
from kafka_records.compression import DecodedTooLarge
from kafka_records.fetched import OldMessage
from kafka_records.small_batches import SmallBatches
from replicator.model.errors import Incident, ReplicatorError
from replicator.model.partition import Partition, Seek
from replicator.model.timestamps import TimestampBounds
from replicator.planes.batches.committed import Selected, SelectedBatch, corrupt, one_by_one
from replicator.planes.batches.decoding import (
    RecordTooLarge,
    WritableBatch,
    dividable,
    encoded,
    epoch_of,
    wanted_records,
)
from replicator.planes.batches.fetcher_terms import FetchedNews
from replicator.planes.batches.merge import BatchMerger, Merged, MergeLimits
from replicator.planes.contract import ReadPlan

_BLOCKING = frozenset({"source_corrupt"})
"""Incidents of what was read: all before that goes on its way first."""


@dataclass(slots=True)
class _Part:
    """`waiting`: what was fetched, and what stops the partition behind that."""

    merger: BatchMerger
    flush_every: int
    waiting: deque[Selected | Incident] = field(default_factory=deque)
    end: Seek | None = None
    blocked: Incident | None = None

    def drop(self) -> int:
        """Forget what stands behind that which stops the partition; return how many bytes it had."""
        size = sum(each.size_bytes for each in self.waiting if not isinstance(each, Incident))
        self.waiting.clear()
        return size


@dataclass(slots=True)
class Taken:
    """What was handed over in one call: records at most, fetched bytes, and of which partitions."""

    records: int = 0
    bytes: int = 0
    partitions: set[Partition] = field(default_factory=set)


Write = Callable[[Partition, WritableBatch], None]


class Intake:
    """Of one lane, from one seek to the next."""

    def __init__(
        self,
        limits: MergeLimits,
        timestamps: Mapping[Partition, TimestampBounds],
        targets: Mapping[Partition, Partition],
    ) -> None:
        """`timestamps`: which the target takes; `targets`: where records of each source partition go."""
        self._limits, self._targets = limits, targets
        self._timestamps = {at: bounds for at, bounds in timestamps.items() if bounds.bounded}
        self._size_max = limits.batch_bytes_max, max(limits.batch_bytes_max, limits.record_bytes_max)
        self._parts: dict[Partition, _Part] = {}
        self._last: Partition | None = None  # from which a batch was taken
        self.ends: dict[Partition, Seek] = {}
        """Partition ends that were reached since the last seek."""

    def seek(self, plans: Mapping[Partition, ReadPlan]) -> None:
        """Forget all, and expect these partitions."""
        self._parts = {at: _Part(BatchMerger(at, self._limits), plan.flush_every) for at, plan in plans.items()}
        self.ends = {}

    def add(self, news: FetchedNews) -> dict[Partition, ReplicatorError]:
        """Take what was fetched; return the partitions that can't be read, for causes that aren't in the log."""
        for at, batches in news.selected.items():
            self._parts[at].waiting.extend(batches)
        for at, end in news.ends.items():
            self._parts[at].end = end
        failed: dict[Partition, ReplicatorError] = {}
        for at, error in news.failed.items():
            if isinstance(error, Incident) and error.name in _BLOCKING:
                self._parts[at].waiting.append(error)
            else:
                failed[at] = error
        return failed

    @property
    def waiting(self) -> bool:
        """Whether anything was fetched that isn't handed over."""
        return any(part.waiting for part in self._parts.values())

    @property
    def merging(self) -> bool:
        """Whether small batches wait for others."""
        return any(part.merger.waiting_bytes for part in self._parts.values())

    def blocked(self) -> dict[Partition, Incident]:
        """Return what stops partitions, behind all that was handed over."""
        return {at: part.blocked for at, part in self._parts.items() if part.blocked is not None}

    def take(
        self,
        records_max: int,
        write: Write,
        flush: Callable[[], None],
        full: Callable[[], bool],
        whole_max: int | None = None,
    ) -> Taken:
        """Hand over batches until so many records are reached, a batch of each partition in turn, or it is `full`. The
        next call goes on with the partition behind the last one: none has to wait for all that others have.

        A batch isn't divided, so there may be more; one is taken at least. But of one that has more than `whole_max` no
        more are taken than are left of `records_max`, which costs decoding it, if that fits into memory. `flush` waits
        for acknowledgements.
        """
        taken = Taken()
        for part in self._parts.values():
            if part.blocked is not None:
                taken.bytes += part.drop()
        turn = self._in_turn()
        while turn and taken.records < records_max and not full():
            at, part = turn.popleft()
            first, self._last = part.waiting.popleft(), at
            taken.partitions.add(at)
            if isinstance(first, Incident):
                self._block(at, part, first, write)
            else:
                first = self._as_many(part, first, records_max - taken.records)
                rest: SelectedBatch | None = None
                if whole_max is not None and isinstance(first, SelectedBatch) and self._divides(first, whole_max):
                    first, rest = _divided(first, records_max - taken.records)
                if rest is not None:
                    part.waiting.appendleft(rest)
                taken.records += _records(first)
                taken.bytes += 0 if rest is not None else first.size_bytes
                self._hand_over(at, part, first, write, flush)
            if part.blocked is not None:
                taken.bytes += part.drop()
            elif part.waiting:
                turn.append((at, part))
        for at, part in self._parts.items():
            if part.end is not None and not part.waiting:
                self._tell_end(at, part, write)
        return taken

    def _divides(self, first: SelectedBatch, whole_max: int) -> bool:
        """Tell whether no more of a batch than `whole_max` records are taken. One that can't be decoded is taken whole,
        as it is passed on: better one large transaction than none. Of a part all must be decoded in any case."""
        if _records(first) <= whole_max:
            return False
        return not first.whole or dividable(first, self._limits.decoded_bytes_max)

    @staticmethod
    def _as_many(part: _Part, first: Selected, records: int) -> Selected:
        """Return what is taken of small batches: the others wait."""
        if not isinstance(first, SmallBatches) or first.records <= records:
            return first
        first, rest = first.cut(records)
        if rest is not None:
            part.waiting.appendleft(rest)
        return first if len(first.rows) > 1 else next(one_by_one(first))

    def _in_turn(self) -> deque[tuple[Partition, _Part]]:
        """Return those that have anything, beginning behind the one that was taken from last."""
        before, behind, passed = list[tuple[Partition, _Part]](), list[tuple[Partition, _Part]](), False
        for at, part in self._parts.items():
            if part.waiting:
                (behind if passed else before).append((at, part))
            passed = passed or at == self._last
        return deque([*behind, *before])

    def _hand_over(
        self, at: Partition, part: _Part, selected: Selected, write: Write, flush: Callable[[], None]
    ) -> None:
        if not part.flush_every and self._surely_within_bounds(at, selected):  # nearly all
            self._write(at, part, part.merger.take(selected), write)
            return
        for each in one_by_one(selected) if isinstance(selected, SmallBatches) else (selected,):
            if part.blocked is None:
                self._hand_over_watched(at, part, each, write, flush)

    def _hand_over_watched(
        self, at: Partition, part: _Part, selected: SelectedBatch, write: Write, flush: Callable[[], None]
    ) -> None:
        within, refused = self._within_bounds(at, selected)
        if within is not None and part.flush_every:
            self._in_portions(at, part, within, write, flush)
        elif within is not None:
            self._write(at, part, part.merger.take(within), write)
        if refused is not None and part.blocked is None:
            self._block(at, part, refused, write)

    def _write(self, at: Partition, part: _Part, merged: Merged, write: Write) -> None:
        for batch in merged.batches:
            write(at, batch)
        if merged.refused is not None:
            part.blocked = part.blocked or merged.refused

    def _block(self, at: Partition, part: _Part, incident: Incident, write: Write) -> None:
        self._write(at, part, part.merger.drain(), write)
        part.blocked = part.blocked or incident

    def _tell_end(self, at: Partition, part: _Part, write: Write) -> None:
        """Tell the end of a partition, of which nothing waits any more."""
        end, part.end = part.end, None
        self._write(at, part, part.merger.drain(), write)
        if part.blocked is None and end is not None:
            self.ends[at] = end

    def drain(self, write: Write) -> None:
        """Hand over the small batches that wait for others."""
        for at, part in self._parts.items():
            if part.merger.waiting_bytes:
                self._write(at, part, part.merger.drain(), write)

    def _in_portions(
        self, at: Partition, part: _Part, selected: SelectedBatch, write: Write, flush: Callable[[], None]
    ) -> None:
        """Write a few records at a time, each acknowledged before the next: see `ReadPlan.flush_every`."""
        try:
            codec, records = wanted_records(selected, self._limits.decoded_bytes_max)
        except CorruptBatch:
            self._write(at, part, part.merger.take(selected), write)  # tells what is wrong with it
            self._write(at, part, part.merger.drain(), write)
            return
        codec = codec if self._limits.codec is None else self._limits.codec
        for first in range(0, len(records), part.flush_every):
            portion = records[first : first + part.flush_every]
            try:
                batches = encoded(at, portion, codec, self._size_max, epoch_of(selected))
            except RecordTooLarge as error:
                self._write(at, part, Merged(error.before, error.incident), write)
                return
            self._write(at, part, Merged(batches), write)
            flush()

    def _surely_within_bounds(self, at: Partition, selected: Selected) -> bool:
        """Tell whether headers say that the target takes all timestamps."""
        bounds = self._timestamps.get(at)
        if bounds is None:
            return True
        earliest_ms, latest_ms = bounds.around(time.time_ns() // 1_000_000)
        if isinstance(selected, SmallBatches):
            return earliest_ms <= 0 and selected.max_timestamp <= latest_ms
        batch = selected.batch
        return earliest_ms <= 0 and not isinstance(batch, OldMessage) and batch.header.max_timestamp <= latest_ms

    def _within_bounds(self, at: Partition, selected: SelectedBatch) -> tuple[SelectedBatch | None, Incident | None]:
        """Return what of a batch stands before the first record whose timestamp the target refuses, and why it does.

        Records are looked at one by one only where the header doesn't say enough.
        """
        if self._surely_within_bounds(at, selected):
            return selected, None
        bounds, now_ms, batch = self._timestamps[at], time.time_ns() // 1_000_000, selected.batch
        try:
            records = wanted_records(selected, self._limits.decoded_bytes_max).records
        except DecodedTooLarge:
            return selected, None  # the merger tells it
        except CorruptBatch as error:
            return None, corrupt(at, error, selected.wanted[0][0])
        for record in records:
            if record.timestamp_ms >= 0 and (
                why := bounds.refusal(record.timestamp_ms, now_ms, self._targets[at].topic)
            ):
                wanted = tuple(
                    (first, min(end, record.offset)) for first, end in selected.wanted if first < record.offset
                )
                before = SelectedBatch(batch, wanted, whole=False) if wanted else None
                where = {"topic": at.topic, "partition": at.partition, "offset": record.offset}
                return before, Incident("target_timestamp_bounds", why, **where)  # type: ignore[arg-type]
        return selected, None


def _records(selected: Selected) -> int:
    """Count the records that are wanted, at most."""
    if isinstance(selected, SmallBatches):
        return selected.records
    batch = selected.batch
    if selected.whole and not isinstance(batch, OldMessage):
        return batch.header.record_count
    spanned = sum(end - first for first, end in selected.wanted)
    return spanned if isinstance(batch, OldMessage) else min(spanned, batch.header.record_count)


def _divided(selected: SelectedBatch, records: int) -> tuple[SelectedBatch, SelectedBatch | None]:
    """Divide a batch behind so many of its offsets; None: it has no more."""
    if _records(selected) <= records:
        return selected, None
    first: list[tuple[int, int]] = []
    rest: list[tuple[int, int]] = []
    for begin, end in selected.wanted:
        middle = min(end, begin + records)
        records -= middle - begin
        first += [(begin, middle)] if begin < middle else []
        rest += [(middle, end)] if middle < end else []
    return SelectedBatch(selected.batch, tuple(first), whole=False), SelectedBatch(selected.batch, tuple(rest), False)
