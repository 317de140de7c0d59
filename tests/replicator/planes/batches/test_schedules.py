"""Random schedules of a session against a model of a cluster: whatever is lost, late or refused, each source record is
committed once, in order, together with the position behind it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

import pytest
from kio.schema.errors import ErrorCode

from kafka_records.batch import read_header, stamp
from kafka_records.records import encode
from replicator.model.partition import Partition
from replicator.planes.batches.answer_classes import AnswerClass, TxnApi
from replicator.planes.batches.decoding import WritableBatch
from replicator.planes.batches.phases import IN_TRANSACTION, TxnPhase
from replicator.planes.batches.produce import ProduceAnswer, ProduceRequest, ProduceVerdict
from replicator.planes.batches.rewrite import ProducerIdentity
from replicator.planes.batches.session import (
    NOBODY,
    MustAbort,
    SendTxn,
    SessionOver,
    TransactionalSession,
    TxnEffect,
    TxnRequest,
)
from replicator.planes.batches.txn_protocol import TxnProtocol
from tests.budget import budget
from tests.replicator.planes.batches.model_broker import OFFSETS, Message, ModelCluster, Network

pytestmark = pytest.mark.tier("default")

ALL = [Partition("t", number) for number in range(3)]
BEFORE_IT = (ErrorCode.not_leader_or_follower, ErrorCode.not_enough_replicas, ErrorCode.concurrent_transactions)
AFTER_IT = (ErrorCode.request_timed_out, ErrorCode.not_enough_replicas_after_append)


def value(at: Partition, offset: int) -> bytes:
    return b"%d/%d" % (at.partition, offset)


def batch(at: Partition, first: int, count: int) -> WritableBatch:
    data = encode([(None, value(at, first + number)) for number in range(count)], 5)
    stamp(data, first, 3)
    return WritableBatch(read_header(data), bytes(data), ((first, first + count),))


class Lane:
    """What a plane does with a session: reads from the committed positions, writes, commits, and begins again."""

    def __init__(self, seed: int, protocol: TxnProtocol, records: int) -> None:
        self.random, self.protocol, self.records = Random(seed), protocol, records
        epoch = self.random.choice([-1, -1, 2**15 - 4])
        self.cluster = ModelCluster(protocol, ALL, epoch)
        self.network = Network(self.random)
        self.seen: Counter[str] = Counter()
        self.calm = False
        self.leaders = dict.fromkeys(ALL, 0)
        self.begin()

    def begin(self) -> None:
        self.session = TransactionalSession(self.protocol)
        self.read: dict[Partition, int] = {}
        self.must_abort = False
        self.do(self.session, self.session.start())

    def rewind(self) -> None:
        """Positions are stable: nothing is decided and not yet applied."""
        self.cluster.settle()
        self.read = dict(self.cluster.positions)
        self.must_abort = False

    def do(self, session: TransactionalSession, effects: list[TxnEffect]) -> None:
        for effect in effects:
            if session is not self.session:
                return
            if isinstance(effect, SendTxn):
                self.send(session, effect.request)
            elif isinstance(effect, MustAbort):
                self.seen[f"abort: {effect.failure.answer_class.name}"] += 1
                self.must_abort = True
            elif isinstance(effect, SessionOver):
                self.seen[f"over: {effect.failure.answer_class.name}"] += 1
                assert session.phase is TxnPhase.OVER
                self.begin()
            else:
                assert isinstance(effect, ProduceVerdict)
                self.seen[f"again: {effect.answer_class.name}"] += 1

    def send(self, session: TransactionalSession, request: TxnRequest) -> None:
        positions = {at: offset for at, offset in self.read.items() if at.partition % 2 == request.part % 2}

        def handle() -> Callable[[], None]:
            code, producer = self.coordinate(request, positions)
            return lambda: self.do(session, session.answered(request.number, code, producer=producer))

        def lost() -> None:
            self.do(session, session.lost(request.number))

        late = self.protocol is TxnProtocol.V2 or request.api is not TxnApi.END_TXN  # V1: the hole that KIP-890 closes
        self.network.send("coordinator", Message(handle, lost, late=late))

    def coordinate(self, request: TxnRequest, positions: dict[Partition, int]) -> tuple[int, ProducerIdentity]:
        cluster, api, upset = self.cluster, request.api, not self.calm and self.random.random() < 0.08
        if upset:
            codes = [ErrorCode.coordinator_load_in_progress, ErrorCode.not_coordinator]
            codes += [ErrorCode.transaction_abortable] if api is not TxnApi.INIT_PRODUCER_ID else []
            said = self.random.choice(codes)
            if said is not ErrorCode.not_coordinator or self.random.random() < 0.5:
                return said, NOBODY
        if api is TxnApi.INIT_PRODUCER_ID:
            code, producer = cluster.init()
        elif api is TxnApi.END_TXN:
            code, producer = cluster.end(request.producer, request.commit)
        elif api is TxnApi.TXN_OFFSET_COMMIT:
            code, producer = cluster.store(request.producer, positions), NOBODY
        else:
            partitions = [OFFSETS] if api is TxnApi.ADD_OFFSETS_TO_TXN else list(request.partitions)
            code, producer = cluster.add(request.producer, partitions), NOBODY
        return (ErrorCode.not_coordinator, NOBODY) if upset else (code, producer)

    def send_produce(self, session: TransactionalSession, request: ProduceRequest) -> None:
        def handle() -> Callable[[], None]:
            answers = self.produce(request)
            return lambda: self.do(session, session.produced(request.number, answers))

        def lost() -> None:
            self.do(session, session.produce_lost(request.number))

        self.network.send(f"broker {request.broker}", Message(handle, lost))

    def produce(self, request: ProduceRequest) -> dict[Partition, ProduceAnswer]:
        answers: dict[Partition, ProduceAnswer] = {}
        for at, data in request.batches:
            luck = 1.0 if self.calm else self.random.random()
            if luck < 0.06:
                answers[at] = ProduceAnswer(self.random.choice(BEFORE_IT))
                continue
            answers |= self.cluster.produce([(at, data)])
            if luck < 0.12 and answers[at].code == ErrorCode.none:
                answers[at] = ProduceAnswer(self.random.choice(AFTER_IT))
        return answers

    def step(self) -> None:
        """One thing that the plane wants, and some that the network does."""
        session, random = self.session, self.random
        if random.random() < 0.05 and not self.calm:
            self.leaders[random.choice(ALL)] = random.randrange(2)
        if random.random() < 0.4:
            self.cluster.settle()
        if session.phase is TxnPhase.READY and not self.read:
            self.rewind()
        elif session.phase in (*IN_TRANSACTION, TxnPhase.FAILED) and (
            self.must_abort or (not self.calm and random.random() < 0.02)
        ):
            patient = self.protocol is TxnProtocol.V1 and random.random() < 0.8 and not session.settled
            if not (patient and self.network.busy):
                self.read = {}
                self.do(session, session.abort())
        elif session.phase in (TxnPhase.READY, TxnPhase.OPEN):
            self.write_or_store(session)
        elif session.phase is TxnPhase.STORED and session.flushed:
            self.do(session, session.commit())
        for broker in (0, 1):
            leads = [at for at in ALL if self.leaders[at] == broker]
            request = self.session.next_produce(broker, leads, bytes_max=random.choice([1, 1 << 20]))
            if request is not None:
                self.send_produce(self.session, request)
        for _ in range(random.randrange(4)):
            self.network.step(calm=self.calm)
        self.check()

    def write_or_store(self, session: TransactionalSession) -> None:
        left = [at for at in ALL if self.read[at] < self.records]
        if left and self.random.random() < 0.85:
            at = self.random.choice(left)
            count = min(self.random.randint(1, 3), self.records - self.read[at])
            made = batch(at, self.read[at], count)
            self.read[at] += count
            self.do(session, session.write(at, made))
        elif session.phase is TxnPhase.OPEN:
            self.do(session, session.store(2))

    def check(self) -> None:
        """The oracle, at every moment at which no decision waits for its markers."""
        for at, partition in self.cluster.partitions.items():
            committed = [content for _, content in partition.committed]
            assert committed == [value(at, offset) for offset in range(self.cluster.positions[at])]

    def run(self) -> None:
        for _ in range(150):
            self.step()
        self.calm = True
        for _ in range(3_000):
            if all(self.cluster.positions[at] == self.records for at in ALL):
                return
            self.step()
        raise AssertionError(f"no progress: {self.session.phase}, {self.cluster.positions}")


@pytest.mark.parametrize("protocol", TxnProtocol)
def test_each_record_is_committed_once_whatever_happens(protocol: TxnProtocol) -> None:
    seen: Counter[str] = Counter()
    for seed in range(budget(40, 20_000)):
        lane = Lane(seed, protocol, records=25)
        try:
            lane.run()
        except BaseException as error:
            error.add_note(f"seed {seed}, {protocol.name}")
            raise
        seen += lane.seen
    assert {"abort: REWIND", "over: NEW_SESSION", "again: RETRY", "again: LOOK_UP"} <= seen.keys()
    assert AnswerClass.BUG.name not in " ".join(seen)
