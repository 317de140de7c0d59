"""One transactional producer session: what is sent, and what answers mean. Sans-I/O, for both transaction protocols.

Whoever does the I/O calls the methods and does what they return: sends requests, once more after a pause or after the
coordinator was looked up; aborts; or begins another session. `next_produce` is asked for whenever something may be
sent. Patience is the caller's: there is no clock here. What may happen when is the table of `phases`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from replicator.model.partition import Partition
from replicator.planes.batches.answer_classes import AnswerClass, TxnApi, worst
from replicator.planes.batches.decoding import WritableBatch
from replicator.planes.batches.phases import (
    IN_TRANSACTION,
    IllegalTxnStep,
    TxnAction,
    TxnEvent,
    TxnPhase,
    move,
)
from replicator.planes.batches.produce import (
    IN_FLIGHT_MAX,
    Acknowledged,
    ProduceAnswer,
    ProduceQueue,
    ProduceRequest,
    ProduceVerdict,
)
from replicator.planes.batches.rewrite import ProducerIdentity
from replicator.planes.batches.txn_protocol import TxnProtocol

NOBODY = ProducerIdentity(-1, -1)
_AGAIN = (AnswerClass.RETRY, AnswerClass.LOOK_UP)
_LOST = (AnswerClass.NEW_SESSION, AnswerClass.FENCED, AnswerClass.BUG)
_ENDS = (TxnApi.INIT_PRODUCER_ID, TxnApi.END_TXN)


class TxnRequest(NamedTuple):
    """A request to a coordinator. `part`: which of the offset requests; `commit`: how EndTxn ends it."""

    number: int
    api: TxnApi
    producer: ProducerIdentity
    partitions: tuple[Partition, ...] = ()
    part: int = -1
    commit: bool = False


class SendTxn(NamedTuple):
    """Send a request; `again`: it was sent before, so RETRY is a pause and LOOK_UP finds the coordinator anew."""

    request: TxnRequest
    again: AnswerClass = AnswerClass.DONE


class TxnFailure(NamedTuple):
    """What went wrong, by which answer; `at` are target partitions and `offset` is the source offset, where known.
    `suspects` as of `ProduceVerdict`."""

    answer_class: AnswerClass
    api: TxnApi
    code: int
    at: frozenset[Partition] = frozenset()
    offset: int = -1
    detail: str = ""
    suspects: tuple[int, ...] = ()


class MustAbort(NamedTuple):
    """The open transaction can only be aborted."""

    failure: TxnFailure


class SessionOver(NamedTuple):
    """Nothing more is sent in this session."""

    failure: TxnFailure


TxnEffect = SendTxn | ProduceVerdict | MustAbort | SessionOver
"""What the caller has to do. A ProduceVerdict is one to send again: `next_produce` has it, after a pause or a look."""


class TransactionalSession:
    """One producer session, from InitProducerId on."""

    def __init__(self, protocol: TxnProtocol, in_flight_max: int = IN_FLIGHT_MAX) -> None:
        self.protocol, self.phase, self.producer = protocol, TxnPhase.NEW, NOBODY
        self.failures: list[TxnFailure] = []
        """Of the open transaction, in the order of their answers."""
        self._queue = ProduceQueue(in_flight_max)
        self._outstanding: dict[int, TxnRequest] = {}
        self._number = 0
        self._offset_parts = 0
        self._stored = set[int]()
        self._announced: set[Partition] = set()  # V1: asked for, and not answered
        self._added: set[Partition] = set()  # V1
        self._offsets_added = False  # V1
        self._told = False  # whether a coordinator was sent anything of this transaction

    @property
    def acknowledged(self) -> dict[Partition, Acknowledged]:
        """What the target has in the open transaction."""
        return self._queue.acknowledged

    @property
    def flushed(self) -> bool:
        """Whether everything that was written is acknowledged."""
        return not self._queue.waiting

    @property
    def unacknowledged(self) -> dict[Partition, int]:
        """Bytes that aren't acknowledged, by target partition."""
        return self._queue.unacknowledged

    def in_flight(self, broker: int) -> int:
        """Count the produce requests to a broker that aren't answered."""
        return self._queue.in_flight(broker)

    @property
    def settled(self) -> bool:
        """Whether nothing is under way that may still be written. In V1 an abort before that ends the session: the
        batch would come behind the marker, under an epoch that goes on."""
        return not self._queue.unsettled and all(each.api in _ENDS for each in self._outstanding.values())

    def start(self) -> list[TxnEffect]:
        """Begin with InitProducerId. The plane has read nothing yet (invariant 1)."""
        return self._happen(TxnEvent.START)

    def write(self, at: Partition, batch: WritableBatch, *, shared: bool = False) -> list[TxnEffect]:
        """Take the next batch of a target partition into the transaction; `shared` as of `ProduceQueue.add`."""
        effects = self._happen(TxnEvent.WRITE)
        self._queue.add(at, batch, shared=shared)
        return effects + self._announce({at})

    def next_produce(
        self, broker: int, leads: Collection[Partition], *, bytes_min: int = 0, bytes_max: int = 1 << 20
    ) -> ProduceRequest | None:
        """Make the next request to a broker, see `ProduceQueue.next_request`; None outside a sound transaction."""
        if self.phase not in IN_TRANSACTION:
            return None
        if self.protocol is TxnProtocol.V1:
            leads = self._added.intersection(leads)
        return self._queue.next_request(broker, leads, bytes_min=bytes_min, bytes_max=bytes_max)

    def store(self, parts: int) -> list[TxnEffect]:
        """Commit positions in the transaction, in so many requests: one at least."""
        move(self.phase, TxnEvent.STORE)
        self._offset_parts, self._stored = parts, set()
        return self._happen(TxnEvent.STORE)

    def commit(self) -> list[TxnEffect]:
        """Commit: everything must be acknowledged, positions too. Raises IllegalTxnStep."""
        if not self.flushed:
            raise IllegalTxnStep("commit before all records are acknowledged")
        return self._happen(TxnEvent.COMMIT)

    def abort(self) -> list[TxnEffect]:
        """Abort, whatever is under way. Ends the session where that isn't safe, see `settled`."""
        old = self.protocol is TxnProtocol.V1
        if not (self._told or self._queue.sent):
            return self._happen(TxnEvent.ABORT_UNSENT)
        if old and not self.settled:
            return self._happen(TxnEvent.ABORT_UNSETTLED, TxnFailure(AnswerClass.NEW_SESSION, TxnApi.END_TXN, 0))
        unknown_there = old and not self._added and not self._offsets_added
        return self._happen(TxnEvent.ABORT_UNSENT if unknown_there else TxnEvent.ABORT)

    def produced(self, number: int, answers: Mapping[Partition, ProduceAnswer]) -> list[TxnEffect]:
        """Take the answer to a produce request; one of a transaction that has ended only makes room."""
        effects: list[TxnEffect] = []
        for verdict in self._queue.answered(number, answers):
            if verdict.answer_class in _AGAIN:
                effects += [verdict] if self.phase in IN_TRANSACTION else []
                continue
            failure = TxnFailure(
                verdict.answer_class,
                TxnApi.PRODUCE,
                verdict.code,
                frozenset({verdict.at}),
                verdict.offset,
                verdict.detail,
                verdict.suspects,
            )
            effects += self._failed(failure)
        return effects

    def produce_lost(self, number: int) -> list[TxnEffect]:
        """Take note that a produce request is not answered: the connection broke, or it took too long."""
        return self.produced(number, {})

    def answered(
        self,
        number: int,
        code: int,
        by_partition: Mapping[Partition, int] | None = None,
        producer: ProducerIdentity = NOBODY,
    ) -> list[TxnEffect]:
        """Take a coordinator's answer.

        Args:
            number: of the request. One that isn't waited for any more changes nothing.
            code: of the answer as a whole.
            by_partition: codes of single partitions, where the API has them.
            producer: what InitProducerId or EndTxn gives.
        """
        request = self._outstanding.pop(number, None)
        if request is None:
            return []
        codes = dict(by_partition or {})
        class_ = worst(request.api, [code, *codes.values()])
        if class_ in _AGAIN:
            return self._again(request, class_)
        if class_ is not AnswerClass.DONE:
            bad = {at: each for at, each in codes.items() if worst(request.api, [each]) is class_}
            said = next(iter(bad.values()), code)
            return self._ended_badly(request, TxnFailure(class_, request.api, said, frozenset(bad)))
        return self._done(request, producer)

    def lost(self, number: int) -> list[TxnEffect]:
        """Take note that a coordinator doesn't answer.

        An EndTxn may have been applied, and is never sent again (invariant 6). In V1 a TxnOffsetCommit neither: the
        first one could come late, into the next transaction, and set the position back.
        """
        request = self._outstanding.pop(number, None)
        if request is None:
            return []
        old_offsets = request.api is TxnApi.TXN_OFFSET_COMMIT and self.protocol is TxnProtocol.V1
        if request.api is TxnApi.END_TXN or old_offsets:
            failure = TxnFailure(AnswerClass.NEW_SESSION, request.api, ErrorCode.network_exception, detail="no answer")
            return self._ended_badly(request, failure)
        return self._again(request, AnswerClass.LOOK_UP)

    def _again(self, request: TxnRequest, class_: AnswerClass) -> list[TxnEffect]:
        if request.api not in _ENDS and self.phase not in IN_TRANSACTION:
            return []  # it has failed meanwhile
        self._outstanding[request.number] = request
        return [SendTxn(request, class_)]

    def _ended_badly(self, request: TxnRequest, failure: TxnFailure) -> list[TxnEffect]:
        if request.api not in _ENDS:
            return self._failed(failure)
        lost = failure.answer_class in _LOST
        return self._happen(TxnEvent.END_LOSS if lost else TxnEvent.END_FAILURE, failure)

    def _failed(self, failure: TxnFailure) -> list[TxnEffect]:
        lost = failure.answer_class in _LOST
        return self._happen(TxnEvent.LOSS if lost else TxnEvent.FAILURE, failure)

    def _done(self, request: TxnRequest, producer: ProducerIdentity) -> list[TxnEffect]:
        if request.api is TxnApi.INIT_PRODUCER_ID:
            return self._adopt(TxnEvent.INITIALIZED, request, producer)
        if request.api is TxnApi.END_TXN:
            return self._adopt(TxnEvent.ENDED, request, producer)
        if self.phase not in IN_TRANSACTION and self.phase is not TxnPhase.FAILED:
            return []
        if request.api is TxnApi.ADD_PARTITIONS_TO_TXN:
            self._added |= set(request.partitions)
            return self._announce(set())
        if request.api is TxnApi.ADD_OFFSETS_TO_TXN:
            self._offsets_added = True
            return self._send_offsets() if self.phase is TxnPhase.STORING else []
        self._stored.add(request.part)
        return self._happen(TxnEvent.ALL_STORED) if len(self._stored) == self._offset_parts else []

    def _adopt(self, event: TxnEvent, request: TxnRequest, producer: ProducerIdentity) -> list[TxnEffect]:
        """Go on as `producer`. In V2 each end gives another identity: with the same one a late EndTxn could end the
        next transaction."""
        if event is TxnEvent.ENDED and self.protocol is TxnProtocol.V1:
            producer = self.producer
        same_epoch = event is TxnEvent.ENDED and self.protocol is TxnProtocol.V2 and producer == self.producer
        if producer.producer_id < 0 or producer.epoch < 0 or same_epoch:
            detail = f"gives producer id {producer.producer_id}, epoch {producer.epoch}"
            failure = TxnFailure(AnswerClass.NEW_SESSION, request.api, 0, detail=detail)
            return self._happen(TxnEvent.END_LOSS, failure)
        effects = self._happen(event)
        self.producer = producer
        self._forget()
        return effects

    def _happen(self, event: TxnEvent, failure: TxnFailure | None = None) -> list[TxnEffect]:
        """Go where the table leads, and do what it says there. `failure` is told where the table tells one."""
        self.phase, action = move(self.phase, event)
        if failure is not None:
            self.failures.append(failure)
        if action is TxnAction.SEND_INIT:
            return [self._send(TxnApi.INIT_PRODUCER_ID)]
        if action is TxnAction.SEND_OFFSETS:
            return self._send_offsets()
        if action in (TxnAction.SEND_COMMIT, TxnAction.SEND_ABORT):
            self._outstanding.clear()
            return [self._send(TxnApi.END_TXN, commit=action is TxnAction.SEND_COMMIT)]
        if action is TxnAction.FORGET:
            self._forget()
        if failure is not None and action is TxnAction.TELL_FAILURE:
            return [MustAbort(failure)]
        if failure is not None and action is TxnAction.TELL_OVER:
            self._outstanding.clear()
            return [SessionOver(failure)]
        return []

    def _forget(self) -> None:
        self._queue.next_transaction(self.producer)
        self._outstanding.clear()
        self.failures, self._stored, self._offset_parts = [], set(), 0
        self._announced, self._added, self._offsets_added, self._told = set(), set(), False, False

    def _announce(self, partitions: set[Partition]) -> list[TxnEffect]:
        """Name partitions to the coordinator, in V1; one request at a time has all that came meanwhile."""
        if self.protocol is TxnProtocol.V2:
            return []
        self._announced = (self._announced | partitions) - self._added
        under_way = any(each.api is TxnApi.ADD_PARTITIONS_TO_TXN for each in self._outstanding.values())
        if under_way or not self._announced or self.phase not in IN_TRANSACTION:
            return []
        return [self._send(TxnApi.ADD_PARTITIONS_TO_TXN, tuple(sorted(self._announced)))]

    def _send_offsets(self) -> list[TxnEffect]:
        if self.protocol is TxnProtocol.V1 and not self._offsets_added:
            return [self._send(TxnApi.ADD_OFFSETS_TO_TXN)]
        return [self._send(TxnApi.TXN_OFFSET_COMMIT, part=part) for part in range(self._offset_parts)]

    def _send(
        self, api: TxnApi, partitions: tuple[Partition, ...] = (), *, part: int = -1, commit: bool = False
    ) -> SendTxn:
        self._number += 1
        request = TxnRequest(self._number, api, self.producer, partitions, part, commit)
        self._outstanding[request.number] = request
        self._told = self._told or api not in _ENDS
        return SendTxn(request)
