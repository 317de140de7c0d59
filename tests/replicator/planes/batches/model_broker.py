"""A cluster in memory, over the embedded broker's own rules for producers and transactions, and a network that loses,
repeats and delays. Its oracle: what is committed of each partition is what its committed position says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from kio.schema.errors import ErrorCode

from embedded_broker.state import transactions
from embedded_broker.state.producers import Duplicate, PartitionProducers, RefuseBatch
from embedded_broker.state.transactions import RefuseRequest, Step, Transaction
from kafka_records.batch import check_crc, read_header, stamp
from kafka_records.control import marker
from kafka_records.records import decode
from replicator.model.partition import Partition
from replicator.planes.batches.produce import ProduceAnswer
from replicator.planes.batches.rewrite import ProducerIdentity, RewrittenBatch
from replicator.planes.batches.txn_protocol import TxnProtocol

OFFSETS = Partition("__consumer_offsets", 0)
NONE, RETRY = ErrorCode.none, ErrorCode.concurrent_transactions


@dataclass
class ModelPartition:
    """`committed` is what a read_committed reader gets."""

    producers: PartitionProducers = field(default_factory=PartitionProducers)
    end: int = 0
    open: dict[int, list[tuple[int, bytes | None]]] = field(default_factory=dict)
    committed: list[tuple[int, bytes | None]] = field(default_factory=list)

    def append(self, data: bytes | bytearray, commit: bool | None = None) -> int:
        """Append a batch, or the marker of a transaction that ends."""
        made, base = bytearray(data), self.end
        stamp(made, base, 0)
        header = read_header(made)
        self.producers.apply(header, commit)
        self.end = header.last_offset + 1
        if commit is None:
            self.open.setdefault(header.producer_id, []).extend((each.offset, each.value) for each in decode(made))
        else:
            ended = self.open.pop(header.producer_id, [])
            self.committed = sorted(self.committed + (ended if commit else []))
        return base


class ModelCluster:
    """One transactional id, its coordinator, the position group and the partitions."""

    def __init__(self, protocol: TxnProtocol, at: Sequence[Partition], epoch: int = -1) -> None:
        self.version = int(protocol)
        self.partitions = {each: ModelPartition() for each in at}
        self.positions = dict.fromkeys(at, 0)
        self._pending: dict[int, dict[Partition, int]] = {}
        self._ids = 100
        self.transaction = Transaction("flow.1.0", 100, epoch, 60_000)

    def _next_id(self) -> int:
        self._ids += 1
        return self._ids

    def _take(self, decision: transactions.Decision) -> int:
        if isinstance(decision, RefuseRequest):
            return decision.error_code
        if isinstance(decision, Step):
            self.transaction = decision.next
        return NONE

    def settle(self) -> None:
        """Write the markers of a transaction that is decided, and apply its positions."""
        prepared = self.transaction
        if prepared.state not in transactions.PREPARED:
            return
        commit = prepared.state is transactions.TxnState.PREPARE_COMMIT
        for topic, number in prepared.partitions:
            at = Partition(topic, number)
            if at == OFFSETS:
                positions = self._pending.pop(prepared.producer_id, {})
                self.positions |= positions if commit else {}
                continue
            data = marker(prepared.producer_id, prepared.epoch, commit=commit, timestamp_ms=0)
            partition = self.partitions[at]
            assert partition.producers.check_marker(prepared.producer_id, prepared.epoch) == NONE
            partition.append(data, commit)
        self.transaction = transactions.complete(prepared, 0)

    def init(self) -> tuple[int, ProducerIdentity]:
        """InitProducerId of a new session."""
        decision = transactions.init_producer_id(self.transaction, None, 60_000, 0, self._next_id)
        code = self._take(decision)
        prepared = self.transaction.state in transactions.PREPARED
        return (RETRY if prepared else code), ProducerIdentity(self.transaction.producer_id, self.transaction.epoch)

    def add(self, producer: ProducerIdentity, partitions: Sequence[Partition]) -> int:
        """AddPartitionsToTxn, AddOffsetsToTxn, and what the second protocol does by writing."""
        wanted = frozenset((each.topic, each.partition) for each in partitions)
        return self._take(transactions.add_partitions(self.transaction, *producer, wanted, 0, self.version))

    def _belongs(self, producer: ProducerIdentity, at: Partition) -> int:
        if self.version == 2:
            return self.add(producer, [at])
        return transactions.verify(self.transaction, *producer, (at.topic, at.partition))

    def produce(self, batches: Sequence[tuple[Partition, RewrittenBatch]]) -> dict[Partition, ProduceAnswer]:
        """Produce: verified by its coordinator unless the transaction is open there already (KIP-890)."""
        return {at: self._append(self.partitions[at], at, b"".join(batch)) for at, batch in batches}

    def _append(self, partition: ModelPartition, at: Partition, data: bytes) -> ProduceAnswer:
        check_crc(data)
        header = read_header(data)
        producer = ProducerIdentity(header.producer_id, header.producer_epoch)
        if not partition.producers.has_open(*producer):
            code = self._belongs(producer, at)
            if code == ErrorCode.producer_fenced:
                code = ErrorCode.invalid_producer_epoch
            if code:
                return ProduceAnswer(code)
        verdict = partition.producers.check(header, 0)
        if isinstance(verdict, Duplicate):
            return ProduceAnswer(NONE, verdict.base_offset)
        if isinstance(verdict, RefuseBatch):
            return ProduceAnswer(verdict.error_code)
        return ProduceAnswer(NONE, partition.append(data))

    def store(self, producer: ProducerIdentity, positions: Mapping[Partition, int]) -> int:
        """TxnOffsetCommit."""
        code = self._belongs(producer, OFFSETS)
        if not code:
            self._pending.setdefault(producer.producer_id, {}).update(positions)
        return code

    def end(self, producer: ProducerIdentity, commit: bool) -> tuple[int, ProducerIdentity]:
        """EndTxn: answered before the markers are written."""
        if self.version == 2:
            decision = transactions.end_v2(self.transaction, *producer, commit, 0, self._next_id)
        else:
            decision = transactions.end(self.transaction, *producer, commit, 0)
        code = self._take(decision)
        return code, producer if code else ProducerIdentity(*transactions.identity_after_end(self.transaction))


@dataclass
class Message:
    """A request under way. `handle` does it and returns how the answer is taken; `lost` is what is done without one."""

    handle: Callable[[], Callable[[], None]]
    lost: Callable[[], None]
    answer: Callable[[], None] | None = None
    late: bool = True  # whether it may arrive after it was given up


class Network:
    """Connections, each of which keeps its order until it breaks."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._connections: dict[str, list[Message]] = {}
        self._late: list[list[Message]] = []

    def send(self, to: str, message: Message) -> None:
        """Send a request on the connection to a broker."""
        self._connections.setdefault(to, []).append(message)

    @property
    def busy(self) -> bool:
        """Whether any answer is waited for."""
        return any(self._connections.values())

    def step(self, *, calm: bool) -> None:
        """Do one thing: a request arrives, an answer does, a connection breaks, or something late arrives."""
        random = self._random
        if self._late and (calm or random.random() < 0.3):
            queue = random.choice(self._late)
            queue.pop(0).handle()
            self._late = [each for each in self._late if each]
            return
        names = sorted(name for name, queue in self._connections.items() if queue)
        if not names:
            return
        queue = self._connections[random.choice(names)]
        if not calm and random.random() < 0.06:
            self._break(queue)
            return
        waiting = [each for each in queue if each.answer is None]
        if waiting and (queue[0].answer is None or random.random() < 0.5):
            waiting[0].answer = waiting[0].handle()
            return
        answer = queue.pop(0).answer
        assert answer is not None
        answer()

    def _break(self, queue: list[Message]) -> None:
        broken, queue[:] = list(queue), []
        unheard = [each for each in broken if each.answer is None]
        arrive = self._random.choice(["never", "now", "late"])
        if arrive == "now":
            for each in unheard:
                each.handle()
        elif arrive == "late" and (late := [each for each in unheard if each.late]):
            self._late.append(late)
        for each in broken:
            each.lost()
