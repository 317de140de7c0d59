"""Looks at transactions that are open in partitions, and ends them by hand: implements `lane.ports.OpenTransactions`.

What `kafka-transactions.sh describe-producers`, `describe` and `abort` do (KIP-664), and librdkafka doesn't. A marker
goes to the partition's leader, as those of a coordinator do. Made by `flow.wiring`, one for each lane, and by
`inspect.expected_starts`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import closing
from datetime import timedelta
from typing import Any

from replicator.config import Cluster, Flow
from replicator.model.errors import ReplicatorError, Retriable, Unreachable
from replicator.model.partition import Partition
from replicator.model.transactions import Marker, OpenTransaction, ProducerState
from replicator.wire import describe_transactions, protocol
from replicator.wire.any_broker import body_at
from replicator.wire.connection import Address, Connection, ConnectionLost
from replicator.wire.leader_questions import ATTEMPT_S, LeaderQuestions
from replicator.wire.protocol import Exchange, made
from replicator.wire.response_limits import BadResponse

_TRANSACTION, _ONE_KEY = 1, 3  # FindCoordinator's key type, and its version
_NOT_BEFORE = 0  # of a coordinator that the partition has never had a marker of
_COORDINATOR_FENCED, _ID_NOT_FOUND = 52, 105
_CONCURRENT = 51
_ABORTING_S = 0.01
"""Between two questions while the coordinator still aborts the predecessor's transaction: it takes some ms."""


class WireOpenTransactions(LeaderQuestions):
    """Implements `OpenTransactions` for one cluster. Used by one thread."""

    def __init__(self, flow: Flow, cluster: Cluster, stop: threading.Event) -> None:
        """See `LeaderQuestions`."""
        super().__init__(flow, cluster, stop, "transactions")
        self._ready: tuple[str, Connection] | None = None  # to the coordinator of an id, for its first question

    def connect(self, transactional_id: str) -> None:
        """Connect to the coordinator of an id that will be fenced. What is wrong with that, `fence` meets again."""
        doing, right = _fencing(transactional_id)
        try:
            self._ready = transactional_id, self._connect(self._coordinator(transactional_id, doing, right))
        except ReplicatorError:
            return

    def close(self) -> None:
        """See `LeaderQuestions`."""
        super().close()
        if self._ready is not None:
            self._ready[1].close()
            self._ready = None

    def open_in(self, at: Partition) -> Sequence[OpenTransaction]:
        """See `OpenTransactions`."""

        def fields(exchange: Exchange) -> dict[str, Any]:
            topic = made(exchange.types.TopicRequest, name=at.topic, partition_indexes=(at.partition,))
            return {"topics": (topic,)}

        doing, right = f"describe the producers of {at}", f"Read on topic {at.topic!r}"

        def ask() -> Sequence[OpenTransaction]:
            answer = self._ask(self._leader(at).address, "describe_producers", fields)
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
            answer = self._ask(self._leader(at).address, "write_txn_markers", fields)
            results = [each for one in answer.markers for topic in one.topics for each in topic.partitions]
            code = int(self._only(results, doing).error_code)
            if code == _COORDINATOR_FENCED:
                raise Retriable(f"cluster {self._cluster.name!r}: cannot {doing}: its coordinator has written a marker")
            self._check(code, doing, "Alter or ClusterAction on the cluster")

        self._again(ask)

    def fence(self, transactional_id: str, timeout_ms: int) -> None:
        """See `OpenTransactions`."""
        doing, right = _fencing(transactional_id)

        def fields(_: Exchange) -> dict[str, Any]:
            return {
                "transactional_id": transactional_id,
                "transaction_timeout": timedelta(milliseconds=timeout_ms),
                "producer_id": -1,
                "producer_epoch": -1,
            }

        def ask() -> None:
            ready, self._ready = self._ready, None
            if ready is None or ready[0] != transactional_id:
                ready = transactional_id, self._connect(self._coordinator(transactional_id, doing, right))
            deadline_s = time.monotonic() + ATTEMPT_S
            with closing(ready[1]) as connection:
                code = _CONCURRENT
                while code == _CONCURRENT and time.monotonic() < deadline_s:
                    code = int(connection.ask("init_producer_id", fields, deadline_s).error_code)
                    if code == _CONCURRENT and self._stop.wait(_ABORTING_S):
                        break
            self._check(code, doing, right)

        self._again(ask)

    def _coordinator(self, transactional_id: str, doing: str, right: str) -> Address:
        fields = {"key": transactional_id, "key_type": _TRANSACTION}
        answer = self._ask_any("find_coordinator", lambda _: fields, highest=_ONE_KEY)
        self._check(answer.error_code, doing, right)
        return answer.host, int(answer.port)


def _fencing(transactional_id: str) -> tuple[str, str]:
    """Say what is done, and the right that it takes."""
    return f"fence {transactional_id!r}", f"Write on transactional id {transactional_id!r}"


def _opened(one: Any) -> OpenTransaction:
    return OpenTransaction(one.producer_id, one.producer_epoch, one.current_txn_start_offset, one.coordinator_epoch)
