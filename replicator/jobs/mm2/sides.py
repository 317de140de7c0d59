"""Reads both sides of a partition that MirrorMaker 2 has copied, and says where our copy would go on.

Invariants
- What is compared is committed and doesn't grow: the target has no open transaction, and ends where it ended before.
- Kafka Connect's offset is believed by itself only where somebody says so, and the records can't contradict it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass

from replicator.config import Flow
from replicator.jobs.mm2.seam import NoSeam, RecordDigest, Seam, find_seam
from replicator.jobs.position_change import ComparedSides
from replicator.kafka.topic_questions import raised
from replicator.lane.ports import ClusterQuestions
from replicator.model.partition import LogEnds, Partition, Span
from replicator.planes.contract import WholeRecord
from replicator.planes.records.record_reader import LogReader
from replicator.state.decisions import NotDecided, Objection

SOURCE_RECORDS_MAX = 2_000_000
"""Of a source partition that are looked through for the records of the target."""
AT_ONCE = 50_000
BEHIND_OFFSETS = 100_000
"""Read behind the last source record that was recognized: an equal one there would leave the end open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptedPartition:
    """Our copy of a partition would go on at source offset `end`. `last`: the last record that Kafka Connect's offsets
    say was copied. `seam`: what the records say; None where only `last` does. `source_record`, `target_record`: the
    last one that was copied, and the last one of the target, with its offset; `next_offset`: the first source record
    that we copy (-1: there is none yet)."""

    sides: ComparedSides
    end: int
    last: int | None
    seam: Seam | None
    source_record: WholeRecord | None = None
    target_record: tuple[int, WholeRecord | None] | None = None
    next_offset: int = -1

    @property
    def behind_connect(self) -> int:
        """Source offsets from the one that Connect has to the end of the copy: copied, and not noted any more."""
        return 0 if self.last is None else max(0, self.end - self.last - 1)


class SidesReader:
    """Reads records of both clusters of a flow. Used by one thread."""

    def __init__(self, flow: Flow, questions: ClusterQuestions, compare: int, *, trust: bool) -> None:
        """`questions`: to the source. `compare`: records of each target partition, from its end on, that are looked at;
        `trust`: take Connect's offset where records can't tell."""
        never = threading.Event()
        self._questions, self._compare, self._trust = questions, compare, trust
        self._source, self._target = LogReader(flow, flow.source, never), LogReader(flow, flow.target, never)

    def close(self) -> None:
        """Let go of the connections."""
        self._source.close()
        self._target.close()

    def adopted(self, sides: ComparedSides, last: int | None) -> AdoptedPartition | None:
        """Say where one partition goes on; None where nothing was ever copied.

        Raises NotDecided where that can't be told; NotAllowed, TopicMissing, Retriable.
        """
        at, source, target = sides.source, sides.source_log, sides.target_log
        if target.end == 0 and last is None:
            return None
        if target.end == 0:
            raise _refused(at, f"Connect's offsets say that offset {last} was copied, and {sides.target} has no record")
        if target.stable < target.end:
            raise NotDecided(
                Objection.STOPPED,
                f"{at}: a transaction is open in {sides.target}: stop MirrorMaker 2, and wait until it has timed out",
            )
        copies = self._tail(sides.target, target)
        found = self._compared(sides, copies, last) if copies else None
        if found is None:
            found = self._trusted(sides, last)
        if last is not None and found.end <= last:
            raise _refused(
                at,
                f"Connect's offsets say that offset {last} was copied, and the records of {sides.target} end with that "
                f"at offset {found.end - 1}: it has lost some, or the offsets are of another topic",
            )
        if not source.start <= found.end <= source.stable:
            raise NotDecided(
                Objection.OUT_OF_RANGE,
                f"{at}: copying can't go on at {found.end}: it has offsets from {source.start} to {source.stable}",
            )
        return found

    def _compared(self, sides: ComparedSides, copies: list[RecordDigest], last: int | None) -> AdoptedPartition | None:
        at, log = sides.source, sides.source_log
        source = self._window(sides, copies, last)
        try:
            seam = find_seam(source, copies)
        except NoSeam as error:
            gone = last is not None and log.start > last
            if self._trust and last is not None and (error.equal_records or gone):
                return None
            raise _refused(at, f"{sides.target}: {error}") from error
        return AdoptedPartition(
            sides=sides,
            end=seam.end,
            last=last,
            seam=seam,
            source_record=self._source.record(at, seam.end - 1),
            target_record=(copies[-1].offset, self._target.record(sides.target, copies[-1].offset)),
            next_offset=next((record.offset for record in source if record.offset >= seam.end), -1),
        )

    def _trusted(self, sides: ComparedSides, last: int | None) -> AdoptedPartition:
        if last is None:
            raise _refused(sides.source, f"{sides.target} has no committed record any more that could be compared")
        if not self._trust:
            raise _refused(
                sides.source,
                f"{sides.target} has no record that could be compared; --trust-offsets takes Connect's offset, {last}",
            )
        return AdoptedPartition(sides=sides, end=last + 1, last=last, seam=None)

    def _tail(self, at: Partition, log: LogEnds) -> list[RecordDigest]:
        """The last committed records."""
        offsets = 2 * self._compare
        while True:
            first = max(log.start, log.stable - offsets)
            found = list(self._read(self._target, at, (first, log.stable)))
            if len(found) >= self._compare or first == log.start:
                return found[-self._compare :]
            offsets *= 8

    def _window(self, sides: ComparedSides, copies: list[RecordDigest], last: int | None) -> list[RecordDigest]:
        """The source's records from about the first of `copies` on, to well behind the last one that is among them."""
        at, log = sides.source, sides.source_log
        first = self._from_time(sides, copies[0].offset)
        if last is not None:
            first = min(first, last)
        reached = max(log.start, first - 2 * self._compare)
        wanted, found = {copy.digest for copy in copies}, list[RecordDigest]()
        recognized: int | None = None
        while reached < log.stable and (recognized is None or reached < recognized + BEHIND_OFFSETS):
            if len(found) > SOURCE_RECORDS_MAX:
                raise _refused(at, f"more than {SOURCE_RECORDS_MAX:,} records would have to be looked through")
            end = min(log.stable, reached + AT_ONCE)
            some = list(self._read(self._source, at, (reached, end)))
            found += some
            recognized = max((record.offset for record in some if record.digest in wanted), default=recognized)
            reached = end
        return found

    def _from_time(self, sides: ComparedSides, copy: int) -> int:
        """The first source offset at or after the time of a copy; the source's end where there is none."""
        record = self._target.record(sides.target, copy)
        if record is None or record.timestamp_ms < 0:
            return sides.source_log.start
        found = raised(self._questions.offsets_at([sides.source], record.timestamp_ms)[sides.source])
        return sides.source_log.stable if found < 0 else found

    def _read(self, reader: LogReader, at: Partition, span: Span) -> Iterator[RecordDigest]:
        for some in reader.identities(at, [span]):
            for record in some:
                yield RecordDigest(record.offset, record.digest)


def _refused(at: Partition, why: str) -> NotDecided:
    return NotDecided(Objection.NOT_PROVEN, f"{at}: {why}")
