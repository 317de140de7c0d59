"""Batches on their way to the target's partitions: sequences, what is in flight, what is acknowledged. Sans-I/O.

Used by `session`. A produce request has one batch of each partition at most. Invariants:
- Sequences of a partition follow each other without a gap, in the order of the batches, from 2³¹-1 to 0.
- At most five requests are in flight to a broker: it remembers so many batches of a producer, to tell a repeated one.
- What is sent again goes behind nothing that came after it: a partition with a batch to repeat sends nothing until all
  its requests under way are answered or lost.
- Acknowledged batches of a transaction stand one behind the other on the target, but where others write, too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from kafka_records.batch import SEQUENCES
from replicator.model.partition import Partition, Span
from replicator.offset_map.runs import add_runs
from replicator.planes.batches.answer_classes import AnswerClass, TxnApi, classify_answer
from replicator.planes.batches.decoding import WritableBatch
from replicator.planes.batches.rewrite import ProducerIdentity, RewrittenBatch, rewritten

IN_FLIGHT_MAX = 5
_NOT_WRITTEN = frozenset(
    {
        ErrorCode.out_of_order_sequence_number,
        ErrorCode.not_enough_replicas,
        ErrorCode.concurrent_transactions,
        ErrorCode.transaction_abortable,
        ErrorCode.topic_authorization_failed,
    }
)
"""Answers, besides those that refuse records, that come before the broker's log is touched."""


class ProduceRequest(NamedTuple):
    """One request to one broker, with one batch of each partition."""

    number: int
    broker: int
    batches: tuple[tuple[Partition, RewrittenBatch], ...]


class ProduceAnswer(NamedTuple):
    """What a broker says of one partition; `append_time_ms` is -1 where the records keep their times. `bad_records`:
    places of refused records in the batch, where it names them (KIP-467); `detail`: its text."""

    code: int
    base_offset: int = -1
    append_time_ms: int = -1
    bad_records: tuple[int, ...] = ()
    detail: str = ""


class ProduceVerdict(NamedTuple):
    """What an answer means for one partition: anything but DONE. `offset` is the first source offset of the batch.
    `suspects`: source offsets of the records of which one at least was refused."""

    at: Partition
    answer_class: AnswerClass
    code: int
    offset: int
    detail: str = ""
    suspects: tuple[int, ...] = ()


@dataclass(slots=True)
class Acknowledged:
    """What the target has of a partition in this transaction: source offsets, and target offsets [first, next)."""

    runs: list[Span] = field(default_factory=list)
    records: int = 0
    first_target: int = -1
    next_target: int = -1
    restamped: bool = False


class _Stage(Enum):
    WAITING = 0
    SENT = 1
    DONE = 2


@dataclass(slots=True)
class _Entry:
    batch: WritableBatch
    sequence: int
    stage: _Stage = _Stage.WAITING
    request: int = 0
    uncertain: bool = False  # it may have been written by a request whose answer doesn't say so
    answer: ProduceAnswer | None = None


@dataclass(slots=True)
class _Lane:
    """One target partition. `order` has what isn't acknowledged, and what is behind that: `bytes` in all, and `sent`
    of them are under way."""

    next_sequence: int = 0
    order: deque[_Entry] = field(default_factory=deque)
    bytes: int = 0
    sent: int = 0
    broker: int = -1
    shared: bool = False
    acknowledged: Acknowledged = field(default_factory=Acknowledged)

    def sendable(self, broker: int) -> _Entry | None:
        """Return the next one for this broker, unless something under way must be waited for."""
        left, found = self.sent, None
        if left and self.broker != broker:
            return None
        for entry in self.order:
            if entry.stage is _Stage.SENT:
                if found is not None:
                    return None
                left -= 1
            elif entry.stage is _Stage.WAITING and found is None:
                found = entry
            if found is not None and not left:
                break
        return found


class ProduceQueue:
    """The batches of one session's open transaction."""

    def __init__(self, in_flight_max: int = IN_FLIGHT_MAX) -> None:
        self._in_flight_max = in_flight_max
        self._lanes: dict[Partition, _Lane] = {}
        self._in_flight: dict[int, ProduceRequest] = {}
        self._producer = ProducerIdentity(-1, -1)
        self._number = 0

    def add(self, at: Partition, batch: WritableBatch, *, shared: bool = False) -> None:
        """Add the next batch of a partition. `shared`: others write there, too, so its batches may stand apart."""
        lane = self._lanes.setdefault(at, _Lane())
        lane.shared = lane.shared or shared
        lane.order.append(_Entry(batch, lane.next_sequence))
        lane.bytes += len(batch.data)
        lane.next_sequence = (lane.next_sequence + batch.records) % SEQUENCES

    def next_request(
        self, broker: int, leads: Collection[Partition], *, bytes_min: int = 0, bytes_max: int = 1 << 20
    ) -> ProduceRequest | None:
        """Make the next request to a broker, of at least one batch; None: there is nothing that can be sent.

        Args:
            broker: whose request it is.
            leads: partitions that it leads, and that are part of the transaction.
            bytes_min: nothing is sent below; 0 where nothing more is to come.
            bytes_max: nothing is added above.
        """
        if self.in_flight(broker) >= self._in_flight_max:
            return None
        chosen: list[tuple[Partition, _Entry]] = []
        size = 0
        for at, lane in self._lanes.items():
            if at in leads and (entry := lane.sendable(broker)) is not None:
                if chosen and size + len(entry.batch.data) > bytes_max:
                    continue
                chosen.append((at, entry))
                size += len(entry.batch.data)
        if not chosen or size < bytes_min:
            return None
        self._number += 1
        batches = []
        for at, entry in chosen:
            entry.stage, entry.request = _Stage.SENT, self._number
            lane = self._lanes[at]
            lane.broker, lane.sent = broker, lane.sent + 1
            batches.append((at, rewritten(entry.batch.header, entry.batch.data, self._producer, entry.sequence)))
        request = ProduceRequest(self._number, broker, tuple(batches))
        self._in_flight[request.number] = request
        return request

    def answered(self, number: int, answers: Mapping[Partition, ProduceAnswer]) -> list[ProduceVerdict]:
        """Take the answer to a request; return what didn't go well. One that was forgotten has none.

        A partition that isn't in the answer is as one whose answer is lost.
        """
        request = self._in_flight.pop(number, None)
        if request is None:
            return []
        found: list[ProduceVerdict] = []
        for at, _ in request.batches:
            verdict = self._take(at, number, answers.get(at))
            if verdict is not None:
                found.append(verdict)
        return found

    def lost(self, number: int) -> list[ProduceVerdict]:
        """Take note that no answer comes to a request: its batches are sent again, and recognised if they are there."""
        return self.answered(number, {})

    def _take(self, at: Partition, number: int, answer: ProduceAnswer | None) -> ProduceVerdict | None:
        lane = self._lanes.get(at)
        place = None if lane is None else next(
            (n for n, each in enumerate(lane.order) if each.request == number and each.stage is _Stage.SENT), None
        )  # fmt: skip
        if lane is None or place is None:
            return None
        entry = lane.order[place]
        entry.stage, first = _Stage.WAITING, entry.batch.runs[0][0]
        lane.sent -= 1
        if answer is None:
            entry.uncertain = True
            return ProduceVerdict(at, AnswerClass.LOOK_UP, ErrorCode.network_exception, first, "no answer")
        class_ = classify_answer(TxnApi.PRODUCE, answer.code)
        if class_ is AnswerClass.DONE:
            if answer.base_offset < 0:  # invariant 6: it is in the log, nobody says where
                entry.uncertain = True
                return ProduceVerdict(at, AnswerClass.NEW_SESSION, answer.code, first, "acknowledged without an offset")
            entry.stage, entry.answer, entry.uncertain = _Stage.DONE, answer, False
            return self._advance(at, lane)
        if class_ is not AnswerClass.REFUSED and answer.code not in _NOT_WRITTEN:
            entry.uncertain = True
        if answer.code == ErrorCode.out_of_order_sequence_number and _follows_another(lane, place):
            class_ = AnswerClass.RETRY  # the one before it isn't there yet
        suspects = _suspects(entry.batch, answer) if class_ is AnswerClass.REFUSED else ()
        return ProduceVerdict(at, class_, answer.code, first, answer.detail, suspects)

    def _advance(self, at: Partition, lane: _Lane) -> ProduceVerdict | None:
        """Count what is acknowledged up to the first that isn't."""
        found = lane.acknowledged
        while lane.order and lane.order[0].stage is _Stage.DONE:
            entry = lane.order[0]
            answer, batch = entry.answer, entry.batch
            assert answer is not None
            if not lane.shared and found.next_target not in (-1, answer.base_offset):
                entry.uncertain = True
                detail = f"acknowledged at offset {answer.base_offset}, and {found.next_target} comes next"
                return ProduceVerdict(at, AnswerClass.REWIND, answer.code, batch.runs[0][0], detail)
            lane.order.popleft()
            lane.bytes -= len(batch.data)
            found.first_target = answer.base_offset if found.first_target < 0 else found.first_target
            found.next_target = answer.base_offset + batch.records
            found.records += batch.records
            found.restamped = found.restamped or answer.append_time_ms >= 0
            add_runs(found.runs, batch.runs)
        return None

    @property
    def acknowledged(self) -> dict[Partition, Acknowledged]:
        """What the target has in this transaction."""
        return {at: lane.acknowledged for at, lane in self._lanes.items() if lane.acknowledged.records}

    @property
    def unacknowledged(self) -> dict[Partition, int]:
        """Bytes that aren't acknowledged, by partition."""
        return {at: lane.bytes for at, lane in self._lanes.items() if lane.order}

    def in_flight(self, broker: int) -> int:
        """Count the requests to a broker that aren't answered."""
        return sum(1 for each in self._in_flight.values() if each.broker == broker)

    @property
    def waiting(self) -> bool:
        """Whether anything isn't acknowledged."""
        return any(lane.order for lane in self._lanes.values())

    @property
    def unsettled(self) -> bool:
        """Whether anything that isn't acknowledged was, or may still be, written."""
        entries = [entry for lane in self._lanes.values() for entry in lane.order]
        return any(entry.stage is _Stage.SENT or entry.uncertain for entry in entries)

    @property
    def sent(self) -> bool:
        """Whether anything of this transaction was sent."""
        lanes = self._lanes.values()
        return any(lane.acknowledged.records or any(entry.request for entry in lane.order) for lane in lanes)

    def next_transaction(self, producer: ProducerIdentity) -> None:
        """Forget the transaction, which has ended. Sequences go on, unless the producer has another identity."""
        if producer != self._producer:
            self._producer, self._lanes = producer, {}
        for at, lane in self._lanes.items():
            rest: Iterable[_Entry] = (entry for entry in lane.order if entry.stage is not _Stage.DONE)
            first = next(iter(rest), None)
            self._lanes[at] = _Lane(lane.next_sequence if first is None else first.sequence)


def _follows_another(lane: _Lane, place: int) -> bool:
    return any(lane.order[before].stage is not _Stage.DONE for before in range(place))


def _suspects(batch: WritableBatch, answer: ProduceAnswer) -> tuple[int, ...]:
    """Return the source offset of the first record that was named, or of all of them."""
    named = min((place for place in answer.bad_records if 0 <= place < batch.records), default=-1)
    left = named
    for first, end in batch.runs if named >= 0 else ():
        if left < end - first:
            return (first + left,)
        left -= end - first
    return tuple(offset for first, end in batch.runs for offset in range(first, end))
