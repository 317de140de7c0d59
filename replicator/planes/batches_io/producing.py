"""Produce requests of a lane: to which broker, when, how large; leaders that move. Used by `writer`.

At most five requests are under way to a broker. While one is, the next one waits until it is worth its price, or
nothing more is to come: small batches share requests.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from kio.schema.errors import ErrorCode

from replicator.model.errors import ReplicatorError, Unsupported
from replicator.model.newest_epochs import NewestEpochs
from replicator.model.partition import Partition
from replicator.planes.batches.answer_classes import AnswerClass, TxnApi
from replicator.planes.batches.fetch_classes import code_name
from replicator.planes.batches.part_read import ToldBy
from replicator.planes.batches.produce import ProduceAnswer, ProduceRequest, ProduceVerdict
from replicator.planes.batches.session import TransactionalSession, TxnEffect, TxnFailure
from replicator.planes.batches.txn_protocol import TxnProtocol, version_of
from replicator.planes.batches_io.brokers import DATA, Brokers
from replicator.planes.batches_io.link import BrokerLink
from replicator.wire import produce
from replicator.wire.metadata_response import Metadata
from replicator.wire.protocol import SPOKEN

REQUEST_BYTES_MIN, REQUEST_BYTES_MAX = 256 * 1024, 2 * 1024 * 1024
_AGAIN_S, _AGAIN_S_MAX = 0.005, 0.5
_STALL_LOOK_S = 1.0


class Producing:
    """Of one producer session."""

    def __init__(
        self,
        brokers: Brokers,
        client_id: str,
        transactional_id: str,
        ack_timeout_ms: int,
        effects: Callable[[list[TxnEffect]], None],
    ) -> None:
        """`ack_timeout_ms`: how long a leader may wait for other replicas. `effects` takes what answers mean."""
        self._brokers, self._client_id, self._id = brokers, client_id, transactional_id
        self._ack_timeout_ms, self._effects = ack_timeout_ms, effects
        self.protocol = TxnProtocol.V1
        self.why = "no answer"
        """Why the last batch that has to be sent again has to."""
        self.denied: TxnFailure | None = None
        """A right that is missing for partitions of the open transaction: nobody says even who leads them."""
        self._leaders: dict[Partition, int] = {}
        self._epochs = NewestEpochs()
        self._told: dict[Partition, tuple[int, int]] = {}  # leader and its epoch, as they were told last
        self._doubted: set[Partition] = set()  # a broker that tells the same once more is of no help
        self._active: set[Partition] = set()  # with batches in the open transaction
        self._paused: dict[Partition, tuple[float, float]] = {}  # until when, and for how long next time
        self._unknown: set[str] = set()  # topics whose leaders are to be looked up
        self._look_s = 0.0  # not before
        self._looked_again_s, self._look_pause_s = 0.0, _AGAIN_S
        self._looking = self._flushing = self._silent = False
        self._changed = True

    def begin(self) -> None:
        """Begin a transaction."""
        self._looked_again_s, self.denied = time.monotonic(), None
        self._paused.clear()

    def ended(self) -> None:
        """Take note that the transaction has ended."""
        self.denied = None
        self._active.clear()
        self._paused.clear()
        self._doubted.clear()

    def writes(self, at: Partition) -> None:
        """Take note that the session has got a batch for this partition."""
        self._active.add(at)
        self._changed = True
        if at not in self._leaders:
            self._unknown.add(at.topic)

    def changed(self) -> None:
        """Take note that there may be something to send."""
        self._changed = True

    @contextmanager
    def flushing(self) -> Iterator[None]:
        """Send whatever there is: nothing more is to come."""
        self._flushing = self._changed = True
        try:
            yield
        finally:
            self._flushing = False

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Send nothing meanwhile."""
        self._silent = True
        try:
            yield
        finally:
            self._silent = False

    def wake_s(self, now_s: float) -> float:
        """Say in how many seconds there may be something to send."""
        waits = [until_s - now_s for until_s, _ in self._paused.values() if until_s > now_s]
        if self._unknown and not self._looking:
            waits.append(self._look_s - now_s)
        return max(0.0, min([*waits, 1.0]))

    def pump(self, session: TransactionalSession, now_s: float, until_s: float) -> None:
        """Send what can be sent now; `until_s`: when an answer is given up."""
        if self._unknown and not self._looking and now_s >= self._look_s:
            self._look_up()
        if self._silent or not (self._changed or any(when_s <= now_s for when_s, _ in self._paused.values())):
            return
        self._changed = False
        by_broker: dict[int, list[Partition]] = {}
        for at in self._active:
            leader = self._leaders.get(at, -1)
            paused = self._paused.get(at)
            if leader >= 0 and (paused is None or paused[0] <= now_s):
                by_broker.setdefault(leader, []).append(at)
        for broker, leads in by_broker.items():
            self._produce(session, broker, leads, now_s, until_s)

    def _produce(
        self, session: TransactionalSession, broker: int, leads: list[Partition], now_s: float, until_s: float
    ) -> None:
        link = self._brokers.link(broker, DATA)
        if link is None:
            self.why = str(self._brokers.last or f"it isn't known where broker {broker} is")
            self._forget(leads)
            return
        if not link.ready or now_s < link.quiet_until_s or link.expired(now_s):
            self._changed = True
            return
        while link.error is None:
            least = 0 if self._flushing or not session.in_flight(broker) else REQUEST_BYTES_MIN
            request = session.next_produce(broker, leads, bytes_min=least, bytes_max=REQUEST_BYTES_MAX)
            if request is None:
                return
            self._send(session, link, request, until_s)

    def _send(self, session: TransactionalSession, link: BrokerLink, request: ProduceRequest, until_s: float) -> None:
        def write(link: BrokerLink, number: int) -> list[bytes | memoryview]:
            offered = (SPOKEN[produce.API][1], link.version(produce.API))
            version = version_of(self.protocol, TxnApi.PRODUCE, offered)
            if version is None:
                raise Unsupported(f"{link.where}: it speaks no version of Produce in protocol {self.protocol.name}")
            return produce.request(number, self._client_id, version, self._id, self._ack_timeout_ms, request.batches)

        def answered(link: BrokerLink, data: bytes | bytearray) -> None:
            found = produce.read(bytes(data))
            link.throttle(found.throttled_s, time.monotonic())
            answers = {
                at: ProduceAnswer(part.code, part.base_offset, part.append_time_ms, part.bad_records, part.detail)
                for at, part in found.parts.items()
            }
            self._take(session.produced(request.number, answers), answers)

        def lost(error: ReplicatorError) -> None:
            self.why = str(error)
            self._take(session.produce_lost(request.number), ())

        link.ask(write, answered, lost, until_s)

    def _take(self, effects: list[TxnEffect], answered: Iterable[Partition]) -> None:
        self._changed, now_s = True, time.monotonic()
        verdicts = [each for each in effects if isinstance(each, ProduceVerdict)]
        for at in set(answered) - {verdict.at for verdict in verdicts}:
            self._paused.pop(at, None)
            self._doubted.discard(at)
        for verdict in verdicts:
            self.why = f"{verdict.at}: {verdict.detail or code_name(verdict.code)}"
            _, again_s = self._paused.get(verdict.at, (0.0, _AGAIN_S))
            self._paused[verdict.at] = now_s + again_s, min(_AGAIN_S_MAX, 2 * again_s)
            if verdict.answer_class is AnswerClass.LOOK_UP:
                self._forget([verdict.at])
        self._effects([each for each in effects if not isinstance(each, ProduceVerdict)])

    def _forget(self, partitions: list[Partition]) -> None:
        self._changed = True
        for at in partitions:
            self._leaders.pop(at, None)
            self._unknown.add(at.topic)
            self._doubted.add(at)

    def stalled(self, session: TransactionalSession, now_s: float) -> None:
        """Look, now and then while acknowledgements are late, whether others lead the partitions now."""
        late = session.unacknowledged
        if late and now_s >= self._looked_again_s + _STALL_LOOK_S:
            self._looked_again_s = now_s
            self._unknown |= {at.topic for at in late}
            self._doubted |= set(late)

    def _look_up(self) -> None:
        topics, self._unknown, self._looking = self._unknown, set(), True

        def pause() -> None:
            self._looking, self._changed = False, True
            self._look_s = time.monotonic() + self._look_pause_s
            self._look_pause_s = min(_AGAIN_S_MAX, 2 * self._look_pause_s)

        def answered(found: Metadata, told: ToldBy) -> bool:
            pause()
            older = False
            for topic in found.topics:
                self._epochs.topic(topic.name, bytes(topic.topic_id))
                for index, (_, leader, epoch) in topic.leaders.items():
                    older |= not self._lead(Partition(topic.name, index), leader, epoch)
            missing = [at for at in self._active if at.topic in topics and at not in self._leaders]
            hidden = {topic.name for topic in found.topics if topic.error == ErrorCode.topic_authorization_failed}
            denied = frozenset(at for at in missing if at.topic in hidden)
            if denied:
                code = int(ErrorCode.topic_authorization_failed)
                self.denied = TxnFailure(AnswerClass.NOT_ALLOWED, TxnApi.PRODUCE, code, denied)
            if missing:
                codes = {topic.name: code_name(topic.error) for topic in found.topics if topic.error}
                self.why = f"{missing[0]} has no leader ({codes.get(missing[0].topic, 'so a broker says')})"
                self._unknown |= {at.topic for at in missing}
            else:
                self._look_pause_s = _AGAIN_S
            return not (older or missing or any(at.topic in topics for at in self._doubted))

        def lost(why: str) -> None:
            pause()
            self.why = why
            self._unknown |= topics

        self._brokers.ask_topics(topics, answered, lost)

    def _lead(self, at: Partition, leader: int, epoch: int) -> bool:
        """Take whom a broker names; False: it knows less than others do, and isn't believed."""
        before = self._leaders.get(at, -1)
        if not self._epochs.take(at, epoch):
            return False
        if leader < 0:
            self._leaders.pop(at, None)
            return True
        self._leaders[at] = leader
        if self._told.get(at) != (leader, epoch):
            self._told[at] = leader, epoch
            self._doubted.discard(at)
        if before not in (-1, leader):
            self._brokers.hurry(before, f"it doesn't lead {at} any more")
        return True
