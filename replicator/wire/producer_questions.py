"""Asks the brokers of one cluster about producers and transactions: who writes where, under which transactional id
(KIP-664). Used by `inspect.coupled_topics` and `group_sync.hold_topics`.

Leaders and coordinators are asked at the same time. What one of them doesn't say, because it is dead or slow or a right
is missing, is an error of its partitions or of its transactional ids; the others' answers are there all the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID

from replicator.coupling.evidence import ActiveProducer, SeenTransaction
from replicator.kafka import failures
from replicator.model.errors import ReplicatorError, Retriable, Unreachable
from replicator.model.partition import Partition
from replicator.model.transactions import IDLE
from replicator.wire import describe_transactions, metadata_response, protocol
from replicator.wire.any_broker import body_at
from replicator.wire.broker_questions import AskedOnce, BrokerQuestions
from replicator.wire.connection import Address, Connection, Fields
from replicator.wire.metadata_request import metadata_request
from replicator.wire.protocol import Exchange, made
from replicator.wire.response_limits import BadResponse

ASK_S = 5.0
DESCRIBED_AT_ONCE = 100
"""Partitions, or transactional ids, in one request: a response must stay below `response_limits.ITEMS_MAX`."""
_ID_AUTHORIZATION_FAILED, _ID_NOT_FOUND = 53, 105


class LedTopic(NamedTuple):
    """A topic: its id, and the leader of each partition; None: it has none now. `epochs`: of the leaders; -1: not
    told."""

    topic_id: UUID
    leaders: Mapping[int, Address | None]
    epochs: Mapping[int, int] = MappingProxyType({})


class ActiveProducers(NamedTuple):
    """Producers by partition, or why they aren't known."""

    found: dict[Partition, Sequence[ActiveProducer]]
    failed: dict[Partition, ReplicatorError]


class TwoPhase(NamedTuple):
    """An open transaction that never times out (KIP-939). `start_ms`: when it began."""

    transactional_id: str
    producer_id: int
    start_ms: int


class TransactionalIds(NamedTuple):
    """Transactional ids that the user may describe, with their producer ids; and the transactions of those that have
    one; those of two-phase commits besides. `unanswered`: why some aren't known."""

    producer_ids: dict[str, int]
    transactions: list[SeenTransaction]
    unanswered: tuple[ReplicatorError, ...] = ()
    two_phase: tuple[TwoPhase, ...] = ()


class ProducerQuestions(BrokerQuestions):
    """Of one cluster. Used by one thread."""

    def topics(self, names: Collection[str] | None) -> dict[str, LedTopic | ReplicatorError]:
        """Ask who leads topics; None: all that the user may describe. Raises Unreachable, Unsupported."""
        wanted = None if names is None else sorted(names)
        question = self._question(lambda connection: metadata_request(connection, self._client_id, wanted), ASK_S)
        assert question.answer is not None
        assert question.connection is not None
        connection = question.connection
        version = connection.version("metadata", metadata_response.VERSIONS[1])
        try:
            at = body_at(question.answer, connection)
            metadata = metadata_response.read(question.answer, at, version, leaders=True)
        except BadResponse as bad:
            raise Unreachable(f"{connection.where}: answers with {bad}") from bad
        self._brokers.learn(list(metadata.brokers.values()))
        found: dict[str, LedTopic | ReplicatorError] = {}
        for topic in metadata.topics:
            if topic.error:
                doing, right = f"describe topic {topic.name!r}", f"Describe on topic {topic.name!r}"
                found[topic.name] = failures.classify_code(topic.error, self._cluster, doing, right)
            else:
                leaders = {number: metadata.brokers.get(leader) for number, (_, leader, _) in topic.leaders.items()}
                epochs = {number: epoch for number, (_, _, epoch) in topic.leaders.items()}
                found[topic.name] = LedTopic(UUID(bytes=topic.topic_id), leaders, epochs)
        return found

    def producers(self, topics: Mapping[str, LedTopic]) -> ActiveProducers:
        """Ask who writes to the partitions of these topics, or did until the cluster forgot it
        (`producer.id.expiration.ms` after the last record)."""
        found = ActiveProducers({}, {})
        parts: dict[Address, list[list[Partition]]] = {}
        asked: dict[Address, list[AskedOnce]] = {}
        for address, ats in self.by_leader(topics, found.failed).items():
            parts[address] = [ats[at : at + DESCRIBED_AT_ONCE] for at in range(0, len(ats), DESCRIBED_AT_ONCE)]
            asked[address] = [self.asked("describe_producers", _producer_fields(part)) for part in parts[address]]
        for address, answers in self.ask_each(asked):
            if isinstance(answers, ReplicatorError):
                found.failed.update({at: answers for part in parts[address] for at in part})
                continue
            for part, one, data in zip(parts[address], asked[address], answers, strict=True):
                self._take_producers(part, one, data, found)
        return found

    def _take_producers(self, part: Sequence[Partition], one: AskedOnce, data: bytes, found: ActiveProducers) -> None:
        try:
            answer = one.read(data)
        except ReplicatorError as error:
            found.failed.update(dict.fromkeys(part, error))
            return
        told = {
            Partition(topic.name, each.partition_index): each for topic in answer.topics for each in topic.partitions
        }
        for at in part:
            each, doing = told.get(at), f"describe the producers of {at}"
            if each is None:
                found.failed[at] = Retriable(f"cluster {self._cluster!r}: cannot {doing}: its leader leaves it out")
            elif each.error_code:
                right = f"Read on topic {at.topic!r}"
                found.failed[at] = failures.classify_code(int(each.error_code), self._cluster, doing, right)
            else:
                found.found[at] = [_active(producer) for producer in each.active_producers]

    def may_describe(self, transactional_id: str) -> bool:
        """Return whether the user may describe a transactional id, in use or not. Any broker says so: it checks that
        before it looks for the id, and makes no topic of transactions for it. Raises Unreachable, Unsupported."""

        def request(connection: Connection) -> bytes:
            exchange = protocol.exchange("describe_transactions", connection.version("describe_transactions"))
            return exchange.write(0, self._client_id, {"transactional_ids": (transactional_id,)})

        question = self._question(request, ASK_S)
        assert question.answer is not None
        try:
            error, _ = describe_transactions.read(question.answer, body_at(question.answer, question.connection))
        except BadResponse as bad:
            raise Unreachable(f"cluster {self._cluster!r}: answers with {bad}") from bad
        return error != _ID_AUTHORIZATION_FAILED

    def transactional_ids(self) -> TransactionalIds:
        """Ask all brokers for the transactional ids that they coordinate, and those for the transactions that they
        have. Raises Unreachable, NotAllowed, Unsupported where no broker tells which there are."""
        found, failed = TransactionalIds({}, []), list[ReplicatorError]()
        asked = {it: [self.asked("list_transactions", _no_filters)] for it in self._addresses(ASK_S).values()}
        with_transaction: dict[Address, list[str]] = {}
        for address, answers in self.ask_each(asked):
            try:
                if isinstance(answers, ReplicatorError):
                    raise answers
                answer = asked[address][0].read(answers[0])
                self.check(int(answer.error_code), "list transactions", "Describe on transactional ids")
            except ReplicatorError as error:
                failed.append(error)
                continue
            for each in answer.transaction_states:
                found.producer_ids[each.transactional_id] = int(each.producer_id)
                if each.transaction_state not in IDLE:
                    with_transaction.setdefault(address, []).append(each.transactional_id)
        if failed and len(failed) == len(asked):
            raise failed[0]
        two_phase = list[TwoPhase]()
        failed += self._describe(with_transaction, found.transactions, two_phase)
        return found._replace(unanswered=tuple(failed), two_phase=tuple(two_phase))

    def _describe(
        self, ids: Mapping[Address, Sequence[str]], found: list[SeenTransaction], two_phase: list[TwoPhase]
    ) -> Iterator[ReplicatorError]:
        """Describe the transactions of ids, each of the broker that coordinates it; yield why some aren't known."""
        asked = {
            address: [
                self.asked("describe_transactions", _ids(of_broker[at : at + DESCRIBED_AT_ONCE]))
                for at in range(0, len(of_broker), DESCRIBED_AT_ONCE)
            ]
            for address, of_broker in ids.items()
        }
        for _, answers in self.ask_each(asked):
            if isinstance(answers, ReplicatorError):
                yield answers
                continue
            try:
                described = [it for data in answers for it in describe_transactions.read_all(data, body_at(data))]
            except BadResponse as bad:
                yield Unreachable(f"cluster {self._cluster!r}: a coordinator answers with {bad}")
                continue
            for it in described:
                if not it.error:
                    named = it.transactional_id, it.producer.producer_id
                    found.append(SeenTransaction(*named, it.partitions, it.start_ms))
                    two_phase += [TwoPhase(*named, it.start_ms)] if it.never_times_out else []
                elif it.error != _ID_NOT_FOUND:
                    doing, right = f"describe {it.transactional_id!r}", f"Describe on {it.transactional_id!r}"
                    yield failures.classify_code(it.error, self._cluster, doing, right)

    def by_leader(
        self, topics: Mapping[str, LedTopic], failed: dict[Partition, ReplicatorError]
    ) -> Mapping[Address, list[Partition]]:
        """Group the partitions of topics by their leaders; those that have none are `failed`."""
        by_leader: defaultdict[Address, list[Partition]] = defaultdict(list)
        for name, topic in topics.items():
            for number, address in topic.leaders.items():
                at = Partition(name, number)
                if address is None:
                    failed[at] = Retriable(f"cluster {self._cluster!r}: {at} has no leader")
                else:
                    by_leader[address].append(at)
        return by_leader


def _producer_fields(ats: Sequence[Partition]) -> Fields:
    by_topic: dict[str, list[int]] = {}
    for at in ats:
        by_topic.setdefault(at.topic, []).append(at.partition)

    def fields(exchange: Exchange) -> dict[str, Any]:
        kind = exchange.types.TopicRequest
        return {
            "topics": tuple(
                made(kind, name=name, partition_indexes=tuple(numbers)) for name, numbers in by_topic.items()
            )
        }

    return fields


def _no_filters(_: Exchange) -> dict[str, Any]:
    return {"state_filters": (), "producer_id_filters": ()}


def _ids(transactional_ids: Sequence[str]) -> Fields:
    return lambda _: {"transactional_ids": tuple(transactional_ids)}


def _active(one: Any) -> ActiveProducer:
    """Make an active producer: one that has no transactional id never has a marker or an open transaction."""
    return ActiveProducer(
        one.producer_id,
        one.last_timestamp,
        one.coordinator_epoch >= 0 or one.current_txn_start_offset >= 0,
        one.current_txn_start_offset,
    )
