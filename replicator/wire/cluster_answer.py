"""Asks any living broker who answers for the cluster (DescribeCluster, KIP-700): implements
`kafka.topic_questions.Answers`. Used by `topics`."""

from __future__ import annotations

import time
from collections.abc import Callable

from replicator.kafka import failures
from replicator.kafka.cluster_info import REACHING, ClusterInfo
from replicator.kafka.topic_questions import Answers, operations_of_bits
from replicator.model.errors import ReplicatorError, Unreachable, Unsupported
from replicator.wire import protocol
from replicator.wire.any_broker import AnyBroker, Question
from replicator.wire.connection import Connection, ConnectionLost
from replicator.wire.metadata_response import NULL_RIGHTS
from replicator.wire.response_limits import BadResponse

AGAIN_S = 0.2  # after a refusal that may pass, such as a certificate that isn't trusted yet
SLICE_S = 0.2  # between two looks at why nobody answers
_API, _VERSION = "describe_cluster", 0


class ClusterAnswer:
    """Asks one broker after the other until one answers. Wrong credentials are an answer, any other refusal isn't."""

    def __init__(
        self,
        cluster: str,
        brokers: AnyBroker,
        client_id: str,
        otherwise: Callable[[], Answers[ClusterInfo | ReplicatorError]],
    ) -> None:
        """`otherwise` asks where a broker doesn't know the question (before Kafka 2.8)."""
        self._cluster, self._brokers, self._client_id = cluster, brokers, client_id
        self._question, self._otherwise = self._ask(), otherwise
        self._instead: Answers[ClusterInfo | ReplicatorError] | None = None
        self._not_before_s = 0.0
        self._found: ClusterInfo | ReplicatorError | None = None
        self._why: ReplicatorError | None = None

    def _ask(self) -> Question:
        def write(connection: Connection) -> bytes:
            exchange = protocol.exchange(_API, connection.version(_API))
            return exchange.write(0, self._client_id, {"include_cluster_authorized_operations": True})

        return self._brokers.ask(write)

    def poll(self, timeout_s: float) -> bool:
        """See `Answers`."""
        deadline_s = time.monotonic() + timeout_s
        while self._found is None and self._instead is None:
            now_s = time.monotonic()
            if now_s < self._not_before_s:
                time.sleep(max(0.0, min(self._not_before_s, deadline_s) - now_s))
            elif self._question.poll(max(0.0, min(SLICE_S, deadline_s - now_s))):
                self._take()
            self._note(self._brokers.last)
            if self._found is None and self._instead is None and time.monotonic() >= deadline_s:
                return False
        return self._instead is None or self._instead.poll(max(0.0, deadline_s - time.monotonic()))

    def _take(self) -> None:
        failed = self._question.failed
        if failed is None:
            try:
                self._found = self._read(self._question.answer or b"")
                return
            except BadResponse as bad:
                self._brokers.close()
                failed = Unreachable(f"a broker answers with {bad}")
        if isinstance(failed, Unsupported):
            self._instead = self._otherwise()
            return
        if failures.refuses_credentials(failed, self._cluster):
            self._found = failed
            return
        self._note(failed)
        self._question, self._not_before_s = self._ask(), time.monotonic() + AGAIN_S

    def _note(self, error: ReplicatorError | None) -> None:
        """Keep the most telling error: a refusal rather than a connection that wasn't made."""
        if error is not None and (self._why is None or not isinstance(error, ConnectionLost)):
            self._why = error

    def _read(self, data: bytes) -> ClusterInfo | ReplicatorError:
        _, answer = protocol.exchange(_API, _VERSION).read(b"\0\0\0\0" + data)
        if answer.error_code:
            return failures.classify_code(int(answer.error_code), self._cluster, *REACHING, answer.error_message or "")
        self._brokers.learn([(each.host, each.port) for each in answer.brokers])
        bits = answer.cluster_authorized_operations
        rights = operations_of_bits(bits) if bits not in (0, NULL_RIGHTS) else None
        return ClusterInfo(answer.cluster_id, tuple(each.broker_id for each in answer.brokers), rights)

    def values(self) -> ClusterInfo | ReplicatorError:
        """See `Answers`."""
        if self._instead is not None:
            return self._instead.values()
        return self._found if self._found is not None else self._why or Unreachable("")
