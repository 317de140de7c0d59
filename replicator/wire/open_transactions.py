"""Looks at transactions that are open in partitions, and ends them by hand: implements `lane.ports.OpenTransactions`.

What `kafka-transactions.sh describe-producers`, `describe` and `abort` do (KIP-664), and librdkafka doesn't. A marker
goes to the partition's leader, as those of a coordinator do. Made by `flow.wiring`, one for each lane, and by
`inspect.expected_starts`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import cached_property
from typing import Any, TypeVar

from replicator.backoff import Backoff
from replicator.config import Cluster, Flow
from replicator.kafka import failures
from replicator.model.errors import ReplicatorError, Retriable, TopicMissing, Unreachable, Unsupported
from replicator.model.partition import Partition
from replicator.model.transactions import Marker, OpenTransaction, ProducerState
from replicator.wire import describe_transactions, protocol
from replicator.wire.access import Access, access
from replicator.wire.any_broker import AnyBroker, body_at
from replicator.wire.connection import Address, Connection, ConnectionLost, Fields
from replicator.wire.protocol import Exchange, made
from replicator.wire.response_limits import BadResponse

T = TypeVar("T")
ATTEMPT_S = 4.0
"""How long one broker may take to connect, and then to answer."""
RESPONSE_BYTES_MAX = 2**24
_AGAIN_FIRST_S, _AGAIN_MAX_S = 0.05, 1.0
_TRANSACTION = 1  # FindCoordinator's key type
_NOT_BEFORE = 0  # of a coordinator that the partition has never had a marker of
_NONE, _COORDINATOR_FENCED, _ID_NOT_FOUND = 0, 52, 105


class WireOpenTransactions:
    """Implements `OpenTransactions` for one cluster. Used by one thread."""

    def __init__(self, flow: Flow, cluster: Cluster, stop: threading.Event) -> None:
        """Connects to nothing yet. Once `stop` is set nothing is asked a second time."""
        self._cluster, self._stop = cluster, stop
        self._client_id = f"eos-replicate.{flow.name}.transactions"
        self._request_s = flow.limits.request_timeout_ms / 1000

    @cached_property
    def _access(self) -> Access:
        return access(self._cluster)

    @cached_property
    def _brokers(self) -> AnyBroker:
        return AnyBroker(self._cluster, self._client_id)

    def open_in(self, at: Partition) -> Sequence[OpenTransaction]:
        """See `OpenTransactions`."""

        def fields(exchange: Exchange) -> dict[str, Any]:
            topic = made(exchange.types.TopicRequest, name=at.topic, partition_indexes=(at.partition,))
            return {"topics": (topic,)}

        doing, right = f"describe the producers of {at}", f"Read on topic {at.topic!r}"

        def ask() -> Sequence[OpenTransaction]:
            answer = self._ask(self._leader(at), "describe_producers", fields)
            found = self._only([each for topic in answer.topics for each in topic.partitions], doing)
            self._check(found.error_code, doing, right)
            return [_opened(one) for one in found.active_producers if one.current_txn_start_offset >= 0]

        return self._again(ask)

    def producer(self, transactional_id: str) -> ProducerState:
        """See `OpenTransactions`."""
        doing, right = f"describe {transactional_id!r}", f"Describe on transactional id {transactional_id!r}"

        def ask() -> ProducerState:
            coordinator = self._coordinator(transactional_id, doing, right)
            with closing(self._connect(coordinator)) as connection:
                exchange = protocol.exchange("describe_transactions", connection.version("describe_transactions"))
                request = exchange.write(0, self._client_id, {"transactional_ids": (transactional_id,)})
                deadline_s = time.monotonic() + ATTEMPT_S
                data = connection.receive(connection.send(request, deadline_s), deadline_s)
                if data is None:
                    raise ConnectionLost(f"{connection.where}: no answer in time")
                try:
                    error, found = describe_transactions.read(data, body_at(data))
                except BadResponse as bad:
                    raise Unreachable(f"{connection.where}: answers with {bad}") from bad
            if error == _ID_NOT_FOUND:
                raise Retriable(f"cluster {self._cluster.name!r}: cannot {doing}: its coordinator doesn't know it")
            self._check(error, doing, right)
            return found

        return self._again(ask)

    def end(self, marker: Marker) -> None:
        """See `OpenTransactions`."""
        at, transaction = marker.at, marker.transaction

        def fields(exchange: Exchange) -> dict[str, Any]:
            topic = made(exchange.types.WritableTxnMarkerTopic, name=at.topic, partition_indexes=(at.partition,))
            written = made(
                exchange.types.WritableTxnMarker,
                producer_id=transaction.producer_id,
                producer_epoch=transaction.epoch,
                transaction_result=marker.commit,
                topics=(topic,),
                coordinator_epoch=max(transaction.coordinator_epoch, _NOT_BEFORE),
            )
            return {"markers": (written,)}

        doing = f"end the transaction of producer id {transaction.producer_id} in {at}"

        def ask() -> None:
            answer = self._ask(self._leader(at), "write_txn_markers", fields)
            results = [each for one in answer.markers for topic in one.topics for each in topic.partitions]
            code = int(self._only(results, doing).error_code)
            if code == _COORDINATOR_FENCED:
                raise Retriable(f"cluster {self._cluster.name!r}: cannot {doing}: its coordinator has written a marker")
            self._check(code, doing, "Alter or ClusterAction on the cluster")

        self._again(ask)

    def close(self) -> None:
        """Let go of the connection; a later question connects again."""
        if "_brokers" in vars(self):
            self._brokers.close()

    def _again(self, question: Callable[[], T]) -> T:
        """The answer. It is asked for again, with leader or coordinator looked up anew, while that can help."""
        deadline_s = time.monotonic() + self._request_s
        backoff = Backoff(_AGAIN_FIRST_S, _AGAIN_MAX_S)
        while True:
            try:
                return question()
            except (Retriable, ConnectionLost):
                pause_s = backoff.next_s()
                if time.monotonic() + pause_s >= deadline_s or self._stop.wait(pause_s):
                    raise

    def _leader(self, at: Partition) -> Address:
        def fields(exchange: Exchange) -> dict[str, Any]:
            return {
                "topics": (made(exchange.types.MetadataRequestTopic, name=at.topic, topic_id=None),),
                "allow_auto_topic_creation": False,
                "include_cluster_authorized_operations": False,
                "include_topic_authorized_operations": False,
            }

        doing = f"find the leader of {at}"
        answer = self._ask_any("metadata", fields)
        addresses = {each.node_id: (each.host, each.port) for each in answer.brokers}
        self._brokers.learn(list(addresses.values()))
        topic = self._only(answer.topics, doing)
        self._check(topic.error_code, doing, f"Describe on topic {at.topic!r}")
        leader = next((each.leader_id for each in topic.partitions if each.partition_index == at.partition), None)
        if leader is None:
            raise TopicMissing(f"cluster {self._cluster.name!r}: cannot {doing}: there is no such partition")
        if leader not in addresses:
            raise Retriable(f"cluster {self._cluster.name!r}: cannot {doing}: it has none")
        return addresses[leader]

    def _coordinator(self, transactional_id: str, doing: str, right: str) -> Address:
        answer = self._ask_any("find_coordinator", lambda _: {"key": transactional_id, "key_type": _TRANSACTION})
        self._check(answer.error_code, doing, right)
        return answer.host, int(answer.port)

    def _ask_any(self, api: str, fields: Fields) -> Any:
        connection = self._brokers.connection()
        try:
            answer = connection.ask(api, fields, time.monotonic() + ATTEMPT_S)
        except (Unreachable, Unsupported) as error:
            self._brokers.lost(connection, error)
            raise
        self._brokers.answered()
        return answer

    def _ask(self, address: Address, api: str, fields: Fields) -> Any:
        with closing(self._connect(address)) as connection:
            return connection.ask(api, fields, time.monotonic() + ATTEMPT_S)

    def _connect(self, address: Address) -> Connection:
        deadline_s = time.monotonic() + ATTEMPT_S
        return Connection(
            address, self._access, self._client_id, deadline_s=deadline_s, response_bytes_max=RESPONSE_BYTES_MAX
        )

    def _only(self, found: Sequence[Any], doing: str) -> Any:
        if len(found) != 1:
            raise Retriable(f"cluster {self._cluster.name!r}: cannot {doing}: it answers for {len(found)}")
        return found[0]

    def _check(self, code: int, doing: str, right: str) -> None:
        if code != _NONE:
            error: ReplicatorError = failures.classify_code(int(code), self._cluster.name, doing, right)
            raise error


def _opened(one: Any) -> OpenTransaction:
    return OpenTransaction(one.producer_id, one.producer_epoch, one.current_txn_start_offset, one.coordinator_epoch)
