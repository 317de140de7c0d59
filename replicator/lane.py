"""A lane: a fixed set of source partitions with one transactional producer, and its numbered steps.

    1 fence      InitProducerId under flow.generation.lane
    2 open       check the generation, read the positions stable, judge them            (opening)
    3 claim      commit all positions again with oneself as owner, and claims for new ones
    4 seek       the source to the committed positions
    5 copy       records into a transaction until the source is drained or a limit is reached
    6 flush      all acks, with their offsets
    7 positions  into the same transaction
    8 end        EndTxn(commit); back to 5

What follows an error is one table, `AFTER`; nothing else decides it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

import structlog

from replicator.checkpoint import NOBODY, Position
from replicator.errors import (
    Abortable,
    Fenced,
    Incident,
    RecordRefused,
    ReplicatorError,
    Retriable,
    Superseded,
    UnknownOutcome,
    Unreachable,
)
from replicator.failpoints import Reach, nothing
from replicator.ledger import Ledger
from replicator.opening import LanePlan, Opening
from replicator.pace import Pace, Rate
from replicator.planes.contract import Copied, Partition, Plane, Seek

IDLE_POLL_S = 0.1
PARKED_LOOK_S = 0.5
ABORT_PAUSE_S, ABORT_PAUSE_S_MAX = 0.01, 5.0
SETTLE_S = 0.003  # how long a transaction waits for more once the source is drained: a commit costs ten times that


class Next(Enum):
    """What a lane does after an error."""

    REWIND = auto()  # abort, seek back to the committed positions, go on with the same producer
    RESTART = auto()  # throw the producer away and start at step 1
    EXAMINE = auto()  # read the owner of the positions: restart if it is still us, otherwise leave
    LEAVE = auto()  # the error goes to the worker


AFTER: tuple[tuple[type[ReplicatorError], Next], ...] = (
    (Superseded, Next.LEAVE),
    (Fenced, Next.EXAMINE),
    (Abortable, Next.REWIND),  # RecordRefused too, with a smaller transaction
    (UnknownOutcome, Next.RESTART),
    (Retriable, Next.RESTART),
    (Unreachable, Next.RESTART),
    (ReplicatorError, Next.LEAVE),  # NotAllowed, Incident of the whole lane, Fatal, Config
)


def after(error: ReplicatorError) -> Next:
    """The row of `AFTER` for `error`: the first class that fits."""
    return next(step for kind, step in AFTER if isinstance(error, kind))


@dataclass(slots=True)
class Open:
    """The transaction under way: when its first record came, how much is in it."""

    since: float = 0.0
    records: int = 0
    bytes: int = 0
    drained: bool = False
    incidents: list[Incident] = field(default_factory=list)


class Lane:
    """One incarnation: from fence to the end of its producer. Runs in one thread, owns plane and ledger."""

    def __init__(
        self,
        plan: LanePlan,
        plane: Plane,
        opening: Opening,
        digests: dict[Partition, str],
        stop: threading.Event,
        log: structlog.stdlib.BoundLogger,
        reach: Reach = nothing,
        records_max: int | None = None,
        on_commit: Callable[[int, int], None] | None = None,
        on_parked: Callable[[], None] | None = None,
        lasting: list[Incident] | None = None,
    ) -> None:
        """`digests` is shared with the plane; `records_max` starts below the flow's limit after a refusal.

        `lasting` collects incidents that another incarnation could not find again, and stops their partitions.
        """
        self._plan, self._plane, self._opening, self._digests = plan, plane, opening, digests
        self._stop, self._log, self._reach, self._on_commit = stop, log, reach, on_commit
        self._on_parked, self._lasting = on_parked, [] if lasting is None else lasting
        self._aborts = 0  # in a row
        commit = plan.flow.commit
        self._interval_s, self._bytes_max = commit.interval_ms / 1000, commit.bytes_max
        self._rate = Rate(plan.span.rate_max if plan.span else None)
        self._limit = self._rate.records(commit.records_max, self._interval_s)
        self.records_max = min(records_max or self._limit, self._limit)
        self._last_commit = time.monotonic()
        self._last_recommit = time.monotonic()
        self._first: tuple[Partition, int] | None = None
        self._open, self._pace = Open(), Pace()
        self.ledger: Ledger | None = None

    def open(self) -> Ledger:
        """Steps 1 to 4."""
        self._plane.fence()
        self._reach("fenced")
        ledger, claims = self._opening.read()
        for entry in ledger.entries.values():
            if entry.incident is not None:
                self._tell(entry.incident)
        for incident in self._lasting:
            self._set_aside(ledger, incident)
        self._commit_all(ledger, claims)
        self._reach("claimed")
        self.ledger = ledger
        self._rewind(ledger)
        self._log.info(
            "lane_started",
            partitions=len(ledger.running),
            claims=len(claims),
            stopped=len(ledger.entries) - len(ledger.running),
            kept=len(ledger.kept),
        )
        return ledger

    def _commit_all(self, ledger: Ledger, claims: Sequence[tuple[bytes, bytes]], *, owner: str | None = None) -> None:
        """A transaction without positions is none: librdkafka would end it without asking the coordinator."""
        positions = ledger.recommits(_now_ms(), owner)
        if positions:
            self._plane.send_positions(positions, claims)
            self._plane.end()

    def _rewind(self, ledger: Ledger) -> None:
        self._digests.clear()
        self._digests.update(ledger.digests())
        self._plane.seek(ledger.seeks())

    def run(self) -> bool:
        """Steps 5 to 8 until asked to stop; the errors in `AFTER` come out. Whether a bounded lane is at its end."""
        ledger = self.ledger
        if ledger is None:
            raise RuntimeError("run before open")
        while not self._stop.is_set():
            if self._at_end(ledger, {}):
                self._stop.wait(self._rate.left_s(time.monotonic()))  # the next range begins without this one's debt
                return True
            try:
                if ledger.running or not ledger.entries:
                    self._one_transaction(ledger)
                else:
                    self._park(ledger)
            except Abortable as error:
                self._abort(ledger, error)

        return self._at_end(ledger, {})

    def _at_end(self, ledger: Ledger, ends: Mapping[Partition, Seek]) -> bool:
        """Whether all of a bounded lane's partitions that go on stand at their ends, or will with `ends`."""
        span, running = self._plan.span, ledger.running
        if span is None:
            return False
        if not running:
            return not span.end  # it was there to commit positions again; otherwise incidents have stopped it
        stands = {at: entry.position.offset for at, entry in running.items() if entry.position is not None}
        return all(max(offset, ends[at].offset if at in ends else 0) >= span.end[at] for at, offset in stands.items())

    def release(self) -> None:
        """After a clean stop: commit the positions once more without an owner, so that others see nobody runs them."""
        if self.ledger is not None:
            self._commit_all(self.ledger, (), owner=NOBODY)

    def _park(self, ledger: Ledger) -> None:
        """Incidents have stopped every partition: nothing is left but to keep the positions alive."""
        if self._on_parked is not None:
            self._on_parked()
        while not self._stop.wait(PARKED_LOOK_S):
            self._plane.serve()
            if time.monotonic() >= self._recommit_due():
                self._recommit(ledger)

    def _recommit_due(self) -> float:
        return self._last_recommit + self._plan.flow.limits.recommit_interval_ms / 1000

    def _abort(self, ledger: Ledger, error: Abortable) -> None:
        """Invariant 5: abort, then rewind. A refused record is found by halving the transaction.

        Aborts in a row come ever more slowly, but for halving, which ends by itself.
        """
        self._plane.abort()
        self._check_tails(ledger)
        self._aborts += not isinstance(error, RecordRefused)
        self._log.warning("aborted", reason=str(error), records_max=self.records_max)
        if isinstance(error, RecordRefused):
            if self._open.records == 1 and self._first is not None:
                (topic, partition), offset = self._first
                advice = "the flow stands before this record; everything before it is committed"
                self._set_aside(
                    ledger,
                    Incident(
                        "record_refused", str(error), topic=topic, partition=partition, offset=offset, advice=advice
                    ),
                )
            self.records_max = max(1, min(self.records_max, self._open.records) // 2)
        elif self._aborts > 1:
            self._stop.wait(min(ABORT_PAUSE_S_MAX, ABORT_PAUSE_S * 2 ** min(self._aborts, 16)))
        self._rewind(ledger)

    def _check_tails(self, ledger: Ledger) -> None:
        """After an abort, before the same producer's next commit could make its records visible after all."""
        for incident in self._opening.check_tails(ledger).values():
            self._set_aside(ledger, incident)
        self._opening.close()

    def _one_transaction(self, ledger: Ledger) -> None:
        if time.monotonic() >= self._recommit_due():
            self._recommit(ledger)
        self._open = transaction = Open()
        now_s = time.monotonic()
        if self._stop.wait(max(self._pace.left_s(now_s), self._rate.left_s(now_s))):
            return
        self._collect(transaction)
        if transaction.incidents:
            self._plane.abort()
            self._check_tails(ledger)
            for incident in transaction.incidents:
                self._set_aside(ledger, incident)
            self._rewind(ledger)
            return
        if transaction.records or self._plane.pending():
            self._finish(ledger)
            return
        idle_s = time.monotonic() - self._last_commit
        if idle_s >= self._interval_s or self._at_end(ledger, self._plane.ends()):
            self._commit_without_records(ledger)

    def _collect(self, transaction: Open) -> None:
        """Step 5. Returns when the source is drained, a limit is reached, or nothing came in one idle poll."""
        plane = self._plane
        while True:
            left = self.records_max - transaction.records
            wait_s = SETTLE_S if transaction.records else IDLE_POLL_S
            polled = plane.poll(left, wait_s)
            if polled.records:
                self._reach("mid_batch" if transaction.records else "before_send")
                transaction.since = transaction.since or time.monotonic()
            transaction.records += polled.records
            transaction.bytes += polled.bytes
            transaction.incidents += polled.incidents
            if transaction.incidents or self._stop.is_set():
                return
            if transaction.records >= self.records_max or transaction.bytes >= self._bytes_max:
                return
            if not plane.pending():
                return
            if self._plan.span is not None and self.ledger is not None and self._at_end(self.ledger, plane.ends()):
                return
            open_s = time.monotonic() - transaction.since
            transaction.drained = polled.drained and open_s >= SETTLE_S
            if transaction.drained or open_s >= self._interval_s:
                return

    def _finish(self, ledger: Ledger) -> None:
        """Steps 6 to 8."""
        self._reach("before_flush")
        self._first = self._plane.first()
        copied = self._plane.flush()
        writing_s = time.monotonic() - self._open.since
        try:
            positions = ledger.next_positions(copied, self._plane.ends(), _now_ms())
        except Incident as incident:  # the target lost records: nothing of this transaction may become visible
            self._lasting.append(incident)
            self._set_aside(ledger, incident)
            self._plane.abort()
            self._check_tails(ledger)
            self._rewind(ledger)
            return
        self._reach("before_offsets")
        self._plane.send_positions(ledger.offsets(positions), ())
        self._reach("before_end_txn")
        self._plane.end()
        self._reach("after_end_txn")
        self._pace.committed(time.monotonic(), writing_s, self._open.drained)
        self._plane.deliver()
        ledger.committed(positions)
        self._digests.update(ledger.digests())
        self._told(copied, positions)
        self.records_max = min(self._limit, self.records_max * 2)
        blocked = [done.blocked for done in copied.values() if done.blocked is not None]
        for stopping in blocked:
            self._set_aside(ledger, stopping)
        if blocked:
            self._rewind(ledger)

    def _told(self, copied: dict[Partition, Copied], positions: Mapping[Partition, Position]) -> None:
        self._last_commit, self._aborts = time.monotonic(), 0
        records = sum(done.records for done in copied.values())
        self._rate.spent(self._open.since, records)
        if self._on_commit is not None:
            self._on_commit(records, sum(done.bytes for done in copied.values()))
        self._log.info(
            "committed",
            records=records,
            positions={str(at): position.offset for at, position in positions.items()},
            ms=round((time.monotonic() - self._open.since) * 1000) if self._open.since else 0,
        )

    def _recommit(self, ledger: Ledger) -> None:
        """Invariant 7: every position again, stopped and idle ones too, before it could expire."""
        self._commit_all(ledger, ())
        self._last_recommit = self._last_commit = time.monotonic()
        self._log.info("recommitted", partitions=len(ledger.entries))

    def _commit_without_records(self, ledger: Ledger) -> None:
        """Positions past markers and aborted tails: otherwise retention there would look like loss."""
        positions = ledger.next_positions({}, self._plane.ends(), _now_ms())
        if positions:
            self._plane.send_positions(ledger.offsets(positions), ())
            self._plane.end()
            ledger.committed(positions)
            self._told({}, positions)

    def _set_aside(self, ledger: Ledger, incident: Incident) -> None:
        for at in ledger.stop(incident):
            self._tell(ledger.entries[at].incident or incident)

    def _tell(self, incident: Incident) -> None:
        self._log.error(
            "incident",
            name=incident.name,
            detail=incident.detail,
            topic=incident.topic,
            partition=incident.partition,
            offset=incident.offset,
            advice=incident.advice,
        )


def _now_ms() -> int:
    return int(time.time() * 1000)
