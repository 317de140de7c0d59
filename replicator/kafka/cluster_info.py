"""Who answers for a cluster: what is asked at a start, and librdkafka's way to ask it. Used by `topic_questions`.

librdkafka retries connecting for ever and says why only through its error callback, and it asks the broker that it
takes for the controller, under KRaft any of them: while that one is dead the question is asked again with a new client.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from replicator.kafka import failures
from replicator.model.errors import ReplicatorError, Unreachable

ATTEMPT_S = 5.0  # for one broker to answer
SERVED_S = 0.05  # between two looks at what librdkafka says
REACHING = ("reach it", "Describe on the cluster")
_TELLING = (KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError._RESOLVE, KafkaError._TRANSPORT)
"""Local errors from the most to the least telling: which one the operator should read."""


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    """Who answered. `rights` are the user's operations on the cluster; None when the broker does not say."""

    cluster_id: str
    brokers: tuple[int, ...]
    rights: frozenset[str] | None = None


class AdminClusterInfo:
    """Implements `topic_questions.Answers`: asks with librdkafka until there is an answer."""

    def __init__(
        self,
        cluster: str,
        client: Callable[[], AdminClient],
        errors: dict[int, KafkaError],
        read: Callable[[Any], ClusterInfo],
        anew: Callable[[], None],
    ) -> None:
        """`client` returns the client to ask with, whose error callback fills `errors`; `anew` makes it another one."""
        self._cluster, self._client, self._errors = cluster, client, errors
        self._read, self._anew = read, anew
        self._asked: Future[Any] | None = None
        self._give_up_s = 0.0
        self._found: ClusterInfo | ReplicatorError | None = None

    def poll(self, timeout_s: float) -> bool:
        """See `Answers`."""
        deadline_s = time.monotonic() + timeout_s
        while self._found is None:
            if self._asked is None:
                self._asked = self._client().describe_cluster(
                    include_authorized_operations=True, request_timeout=ATTEMPT_S
                )
                self._give_up_s = time.monotonic() + ATTEMPT_S + 1
            self._client().poll(min(SERVED_S, max(0.0, deadline_s - time.monotonic())))
            self._look(self._asked)
            if time.monotonic() >= deadline_s:
                break
        return self._found is not None

    def _look(self, asked: Future[Any]) -> None:
        refused = next((self._errors[code] for code in failures.CREDENTIALS if code in self._errors), None)
        if refused is not None:
            self._found = failures.classify(refused, self._cluster, "log in")
        elif not asked.done():
            if time.monotonic() >= self._give_up_s:
                self._again(anew=True)
        else:
            try:
                self._found = self._read(asked.result())
            except KafkaException as error:
                inner = failures.kafka_error(error)
                if inner.code() in failures.UNREACHABLE:
                    self._again(anew=inner.code() == KafkaError._TIMED_OUT)
                else:
                    self._found = failures.classify(inner, self._cluster, *REACHING)

    def _again(self, *, anew: bool) -> None:
        self._asked = None
        if anew:
            self._anew()

    def values(self) -> ClusterInfo | ReplicatorError:
        """See `Answers`; the most telling of the errors seen so far."""
        if self._found is not None:
            return self._found
        seen = next((self._errors[code] for code in _TELLING if code in self._errors), None)
        return Unreachable(failures.reason(seen) if seen else "")
