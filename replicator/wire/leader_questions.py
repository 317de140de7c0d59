"""Questions that only the leader of a partition answers, or another broker that has to be looked up: one at a time,
with a bound. Used by `open_transactions` and `leader_epochs`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

from replicator.backoff import Backoff
from replicator.config import Cluster, Flow
from replicator.kafka import failures
from replicator.model.errors import ReplicatorError, Retriable, TopicMissing, Unreachable, Unsupported
from replicator.model.partition import Partition
from replicator.wire.access import Access, access
from replicator.wire.any_broker import AnyBroker
from replicator.wire.connection import Address, Connection, ConnectionLost, Fields
from replicator.wire.protocol import Exchange, made

T = TypeVar("T")
ATTEMPT_S = 4.0
"""How long one broker may take to connect, and then to answer."""
RESPONSE_BYTES_MAX = 2**24
_AGAIN_FIRST_S, _AGAIN_MAX_S = 0.05, 1.0
_NONE, _NOT_KNOWN = 0, -1


class NamedLeader(NamedTuple):
    """Who leads a partition, as a broker says, and since which leader epoch; -1: not known."""

    address: Address
    epoch: int


class LeaderQuestions:
    """Asks one cluster. Used by one thread."""

    def __init__(self, flow: Flow, cluster: Cluster, stop: threading.Event, role: str) -> None:
        """Connects to nothing yet. Once `stop` is set nothing is asked a second time. `role`: the end of the client's
        id."""
        self._cluster, self._stop = cluster, stop
        self._client_id = f"eos-replicate.{flow.name}.{role}"
        self._request_s = flow.limits.request_timeout_ms / 1000

    @cached_property
    def _access(self) -> Access:
        return access(self._cluster)

    @cached_property
    def _brokers(self) -> AnyBroker:
        return AnyBroker(self._cluster, self._client_id)

    def close(self) -> None:
        """Let go of the connection; a later question connects again."""
        if "_brokers" in vars(self):
            self._brokers.close()

    def _again(self, question: Callable[[], T]) -> T:
        """Return the answer. It is asked for again, with leader or coordinator looked up anew, while that can help."""
        deadline_s = time.monotonic() + self._request_s
        backoff = Backoff(_AGAIN_FIRST_S, _AGAIN_MAX_S)
        while True:
            try:
                return question()
            except (Retriable, ConnectionLost):
                pause_s = backoff.next_s()
                if time.monotonic() + pause_s >= deadline_s or self._stop.wait(pause_s):
                    raise

    def _leader(self, at: Partition) -> NamedLeader:
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
        found = next((each for each in topic.partitions if each.partition_index == at.partition), None)
        if found is None:
            raise TopicMissing(f"cluster {self._cluster.name!r}: cannot {doing}: there is no such partition")
        if found.leader_id not in addresses:
            raise Retriable(f"cluster {self._cluster.name!r}: cannot {doing}: it has none")
        return NamedLeader(addresses[found.leader_id], getattr(found, "leader_epoch", _NOT_KNOWN))

    def _ask_any(self, api: str, fields: Fields, *, highest: int | None = None) -> Any:
        connection = self._brokers.connection()
        try:
            answer = connection.ask(api, fields, time.monotonic() + ATTEMPT_S, highest=highest)
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
