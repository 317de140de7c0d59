"""Asks both sides about missing records of one partition before they are copied again. Reads only.

Used by `repair_policy` and `repair_listed` after the fence, where the answer counts, and by `repair_plan`, which has no
fence: until a repair begins, both sides may change.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from replicator.jobs.range_policy import check_source_end
from replicator.jobs.repair_decision import Asked, Decision
from replicator.jobs.repair_spans import Damage, Missing, Tally, runs_of
from replicator.lane.ports import ClusterQuestions
from replicator.model.errors import Incident, ReplicatorError
from replicator.model.partition import LogEnds, Partition, Span
from replicator.planes.contract import RecordIdentity, RecordReader

OnRead = Callable[[str, int, int], object]
"""Told how many offsets of a side were read, of how many."""


@dataclass(frozen=True, slots=True)
class Sides:
    """A partition on both clusters, with who answers for its log and who reads its records there."""

    source: ClusterQuestions
    target: ClusterQuestions
    source_records: RecordReader
    target_records: RecordReader
    source_at: Partition
    target_at: Partition

    def decide(
        self,
        window: Sequence[Missing],
        damage: Damage,
        position: int,
        target_end: int | None,
        *,
        seen: Tally,
        on_read: OnRead,
    ) -> Decision:
        """Decide what to copy of a window.

        Args:
            damage: what the window is of. The source's records before its origin have no copy on the target, so they
                account for none that equals them.
            position: the source offset up to which the flow has copied.
            target_end: where the target is read to; None: to the end of its log, as it is once the window was read.
            seen: told which records of the window the source has.

        Raises ReadStopped, what reading raises, and Incident: `source_records_gone`, `source_truncated`,
        `repair_record_gone`.
        """
        at, there = self.source_at, self.target_at
        check_source_start(self.source, at, window[0].first)
        check_source_end(self.source, at, window[-1].end)
        asked = Asked(compacted=damage.compacted or self.target.compacted(there.topic))
        self._read_missing(window, asked, seen, on_read)
        log = answered(self.target.log_ends([there])[there])
        end = log.end if target_end is None else target_end
        _read("target", self.target_records, there, (log.start, end), asked.target, on_read)
        if asked.needs_source:
            start = answered(self.source.log_ends([at])[at]).start
            _read(
                "source", self.source_records, at, (max(start, damage.source_origin), position), asked.source, on_read
            )
        return asked.decide()

    def _read_missing(self, window: Sequence[Missing], asked: Asked, seen: Tally, on_read: OnRead) -> None:
        """Read a window's records at the source: all spans in one go, since there may be thousands, and each new
        assignment of a consumer takes tenths of a second."""
        at, first, end = self.source_at, window[0].first, window[-1].end
        read: deque[RecordIdentity] = deque()
        left = deque(window)

        def note(upto: int) -> None:
            """Note that what ends at or before this offset has been read."""
            while left and left[0].end <= upto:
                span, records = left.popleft(), []
                while read and read[0].offset < span.end:
                    records.append(read.popleft())
                seen.add(runs_of(record.offset for record in records))
                check_gone(seen, span.end, at)
                asked.wanted(span, records)

        for some in self.source_records.identities(at, [span[:2] for span in window]):
            read.extend(some)
            if some:
                note(some[-1].offset)  # of the last one's own span more may come
            on_read("source", (some[-1].offset + 1 - first) if some else 0, end - first)
        note(end)


def _read(
    side: str,
    reader: RecordReader,
    at: Partition,
    span: Span,
    take: Callable[[Sequence[RecordIdentity]], None],
    on_read: OnRead,
) -> None:
    first, end = span
    if first >= end:
        return
    for some in reader.identities(at, [span]):
        take(some)
        on_read(side, (some[-1].offset + 1 - first) if some else 0, end - first)


def check_source_start(source: ClusterQuestions, at: Partition, first: int) -> None:
    """Check that the source still has what is read next: the position, which a lane asks about, stands after it.

    Raises Incident `source_records_gone`.
    """
    start = answered(source.log_ends([at])[at]).start
    if first < start:
        why = f"source offsets {first} to {start - 1} were deleted before they were copied again"
        raise Incident("source_records_gone", why, topic=at.topic, partition=at.partition)


def check_stable(target: ClusterQuestions, there: Partition, at: Partition) -> None:
    """Check that no transaction is open on the target partition `there`: what one hides that stays open may be what is
    missing, and no reader would see what is written behind it.

    Raises Incident `target_transaction_open` of the source partition `at`.
    """
    log = answered(target.log_ends([there])[there])
    if log.end <= log.start:
        return
    last = target.end_records({there: max(log.end - 1, log.start)}, {there: log.end})[there]
    if isinstance(last, ReplicatorError):
        raise last
    if last.stable < log.end:
        why = f"{there} is stable up to {last.stable} of {log.end}"
        raise Incident("target_transaction_open", why, topic=at.topic, partition=at.partition)


def check_gone(tally: Tally, upto: int, at: Partition) -> None:
    """Check that the spans that end at or before `upto` had all of their records.

    Raises Incident `repair_record_gone`.
    """
    lacking = tally.lacking(upto)
    if lacking is not None:
        first, end, records = lacking
        why = f"{records} of the records at source offsets {first} to {end - 1} aren't there any more"
        raise Incident("repair_record_gone", why, topic=at.topic, partition=at.partition)


def answered(ends: LogEnds | ReplicatorError) -> LogEnds:
    """Return where a log begins and ends. Raises the error that was answered instead."""
    if isinstance(ends, ReplicatorError):
        raise ends
    return ends
