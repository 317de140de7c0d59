"""Reads both sides of a partition that MirrorMaker 2 has copied, and says where our copy would go on.

Invariants
- What is compared is committed and doesn't grow: the target has no open transaction, and ends where it ended before.
- The records that are compared are the last ones, and as many before them as it takes: what we would copy next doesn't
  stand on the target, however far back a replicator began again.
- Kafka Connect's offset is believed by itself only where somebody says so, and the records can't contradict it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
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

RECORDS_MAX = 2_000_000
"""Of a partition that are looked through to compare both sides."""
AT_ONCE = 50_000
BEHIND_OFFSETS = 100_000
"""Read behind the last source record that was recognized: an equal one there would leave the end open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptedPartition:
    """Our copy of a partition would go on at source offset `end`. `last`: the last record that Kafka Connect's offsets
    say was copied. `seam`: what the records say; None where only `last` does, or, without it, where all that was ever
    written to the target was aborted. `source_record`, `target_record`: the last one that was copied, and the last one
    of the target, with its offset; `next_offset`: the first source record that we copy (-1: there is none yet)."""

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

    def __init__(
        self, flow: Flow, source: ClusterQuestions, target: ClusterQuestions, compare: int, *, trust: bool
    ) -> None:
        """`compare`: records of each target partition, from its end on, that are looked at; `trust`: take Connect's
        offset where records can't tell."""
        never = threading.Event()
        self._compare, self._trust = compare, trust
        self._ask_source, self._ask_target = source, target
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
        if not copies and last is None and target.start == 0 and not self._ask_target.compacted(sides.target.topic):
            return AdoptedPartition(sides=sides, end=source.start, last=None, seam=None)
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
        try:
            while True:
                seam, source = self._seam(sides, copies, last)
                following = [record for record in source if record.offset >= seam.end]
                earlier = self._copy_before(sides, copies[0].offset, following)
                if earlier is None:
                    break
                copies = self._tail_from(sides, earlier)
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
            next_offset=following[0].offset if following else -1,
        )

    def _seam(
        self, sides: ComparedSides, copies: Sequence[RecordDigest], last: int | None
    ) -> tuple[Seam, list[RecordDigest]]:
        """Find where the copy ends, and the source's records that told it: those from about the time of the first of
        `copies` on, and where that isn't enough from about the time of one that was copied again. Raises NoSeam.
        """
        gaps = self._ask_target.compacted(sides.target.topic)
        first = self._from_time(sides, copies[0].offset)
        if last is not None:
            first = min(first, last)
        while True:
            source = self._window(sides, copies, first)
            try:
                seam = find_seam(source, copies, gaps=gaps)
            except NoSeam as error:
                earlier = first if error.unknown is None else self._from_time(sides, error.unknown)
                if earlier >= first - 2 * self._compare:
                    raise
            else:
                earlier = self._from_time(sides, seam.begun)  # an equal record may stand there, too
                if earlier >= first - 2 * self._compare:
                    return seam, source
            first = earlier

    def _copy_before(self, sides: ComparedSides, end: int, following: Sequence[RecordDigest]) -> int | None:
        """Find the target offset, before `end`, of a copy of a source record that we would copy (`following`): then all
        that was compared was copied again, from before that record on. None: there is no such copy.

        Copies have the time of what they are copied from.
        """
        if not following:
            return None
        record = self._source.record(sides.source, following[0].offset)
        first = sides.target_log.start
        if record is not None and record.timestamp_ms >= 0:
            found = raised(self._ask_target.offsets_at([sides.target], record.timestamp_ms)[sides.target])
            first = end if found < 0 else max(first, found)
        wanted = {it.digest for it in following if it.digest}
        copies = self._read(self._target, sides.target, (first, end)) if first < end else ()
        return next((copy.offset for copy in copies if copy.digest in wanted), None)

    def _tail_from(self, sides: ComparedSides, earlier: int) -> list[RecordDigest]:
        """Read the target's records from some before `earlier` on."""
        log = sides.target_log
        first = max(log.start, earlier - self._compare)
        if log.stable - first > RECORDS_MAX:
            raise _refused(sides.source, f"more than {RECORDS_MAX:,} records would have to be looked through")
        return list(self._read(self._target, sides.target, (first, log.stable)))

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
        """Read the last committed records."""
        offsets = 2 * self._compare
        while True:
            first = max(log.start, log.stable - offsets)
            found = list(self._read(self._target, at, (first, log.stable)))
            if len(found) >= self._compare or first == log.start:
                return found[-self._compare :]
            offsets *= 8

    def _window(self, sides: ComparedSides, copies: Sequence[RecordDigest], first: int) -> list[RecordDigest]:
        """Read the source's records from some before `first` on, to well behind the last one that is among `copies`."""
        at, log = sides.source, sides.source_log
        reached = max(log.start, first - 2 * self._compare)
        wanted, found = {copy.digest for copy in copies}, list[RecordDigest]()
        recognized: int | None = None
        while reached < log.stable and (recognized is None or reached < recognized + BEHIND_OFFSETS):
            if len(found) > RECORDS_MAX:
                raise _refused(at, f"more than {RECORDS_MAX:,} records would have to be looked through")
            end = min(log.stable, reached + AT_ONCE)
            some = list(self._read(self._source, at, (reached, end)))
            found += some
            recognized = max((record.offset for record in some if record.digest in wanted), default=recognized)
            reached = end
        return found

    def _from_time(self, sides: ComparedSides, copy: int) -> int:
        """Find the first source offset at or after the time of a copy; the source's end where there is none."""
        record = self._target.record(sides.target, copy)
        if record is None or record.timestamp_ms < 0:
            return sides.source_log.start
        found = raised(self._ask_source.offsets_at([sides.source], record.timestamp_ms)[sides.source])
        return sides.source_log.stable if found < 0 else found

    def _read(self, reader: LogReader, at: Partition, span: Span) -> Iterator[RecordDigest]:
        for some in reader.identities(at, [span]):
            for record in some:
                yield RecordDigest(record.offset, record.digest)


def _refused(at: Partition, why: str) -> NotDecided:
    return NotDecided(Objection.NOT_PROVEN, f"{at}: {why}")
