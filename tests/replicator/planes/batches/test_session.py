"""A session step by step: what is sent in both protocols, and what each kind of answer leads to."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from kafka_records.batch import read_header, stamp
from kafka_records.records import encode
from replicator.model.partition import Partition
from replicator.planes.batches.answer_classes import AnswerClass, TxnApi
from replicator.planes.batches.decoding import WritableBatch
from replicator.planes.batches.phases import IllegalTxnStep, TxnPhase
from replicator.planes.batches.produce import ProduceAnswer, ProduceQueue, ProduceRequest, ProduceVerdict
from replicator.planes.batches.rewrite import ProducerIdentity
from replicator.planes.batches.session import MustAbort, SendTxn, SessionOver, TransactionalSession, TxnEffect
from replicator.planes.batches.txn_protocol import TxnProtocol

pytestmark = pytest.mark.tier("default")

A, B = Partition("a", 0), Partition("b", 0)
FIRST, SECOND = ProducerIdentity(5, 0), ProducerIdentity(5, 1)
V1, V2 = TxnProtocol.V1, TxnProtocol.V2


def batch(first: int = 10, count: int = 2) -> WritableBatch:
    data = encode([(None, b"v")] * count, 5)
    stamp(data, first, 3)
    return WritableBatch(read_header(data), bytes(data), ((first, first + count),))


def sent(effects: list[TxnEffect]) -> list[tuple[int, TxnApi]]:
    """Numbers and APIs of what is to be sent, and nothing else."""
    assert all(isinstance(effect, SendTxn) for effect in effects)
    return [(effect.request.number, effect.request.api) for effect in effects if isinstance(effect, SendTxn)]


def ready(protocol: TxnProtocol) -> TransactionalSession:
    session = TransactionalSession(protocol)
    ((number, api),) = sent(session.start())
    assert api is TxnApi.INIT_PRODUCER_ID
    assert session.answered(number, 0, producer=FIRST) == []
    assert (session.phase, session.producer) == (TxnPhase.READY, FIRST)
    return session


def written(session: TransactionalSession, first: int = 10, base_offset: int = 0) -> None:
    """One batch of `A`, acknowledged."""
    for number, api in sent(session.write(A, batch(first))):
        assert api is TxnApi.ADD_PARTITIONS_TO_TXN
        assert session.next_produce(1, {A}) is None
        session.answered(number, 0, {A: 0})
    assert session.produced(produce(session).number, {A: ProduceAnswer(0, base_offset)}) == []


def produce(session: TransactionalSession | ProduceQueue, *leads: Partition, broker: int = 1) -> ProduceRequest:
    asked = session.next_produce if isinstance(session, TransactionalSession) else session.next_request
    request = asked(broker, leads or (A,))
    assert request is not None
    return request


def sequences(request: ProduceRequest) -> list[int]:
    return [read_header(batch.head).base_sequence for _, batch in request.batches]


def stored(session: TransactionalSession) -> None:
    asked = sent(session.store(2))
    if session.protocol is V1:
        ((number, api),) = asked
        assert api is TxnApi.ADD_OFFSETS_TO_TXN
        asked = sent(session.answered(number, 0))
    assert [api for _, api in asked] == [TxnApi.TXN_OFFSET_COMMIT] * 2
    for number, _ in asked:
        assert session.phase is TxnPhase.STORING
        assert session.answered(number, 0, {A: 0}) == []
    assert session.phase is TxnPhase.STORED


def ended(session: TransactionalSession, effects: list[TxnEffect], producer: ProducerIdentity) -> list[TxnEffect]:
    ((number, api),) = sent(effects)
    assert api is TxnApi.END_TXN
    return session.answered(number, 0, producer=producer)


@pytest.mark.parametrize(("protocol", "second", "sequence"), [(V1, FIRST, 2), (V2, SECOND, 0)])
def test_two_transactions(protocol: TxnProtocol, second: ProducerIdentity, sequence: int) -> None:
    session = ready(protocol)
    written(session)
    assert session.acknowledged[A].runs == [(10, 12)]
    assert (session.acknowledged[A].first_target, session.acknowledged[A].next_target) == (0, 2)
    stored(session)
    assert ended(session, session.commit(), second) == []
    assert (session.phase, session.producer, session.acknowledged) == (TxnPhase.READY, second, {})
    session.write(A, batch(12))
    if protocol is V1:
        session.answered(7, 0, {A: 0})
    request = produce(session)
    assert sequences(request) == [sequence]
    assert read_header(request.batches[0][1].head).producer_epoch == second.epoch


def over(effects: list[TxnEffect]) -> AnswerClass:
    (effect,) = effects
    assert isinstance(effect, SessionOver)
    return effect.failure.answer_class


@pytest.mark.parametrize("protocol", TxnProtocol)
@pytest.mark.parametrize("commit", [True, False])
def test_an_end_without_an_answer_is_never_sent_again(protocol: TxnProtocol, commit: bool) -> None:
    session = ready(protocol)
    written(session)
    stored(session)
    ((number, _),) = sent(session.commit() if commit else session.abort())
    assert over(session.lost(number)) is AnswerClass.NEW_SESSION
    assert session.phase is TxnPhase.OVER
    assert session.answered(number, 0, producer=SECOND) == []
    with pytest.raises(IllegalTxnStep):
        session.start()


def test_an_end_that_gives_no_new_identity_in_the_second_protocol_is_not_trusted() -> None:
    for given in (FIRST, ProducerIdentity(-1, -1)):
        session = ready(V2)
        written(session)
        stored(session)
        assert over(ended(session, session.commit(), given)) is AnswerClass.NEW_SESSION


def test_nothing_is_committed_before_all_is_acknowledged() -> None:
    session = ready(V2)
    session.write(A, batch())
    stored(session)
    with pytest.raises(IllegalTxnStep, match="acknowledged"):
        session.commit()
    request = produce(session)
    with pytest.raises(IllegalTxnStep, match="acknowledged"):
        session.commit()
    session.produced(request.number, {A: ProduceAnswer(0, 0)})
    assert sent(session.commit())[0][1] is TxnApi.END_TXN


def test_an_offset_commit_without_an_answer() -> None:
    """In the first protocol it could come into the next transaction."""
    for protocol in TxnProtocol:
        session = ready(protocol)
        (number, _), *_ = sent(session.store(1))
        if protocol is V1:
            ((number, api),) = sent(session.answered(number, 0))
            assert api is TxnApi.TXN_OFFSET_COMMIT
            assert over(session.lost(number)) is AnswerClass.NEW_SESSION
        else:
            (effect,) = session.lost(number)
            assert isinstance(effect, SendTxn)
            assert (effect.again, effect.request.number) == (AnswerClass.LOOK_UP, number)


def failed(session: TransactionalSession, code: int) -> None:
    session.write(A, batch())
    if session.protocol is V1:
        session.answered(2, 0, {A: 0})
    (effect,) = session.produced(produce(session).number, {A: ProduceAnswer(code)})
    assert isinstance(effect, MustAbort)
    assert (effect.failure.at, effect.failure.offset) == ({A}, 10)


def test_an_abort_in_the_first_protocol_goes_on_only_when_nothing_may_come_late() -> None:
    session = ready(V1)
    failed(session, ErrorCode.message_too_large)
    assert session.settled
    assert ended(session, session.abort(), FIRST) == []
    session.write(A, batch())
    session.answered(4, 0, {A: 0})
    assert sequences(produce(session)) == [0]  # the refused batch has taken none
    assert not session.settled
    assert over(session.abort()) is AnswerClass.NEW_SESSION


def test_after_a_failure_nothing_is_sent_again() -> None:
    session = ready(V1)
    session.write(A, batch())
    session.answered(2, 0, {A: 0})
    request = produce(session)
    session.write(A, batch(12))
    ((number, _),) = sent(session.write(B, batch()))
    session.produced(request.number, {A: ProduceAnswer(ErrorCode.message_too_large)})
    assert not session.settled
    assert session.answered(number, ErrorCode.concurrent_transactions) == []
    assert session.settled
    assert session.next_produce(1, {A, B}) is None


@pytest.mark.parametrize("code", [ErrorCode.request_timed_out, ErrorCode.not_enough_replicas_after_append, None])
def test_what_may_have_been_written_is_not_settled_in_the_first_protocol(code: int | None) -> None:
    """Its sequences would be taken again, and the broker would answer with the offset of the aborted batch."""
    session = ready(V1)
    session.write(A, batch())
    session.answered(2, 0, {A: 0})
    for said in (code, ErrorCode.not_enough_replicas):
        answers = {} if said is None else {A: ProduceAnswer(said)}
        (effect,) = session.produced(produce(session).number, answers)
        assert isinstance(effect, ProduceVerdict)
        assert not session.settled
    assert over(session.abort()) is AnswerClass.NEW_SESSION


def test_an_abort_in_the_second_protocol_needs_no_patience() -> None:
    session = ready(V2)
    session.write(A, batch())
    request = produce(session)
    assert ended(session, session.abort(), SECOND) == []
    assert session.produced(request.number, {A: ProduceAnswer(ErrorCode.invalid_producer_epoch)}) == []
    assert session.phase is TxnPhase.READY
    session.write(A, batch())
    assert sequences(produce(session)) == [0]


def test_what_was_never_sent_needs_no_end() -> None:
    session = ready(V2)
    session.write(A, batch())
    assert (session.abort(), session.phase) == ([], TxnPhase.READY)
    session.write(A, batch())
    assert sequences(produce(session)) == [0]


def test_a_partition_that_may_not_be_written_is_named_and_nothing_is_ended_that_never_began() -> None:
    session = ready(V1)
    ((number, _),) = sent(session.write(A, batch()))
    assert session.write(B, batch()) == []  # one request at a time
    codes = {A: ErrorCode.topic_authorization_failed, B: ErrorCode.operation_not_attempted}
    (effect,) = session.answered(number, 0, codes)
    assert isinstance(effect, MustAbort)
    assert (effect.failure.answer_class, effect.failure.at) == (AnswerClass.NOT_ALLOWED, {A})
    assert (session.abort(), session.phase) == ([], TxnPhase.READY)


@pytest.mark.parametrize(
    ("code", "class_"),
    [
        (ErrorCode.invalid_producer_epoch, AnswerClass.FENCED),
        (ErrorCode.duplicate_sequence_number, AnswerClass.NEW_SESSION),
        (ErrorCode.invalid_request, AnswerClass.BUG),
        (ErrorCode.none, AnswerClass.NEW_SESSION),  # acknowledged without an offset
    ],
)
def test_what_ends_a_session(code: int, class_: AnswerClass) -> None:
    session = ready(V2)
    session.write(A, batch())
    assert over(session.produced(produce(session).number, {A: ProduceAnswer(code)})) is class_


def test_a_missing_right_to_the_transactional_id_ends_a_session_before_it_began() -> None:
    session = TransactionalSession(V2)
    ((number, _),) = sent(session.start())
    assert sent(session.answered(number, ErrorCode.concurrent_transactions)) == [(number, TxnApi.INIT_PRODUCER_ID)]
    assert sent(session.lost(number)) == [(number, TxnApi.INIT_PRODUCER_ID)]
    code = ErrorCode.transactional_id_authorization_failed
    assert over(session.answered(number, code)) is AnswerClass.NOT_ALLOWED


def queue(*first_offsets: int, at: Partition = A) -> ProduceQueue:
    made = ProduceQueue()
    made.next_transaction(FIRST)
    for first in first_offsets:
        made.add(at, batch(first))
    return made


def test_five_requests_are_in_flight_to_a_broker() -> None:
    made = queue(*range(0, 20, 2))
    requests = [produce(made) for _ in range(5)]
    assert [sequences(each) for each in requests] == [[0], [2], [4], [6], [8]]
    assert made.next_request(1, {A}) is None
    made.answered(requests[0].number, {A: ProduceAnswer(0, 100)})
    assert sequences(produce(made)) == [10]
    made.add(B, batch())
    assert [at for at, _ in produce(made, B, broker=2).batches] == [B]


def test_a_request_has_one_batch_of_each_partition_and_waits_for_enough() -> None:
    made = queue(0, 2)
    made.add(B, batch())
    size = len(batch().data)
    assert made.next_request(1, {A, B}, bytes_min=3 * size) is None
    assert [at for at, _ in produce(made, A, B).batches] == [A, B]
    assert made.next_request(1, {A, B}, bytes_min=size, bytes_max=1) is not None


def test_what_is_sent_again_goes_first_and_alone() -> None:
    made = queue(0, 2, 4)
    first, second = produce(made), produce(made)
    (verdict,) = made.answered(first.number, {A: ProduceAnswer(ErrorCode.not_leader_or_follower)})
    assert verdict == ProduceVerdict(A, AnswerClass.LOOK_UP, ErrorCode.not_leader_or_follower, 0)
    assert made.next_request(1, {A}) is None  # the second is under way
    assert made.next_request(2, {A}) is None
    (verdict,) = made.answered(second.number, {A: ProduceAnswer(ErrorCode.out_of_order_sequence_number)})
    assert verdict.answer_class is AnswerClass.RETRY
    assert [sequences(produce(made, broker=2))[0] for _ in range(3)] == [0, 2, 4]


def test_a_gap_before_the_first_is_not_sent_again() -> None:
    made = queue(0)
    (verdict,) = made.answered(produce(made).number, {A: ProduceAnswer(ErrorCode.out_of_order_sequence_number)})
    assert verdict.answer_class is AnswerClass.REWIND


def test_a_partition_under_way_to_one_broker_is_not_sent_to_another() -> None:
    made = queue(0, 2)
    produce(made)
    assert made.next_request(2, {A}) is None


def test_acknowledgements_count_in_order_and_must_be_contiguous() -> None:
    made = queue(0, 2, 4)
    requests = [produce(made) for _ in range(3)]
    assert made.lost(requests[0].number)[0].answer_class is AnswerClass.LOOK_UP
    assert made.answered(requests[1].number, {A: ProduceAnswer(0, 52, append_time_ms=9)}) == []
    assert made.acknowledged == {}
    made.answered(requests[2].number, {A: ProduceAnswer(0, 90)})
    (verdict,) = made.answered(produce(made).number, {A: ProduceAnswer(0, 50)})
    assert (verdict.answer_class, verdict.offset) == (AnswerClass.REWIND, 4)
    assert (made.acknowledged[A].runs, made.acknowledged[A].restamped) == ([(0, 4)], True)
    assert made.unsettled


def test_sequences_wrap_to_zero() -> None:
    made = queue()
    made._lanes.clear()
    made.add(A, batch())
    made._lanes[A].next_sequence = 2**31 - 1
    made.add(A, batch())
    made.add(A, batch())
    assert [sequences(produce(made))[0] for _ in range(3)] == [0, 2**31 - 1, 1]
