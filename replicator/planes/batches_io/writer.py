"""Writes batches in transactions over real connections: does what `batches.session` asks for. Used by `plane`.

Each call ends when what it is for has come about, or raises what the lane is told, see `outcomes`. Every wait turns the
whole loop, so that the source is read on meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from replicator.kafka import failures
from replicator.kafka.coordinator_patience import CoordinatorPatience
from replicator.model.errors import Abortable, ReplicatorError, Retriable, UnknownOutcome, Unreachable
from replicator.model.partition import Committed, Partition
from replicator.planes.batches.answer_classes import AnswerClass, TxnApi
from replicator.planes.batches.decoding import WritableBatch
from replicator.planes.batches.phases import IN_TRANSACTION, TxnPhase
from replicator.planes.batches.produce import Acknowledged
from replicator.planes.batches.rewrite import ProducerIdentity
from replicator.planes.batches.session import (
    SendTxn,
    SessionOver,
    TransactionalSession,
    TxnEffect,
    TxnFailure,
    TxnRequest,
)
from replicator.planes.batches.txn_protocol import TxnProtocol, choose_protocol
from replicator.planes.batches_io.brokers import Brokers
from replicator.planes.batches_io.coordinators import Coordinators
from replicator.planes.batches_io.outcomes import Outcomes
from replicator.planes.batches_io.producing import Producing
from replicator.wire.transaction_requests import Coordinated

STALL_S = 0.25
"""So long without an acknowledgement, and it is asked why."""
ABORT_S_MAX = 10.0
_TURN_S = 0.25
_AGAIN_S, _AGAIN_S_MAX = 0.005, 0.25
_OFFSETS_BYTES_MAX, _OFFSET_OVERHEAD_BYTES = 262_144, 64
"""One TxnOffsetCommit must fit a batch of `__consumer_offsets`, where each offset is a record with group, topic and
metadata."""


@dataclass(frozen=True, slots=True)
class WriterLimits:
    """Seconds. `connect_s`: for a fence; `request_s`: for EndTxn; `transaction_s`: the transaction's timeout."""

    connect_s: float
    request_s: float
    transaction_s: float


class TransactionWriter:
    """One producer session. After UnknownOutcome or Fenced only `close` of its connections may follow."""

    def __init__(
        self,
        cluster: str,
        limits: WriterLimits,
        brokers: Brokers,
        coordinators: Coordinators,
        outcomes: Outcomes,
        producing: Producing,
        patience: CoordinatorPatience,
        turn: Callable[[float], None],
    ) -> None:
        """`turn` has the loop turned once, and waits for so many seconds at most. `producing` tells `take`."""
        self._cluster, self._limits, self._brokers = cluster, limits, brokers
        self._coordinators, self._outcomes, self._producing = coordinators, outcomes, producing
        self._patience, self._turn = patience, turn
        self._session = TransactionalSession(TxnProtocol.V1)
        self._later: list[tuple[float, TxnRequest]] = []
        self._again_s = _AGAIN_S
        self._over: TxnFailure | None = None
        self._begun_s = 0.0
        self.stalled: Callable[[], None] = lambda: None
        """Called now and then while acknowledgements are late; may raise."""

    @property
    def open(self) -> bool:
        """Whether anything is in a transaction that hasn't ended."""
        return self._session.phase not in (TxnPhase.NEW, TxnPhase.READY)

    @property
    def acknowledged(self) -> Mapping[Partition, Acknowledged]:
        """What the target has in the open transaction."""
        return self._session.acknowledged

    @property
    def unacknowledged(self) -> Mapping[Partition, int]:
        """Bytes that aren't acknowledged, by target partition."""
        return self._session.unacknowledged

    @property
    def flushed(self) -> bool:
        """Whether all that was written is acknowledged."""
        return self._session.flushed

    def overdue(self) -> bool:
        """Tell whether a transaction is open that the target may have timed out; it began there later than here."""
        return self.open and time.monotonic() - self._begun_s >= self._limits.transaction_s

    def pump(self, now_s: float) -> None:
        """Send what can be sent now."""
        due = [request for when_s, request in self._later if when_s <= now_s]
        if due:
            self._later = [each for each in self._later if each[0] > now_s]
            for request in due:
                self._send(request)
        self._coordinators.pump(now_s, now_s + self._limits.request_s)
        if self._session.phase in IN_TRANSACTION:
            self._producing.pump(self._session, now_s, now_s + self._limits.request_s)

    def wake_s(self, now_s: float) -> float:
        """Say in how many seconds there may be something to send without an answer coming first."""
        waits = [when_s - now_s for when_s, _ in self._later]
        return max(0.0, min([*waits, self._coordinators.wake_s(now_s), self._producing.wake_s(now_s)]))

    def take(self, effects: Iterable[TxnEffect]) -> None:
        """Do what answers ask for."""
        self._do(effects)

    def _do(self, effects: Iterable[TxnEffect]) -> None:
        for effect in effects:
            if isinstance(effect, SendTxn):
                if effect.again is AnswerClass.RETRY:
                    self._later.append((time.monotonic() + self._again_s, effect.request))
                    self._again_s = min(_AGAIN_S_MAX, 2 * self._again_s)
                    continue
                if effect.again is AnswerClass.LOOK_UP:
                    self._coordinators.look_up(effect.request.api)
                self._send(effect.request)
            elif isinstance(effect, SessionOver):
                self._over = effect.failure

    def _send(self, request: TxnRequest) -> None:
        session = self._session

        def answered(found: Coordinated) -> None:
            producer = ProducerIdentity(found.producer_id, found.epoch)
            effects = session.answered(request.number, found.code, found.by_partition, producer)
            if not effects:
                self._again_s = _AGAIN_S
            self._producing.changed()
            self._do(effects)

        def lost(why: str) -> None:
            self._do(session.lost(request.number))

        def denied(class_: AnswerClass, code: int) -> None:
            self._do(session.answered(request.number, code))

        self._coordinators.send(request, answered, lost, denied)

    def _raise_failed(self) -> None:
        """Raise why the session is over, or why its transaction can't be committed."""
        if self._over is not None:
            raise self._outcomes.of([*self._session.failures, self._over])
        if self._session.failures:
            raise self._outcomes.of(self._session.failures)
        if self._producing.denied is not None and self._session.phase in IN_TRANSACTION:
            raise self._outcomes.of([self._producing.denied])

    def check(self) -> None:
        """Raise what has failed. Raises as `contract.Plane.poll`."""
        self._raise_failed()

    def _wait(
        self, done: Callable[[], bool], limit_s: float, late: Callable[[], ReplicatorError], *, failed: bool = True
    ) -> None:
        """Wait, turning the loop, until something is `done`. `failed`: a transaction that has failed is told."""
        began_s = asked_s = time.monotonic()
        while not done():
            if failed or self._over is not None:
                self._raise_failed()
            now_s = time.monotonic()
            if now_s - began_s >= limit_s:
                raise late()
            if now_s - asked_s >= STALL_S:
                asked_s = now_s
                self._producing.stalled(self._session, now_s)
                self.stalled()
            self._turn(min(_TURN_S, limit_s - (now_s - began_s)))
        if failed:
            self._raise_failed()

    def fence(self) -> None:
        """Send InitProducerId. Raises Fenced, NotAllowed, Unreachable, Retriable, or ConfigError for a transaction
        timeout that is too long."""
        began_s, doing = time.monotonic(), "initialise the transactional id"

        def late() -> ReplicatorError:
            why = self._coordinators.why or str(self._brokers.last or "no answer in time")
            kind = Unreachable if self._brokers.last is not None else Retriable
            return kind(f"cluster {self._cluster!r}: cannot {doing}: {why}")

        self._coordinators.forget_denied(TxnApi.END_TXN)
        while (terms := self._coordinators.terms_of_cluster()) is None:
            if self._brokers.last is not None and failures.refuses_credentials(self._brokers.last, self._cluster):
                raise self._brokers.last
            if (denied := self._coordinators.denied(TxnApi.END_TXN)) is not None:
                raise self._outcomes.of([denied])
            if time.monotonic() - began_s >= self._limits.connect_s:
                raise late()
            self._turn(_TURN_S)
        protocol = choose_protocol(*terms)
        self._session = TransactionalSession(protocol)
        self._coordinators.protocol = self._producing.protocol = protocol
        self._do(self._session.start())
        left_s = self._limits.connect_s - (time.monotonic() - began_s)
        self._wait(lambda: self._session.phase is TxnPhase.READY, left_s, late)

    def write(self, at: Partition, batch: WritableBatch, *, shared: bool = False) -> None:
        """Take the next batch of a target partition into the transaction, and open it if needed. Raises as `check`: an
        answer that came while others were taken may have failed the transaction."""
        self._raise_failed()
        if self._session.phase is TxnPhase.READY:
            self._begin()
        self._producing.writes(at)
        self._do(self._session.write(at, batch, shared=shared))

    def _begin(self) -> None:
        self._begun_s, self._again_s = time.monotonic(), _AGAIN_S
        self._producing.begin()

    def flush(self) -> None:
        """Wait until all that was written is acknowledged. Raises the reason as soon as the transaction has failed,
        UnknownOutcome after the transaction timeout."""
        limit_s = self._limits.transaction_s

        def late() -> ReplicatorError:
            left = sorted(self.unacknowledged)
            return UnknownOutcome(
                f"cluster {self._cluster!r}: batches without acknowledgement after {limit_s:g} s, for "
                f"{', '.join(map(str, left[:3]))}{', ...' if len(left) > 3 else ''}: {self._producing.why}"
            )

        with self._producing.flushing():
            self._wait(lambda: self.flushed, limit_s, late)

    def store(self, group: str, offsets: Mapping[Partition, Committed]) -> None:
        """Commit positions in the transaction, and wait for all that was written before. Raises as `flush`, and
        UnknownOutcome when coordinators haven't answered in time."""
        if self._session.phase is TxnPhase.READY:
            self._begin()
        self._coordinators.offsets = list(offset_parts(offsets)) or [{}]
        limit_s = self._patience.limit_s

        def late() -> ReplicatorError:
            self._patience.timed_out(limit_s)
            why = f": {self._coordinators.why}" if self._coordinators.why else ""
            return UnknownOutcome(
                f"cluster {self._cluster!r}: cannot commit positions in group {group!r}: its coordinator, or that of "
                f"the transaction, has not answered for {limit_s:g} s{why}"
            )

        self._do(self._session.store(len(self._coordinators.offsets)))
        self._wait(lambda: self._session.phase is TxnPhase.STORED, limit_s, late)
        self._patience.answered()
        self.flush()

    def end(self) -> None:
        """Send EndTxn(commit). Invariant 6: what is not certainly committed starts over; nothing is sent again."""
        self._do(self._session.commit())
        self._end("commit", self._limits.request_s)

    def _end(self, doing: str, limit_s: float, *, failed: bool = True) -> None:
        def late() -> ReplicatorError:
            why = f": {self._coordinators.why}" if self._coordinators.why else ""
            return UnknownOutcome(f"cluster {self._cluster!r}: cannot {doing}: no answer for {limit_s:g} s{why}")

        self._wait(lambda: self._session.phase is TxnPhase.READY, limit_s, late, failed=failed)
        self._later.clear()
        self._producing.ended()

    def abort(self) -> None:
        """Abort the open transaction; what isn't sent is dropped.

        In the first protocol what is in flight is waited for: a broker could append it behind the abort's marker, where
        nothing would end it (KIP-890). Raises UnknownOutcome when the abort is not certain, Fenced.
        """
        session, limit_s = self._session, min(self._limits.request_s, ABORT_S_MAX)
        if self._over is not None:
            raise UnknownOutcome(f"cluster {self._cluster!r}: cannot abort: the producer session is over")
        if not self.open:
            return
        if session.protocol is TxnProtocol.V1:
            until_s = time.monotonic() + limit_s
            with self._producing.paused():
                while not session.settled and time.monotonic() < until_s:
                    self._turn(_TURN_S)
        self._later.clear()
        self._coordinators.drop()
        self._do(session.abort())
        try:
            self._end("abort the transaction", limit_s, failed=False)
        except Abortable as error:
            raise UnknownOutcome(str(error)) from error


def offset_parts(offsets: Mapping[Partition, Committed]) -> Iterable[Mapping[Partition, Committed]]:
    """Divide positions into what fits one TxnOffsetCommit each."""
    part: dict[Partition, Committed] = {}
    size = 0
    for at, committed in offsets.items():
        bytes_ = len(at.topic) + len(committed.metadata.encode()) + _OFFSET_OVERHEAD_BYTES
        if part and size + bytes_ > _OFFSETS_BYTES_MAX:
            yield part
            part, size = {}, 0
        part[at] = committed
        size += bytes_
    if part:
        yield part
