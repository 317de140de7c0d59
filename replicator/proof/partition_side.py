"""One side of one partition, read in this process: committed records, in bounded memory. For `local`, `verify`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType

from kafka_records.batch import CorruptBatch
from kafka_records.fetched import FetchedBatch
from kafka_records.records import Record, body_of, decode, offset_deltas
from replicator.config import Cluster, Flow
from replicator.model.partition import Partition, Span
from replicator.offset_map.verdicts import ComparedRecord
from replicator.proof.pairs import Pair
from replicator.proof.record_digests import compared_records
from replicator.wire.committed_log import CommittedLog, Passed, corrupt
from replicator.wire.holes import Unknown, find_holes
from replicator.wire.partition_log import PartitionLog

WINDOW = 4_096
"""Offsets whose emptiness is looked at at once."""
NEAR = 20_000
"""Wanted records that are no further from one another are read in one go."""


class PartitionSide(AbstractContextManager["PartitionSide"]):
    """Used by one thread, and closed. Raises what `CommittedLog` does."""

    def __init__(self, flow: Flow, cluster: Cluster, at: Partition, topic_id: str) -> None:
        self.at = at
        self._log = PartitionLog(flow, cluster, at, topic_id)
        self._committed = CommittedLog(at, self._log, patience_s=flow.limits.request_timeout_ms / 1000)
        self._empty: dict[int, tuple[tuple[Span, ...], tuple[Unknown, ...]]] = {}

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._log.close()

    def start(self) -> int:
        """Return the log start offset, now."""
        return self._log.start()

    def end(self) -> int:
        """Return the high watermark, now."""
        return self._log.end()

    def occupied(self, span: Span, passed: Passed | None = None) -> Iterator[Span]:
        """Yield the offsets of a range at which committed records stand, as ranges. `passed`: as of `rows`."""
        first, end = span
        for batch in self._committed.batches(first, end, passed):
            try:
                for begin, until in committed_spans(batch):
                    if max(begin, first) < min(until, end):
                        yield max(begin, first), min(until, end)
            except CorruptBatch as error:
                raise corrupt(self.at, batch.first_offset, error) from error

    def batches(self, span: Span) -> Iterator[FetchedBatch]:
        """Yield the committed batches that have offsets of a range. Those at both ends may reach beyond it."""
        return self._committed.batches(*span)

    def rows(self, span: Span, passed: Passed | None = None) -> Iterator[ComparedRecord]:
        """Yield the committed records of a range of offsets, ascending. `passed`: see `CommittedLog.batches`."""
        first, end = span
        for batch in self._committed.batches(first, end, passed):
            whole = batch.first_offset >= first and batch.last_offset < end
            try:
                found = compared_records(batch.header, body_of(batch.header, batch.data))
                if whole:
                    yield from found
                else:
                    yield from (row for row in found if first <= row.offset < end)
            except CorruptBatch as error:
                raise corrupt(self.at, batch.first_offset, error) from error

    def records(self, offsets: Sequence[int]) -> Iterator[Record]:
        """Yield the records at these ascending offsets, those that are there."""
        wanted = set(offsets)
        for first, end in near(offsets, NEAR):
            for batch in self._committed.batches(first, end):
                if not any(offset in wanted for offset in range(batch.first_offset, batch.last_offset + 1)):
                    continue
                try:
                    decoded = decode(batch.data)
                except CorruptBatch as error:
                    raise corrupt(self.at, batch.first_offset, error) from error
                yield from (record for record in decoded if record.offset in wanted)

    def emptied(self, offset: int) -> bool:
        """Return whether nothing stands there in the raw log: no record, no marker, no aborted record."""
        return any(first <= offset < end for first, end in self._window(offset)[0])

    def untold(self, offset: int) -> str:
        """Say why the log doesn't tell whether something stands there; empty if it does."""
        return next((one.why for one in self._window(offset)[1] if one.first <= offset < one.end), "")

    def _window(self, offset: int) -> tuple[tuple[Span, ...], tuple[Unknown, ...]]:
        at = offset // WINDOW
        if at not in self._empty:
            found = find_holes(self.at, self._log, [(at * WINDOW, (at + 1) * WINDOW)])[0]
            self._empty[at] = found.holes, found.unknown
        return self._empty[at]


@contextmanager
def both_sides(flow: Flow, pair: Pair) -> Iterator[tuple[PartitionSide, PartitionSide]]:
    """Open the source and the target of a pair."""
    with (
        PartitionSide(flow, flow.source, pair.source, pair.source_id) as source,
        PartitionSide(flow, flow.target, pair.target, pair.target_id) as target,
    ):
        yield source, target


def committed_spans(batch: FetchedBatch) -> Iterator[Span]:
    """Yield the offsets of a batch that hold records, as ranges. Raises CorruptBatch."""
    header = batch.header
    if header.record_count == header.last_offset_delta + 1:
        yield batch.first_offset, batch.last_offset + 1
        return
    first = end = -1
    for delta in offset_deltas(body_of(header, batch.data), header.record_count):
        offset = batch.first_offset + delta
        if offset != end and first >= 0:
            yield first, end
            first = -1
        first, end = (offset if first < 0 else first), offset + 1
    if first >= 0:
        yield first, end


def near(offsets: Sequence[int], apart: int) -> Iterator[Span]:
    """Yield ranges that hold ascending offsets, of which those that follow one another at `apart` or less share one."""
    first = end = -1
    for offset in offsets:
        if first >= 0 and offset - end > apart:
            yield first, end
            first = -1
        if first < 0:
            first = offset
        end = offset + 1
    if first >= 0:
        yield first, end
