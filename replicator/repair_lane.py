"""Copies missing records of one partition again, under its lane of a repair's generation.

    1 fence      InitProducerId under flow.generation.lane
    2 open       check the generation, read the position stable, judge it                    (opening)
    3 claim      commit the position again with oneself as owner
    4 leave out  what the map says was copied again since the reconciliation
    5 copy       the records of some spans into a transaction, flush
    6 entry      of the map, and the position with its new evidence, into the same transaction
    7 end        EndTxn(commit); back to 5

Invariants
- The map is read after the fence, to its end: whoever copied some of these records before has committed or was aborted.
- Whatever goes wrong, a new incarnation starts at 1 and finds in the map what is done. There is no rewind.
- The position's source offset stays. What was written is vouched for in the same transaction, or the next lane would
  call it somebody else's.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import closing

import structlog

from replicator import map, sighting
from replicator.errors import (
    Abortable,
    Fenced,
    Incident,
    RecordRefused,
    ReplicatorError,
    Retriable,
    UnknownOutcome,
    Unreachable,
)
from replicator.failpoints import Reach
from replicator.ledger import Entry, Ledger
from replicator.opening import LanePlan, Opening
from replicator.planes.contract import Copied, Partition, Seek, Span
from replicator.planes.records.plane import RecordsPlane
from replicator.planes.records.reading import Reader
from replicator.repair_spans import BATCH_OFFSETS_MAX, Damage, Missing, Request, Tally, batches, left

ATTEMPTS_MAX = 5  # in a row, without a commit
PAUSE_S = 0.2
POLL_S = 0.2
AGAIN = (Abortable, Fenced, Retriable, UnknownOutcome, Unreachable)
MENDED = ("target_lost_data", "target_records_hidden")
"""Incidents of a target that lost records: the decision that they wait for is this repair."""


class RepairLane:
    """One partition's part of a repair. Runs in one thread; `stop` ends it after the transaction under way."""

    def __init__(
        self, plan: LanePlan, request: Request, stop: threading.Event, log: structlog.stdlib.BoundLogger, reach: Reach
    ) -> None:
        self._plan, self._request, self._stop, self._reach = plan, request, stop, reach
        (self._route,) = plan.routes
        self._at: Partition = self._route.source
        self._damage: Damage = request.partitions[self._at]
        self._log = log.bind(lane=plan.lane, generation=plan.generation, partition=str(self._at))
        self._digests: dict[Partition, str] = {}  # shared with the plane: what the next block chains to
        self._offsets_max = min(BATCH_OFFSETS_MAX, plan.flow.commit.records_max)
        self._failures = 0
        self.copied = 0
        self.done_before = 0  # records that another repair had copied since the reconciliation

    def run(self) -> None:
        """Until everything is copied. Raises Superseded, Incident, and what stopped it again and again."""
        while not self._stop.is_set():
            try:
                self._incarnation()
                return
            except AGAIN as error:
                self._note(error)

    def _note(self, error: ReplicatorError) -> None:
        """Raises the error when it came too often. A refused record is found by halving the transaction."""
        if isinstance(error, RecordRefused):
            if self._offsets_max == 1:
                raise self._incident("record_refused", str(error)) from error
            self._offsets_max = max(1, self._offsets_max // 8)
        else:
            self._failures += 1
        self._log.warning("restarted", reason=str(error), kind=type(error).__name__)
        if self._failures >= ATTEMPTS_MAX:
            raise error
        self._stop.wait(PAUSE_S * 2**self._failures)

    def _incarnation(self) -> None:
        plan = self._plan
        routes = {self._route.source: self._route.target}
        plane = RecordsPlane(
            plan.flow, plan.transactional_id, plan.map_partition, routes, self._digests, self._noise, self._lost, {}
        )
        source, target = Reader(plan.flow, plan.flow.source), Reader(plan.flow, plan.flow.target)
        with closing(plane), closing(source), closing(target):
            plane.fence()
            self._reach("fenced")
            opening = Opening(plan, plane, source, target, {})
            ledger, claims = opening.read()
            if claims:
                raise self._incident("position_missing", f"{self._route.target} has no position any more")
            self._judge(ledger.entries[self._at], target)
            plane.send_positions(ledger.recommits(_now_ms()), ())
            plane.end()
            self._reach("claimed")
            missing = self._missing(target)
            tally = Tally(missing)
            for spans in batches(missing, self._offsets_max):
                if self._stop.is_set():
                    return
                tally.add(self._copy(plane, ledger, spans))
                self._check_gone(tally.lacking(spans[-1][1]))

    def _judge(self, entry: Entry, target: Reader) -> None:
        """Whether what the reconciliation found is still so. Raises Incident."""
        damage, incident, position = self._damage, entry.incident, entry.position
        lost = incident is not None and incident.name in MENDED
        if incident is not None and not lost:
            raise incident
        if position is None:
            raise ValueError(f"{self._at} has neither a position nor an incident")
        if position.offset < damage.source_end or (
            position.offset > damage.source_end and (lost or damage.compacted)
        ):  # in a compacted topic an older record behind a newer one of its key would be the one that is kept
            why = f"the flow stood at {damage.source_end} then, and stands at {position.offset} now"
            raise self._incident("repair_outdated", why, "stop the flow and reconcile again")
        log_start, end = target.bounds(self._route.target)
        if end < damage.target_end:
            why = f"{self._route.target} was compared up to offset {damage.target_end}, and ends at {end} now"
            raise self._incident("repair_outdated", why, "reconcile again")
        if lost:
            start = max(end - 1, log_start)
            stable = target.tails({self._route.target: start}, {self._route.target: end})[self._route.target].stable
            if end > log_start and 0 <= stable < end:
                raise self._incident(
                    "target_transaction_open", f"{self._route.target} is stable up to {stable} of {end}"
                )
            self._log.warning("copied_again_by_decision", incident=str(incident))
            entry.incident = None

    def _missing(self, target: Reader) -> list[Missing]:
        """Step 4: what nobody has copied since the reconciliation."""
        done = [
            repair
            for repair in sighting.repaired(self._plan.flow, target)
            if repair.target == self._route.target and repair not in self._request.known
        ]
        others = [repair for repair in done if repair.generation != self._plan.generation]
        before = left(self._damage.missing, others)
        missing = left(before, [repair for repair in done if repair.generation == self._plan.generation])
        self.done_before = self._damage.records - sum(span.records for span in before)
        self.copied = sum(span.records for span in before) - sum(span.records for span in missing)
        return missing

    def _copy(self, plane: RecordsPlane, ledger: Ledger, spans: list[Span]) -> list[Span]:
        """Copy the records of some spans in as many transactions as they need; the runs of source offsets."""
        runs: list[Span] = []
        while spans:
            copied, reached = self._transaction(plane, ledger, spans)
            runs += copied
            spans = [(max(first, reached), end) for first, end in spans if end > reached]
        return runs

    def _transaction(self, plane: RecordsPlane, ledger: Ledger, spans: Sequence[Span]) -> tuple[list[Span], int]:
        """Steps 5 to 7; the runs that were copied, and up to where the spans were read."""
        self._digests.clear()
        self._digests.update(ledger.digests())
        plane.seek({self._at: Seek(spans[0][0], -1)}, {self._at: spans})
        reached = self._collect(plane, spans[-1][1])
        if not plane.pending():
            return [], reached
        self._reach("before_flush")
        done = plane.flush()[self._at]
        if done.records:
            self._commit(plane, ledger, done)
        else:
            plane.abort()
        if done.blocked is not None:
            raise done.blocked
        return done.runs, max(reached, done.next_offset)

    def _commit(self, plane: RecordsPlane, ledger: Ledger, done: Copied) -> None:
        if done.next_target - done.first_target != done.records:
            plane.abort()
            raise Abortable(f"{done.records} records got target offsets {done.first_target} to {done.next_target - 1}")
        now_ms = _now_ms()
        target, generation = self._route.target, self._plan.generation
        entry = map.Repair(target, self._at, tuple(done.runs), done.first_target, generation, now_ms)
        positions = {self._at: ledger.repaired(self._at, done, now_ms)}
        self._reach("before_offsets")
        plane.send_positions(ledger.offsets(positions), [entry.encode()])
        self._reach("before_end_txn")
        plane.end()
        self._reach("after_end_txn")
        ledger.committed(positions)
        self.copied += done.records
        self._failures = 0
        self._log.info("copied_again", records=done.records, first_target=done.first_target)

    def _collect(self, plane: RecordsPlane, end: int) -> int:
        """Read to the end of the spans, or until the transaction is large enough; how far at least.

        Raises Incident when the source doesn't reach it.
        """
        size, bytes_max = 0, self._plan.flow.commit.bytes_max
        patience_s = self._plan.flow.limits.transaction_timeout_ms / 1000
        give_up = time.monotonic() + patience_s
        while True:
            polled = plane.poll(self._offsets_max, POLL_S)
            if polled.incidents:
                plane.abort()
                raise polled.incidents[0]
            size += polled.bytes
            stands = plane.ends().get(self._at)
            if stands is not None and stands.offset >= end:
                return end
            if size >= bytes_max:
                return 0
            if stands is not None:
                plane.abort()
                raise self._incident("source_truncated", f"the source ends at offset {stands.offset}, before {end}")
            if time.monotonic() >= give_up:
                raise Retriable(f"{self._at} can't be read up to offset {end} within {patience_s:.0f} s")

    def _check_gone(self, lacking: tuple[int, int, int] | None) -> None:
        if lacking is not None:
            first, end, records = lacking
            why = f"{records} of the records at source offsets {first} to {end - 1} aren't there any more"
            raise self._incident("repair_record_gone", why, "reconcile again: what the source has lost can't be copied")

    def _incident(self, name: str, why: str, advice: str = "") -> Incident:
        return Incident(name, why, topic=self._at.topic, partition=self._at.partition, advice=advice)

    def _noise(self, text: str) -> None:
        self._log.debug("client", detail=text)

    def _lost(self, at: Partition, why: str) -> None:
        self._log.error("records_lost", topic=at.topic, partition=at.partition, detail=why)


def _now_ms() -> int:
    return int(time.time() * 1000)
