"""Questions to the brokers of one cluster: to any that lives, or to several at the same time. Used by `group_questions`
and `producer_questions`.

One that is dead or slow holds up no other. Nothing is asked a second time within one call.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from replicator.config import Cluster
from replicator.kafka import failures
from replicator.model.errors import ReplicatorError, Unreachable
from replicator.wire import protocol
from replicator.wire.access import access
from replicator.wire.any_broker import AnyBroker, BrokerRequest, Question
from replicator.wire.connection import Address, Connection, Fields
from replicator.wire.leaders import Leaders, reason
from replicator.wire.protocol import Exchange
from replicator.wire.response_limits import BadResponse

ALLOWANCE_S = 4.0
"""How much longer than others questions may take for which a broker looks at all that it has of a kind."""


class AskedOnce:
    """One request in kio's codecs. Its answer is read in the version in which it was written: brokers of a
    cluster may speak different ones."""

    def __init__(self, client_id: str, api: str, fields: Fields) -> None:
        self._client_id, self._api, self._fields = client_id, api, fields
        self._exchange: Exchange | None = None

    def write(self, connection: Connection) -> bytes:
        """Write the request for this connection. Raises Unsupported."""
        made = self._exchange = protocol.exchange(self._api, connection.version(self._api))
        return made.write(0, self._client_id, self._fields(made))

    def read(self, data: bytes) -> Any:
        """Read the answer. Raises Unreachable: it isn't one."""
        assert self._exchange is not None
        try:
            return self._exchange.read(bytes(4) + data)[1]
        except BadResponse as error:
            raise Unreachable(f"cannot read the answer to {self._api}: {error}") from error


class BrokerQuestions:
    """Of one cluster. Used by one thread; `close` it."""

    def __init__(self, cluster: Cluster, client_id: str, kept_s: float = math.inf) -> None:
        """Connects to nothing yet. `kept_s`: as of `AnyBroker`. Raises Unsupported (a login that isn't spoken here),
        ConfigError."""
        self._cluster, self._client_id = cluster.name, client_id
        self._brokers = AnyBroker(cluster, client_id, kept_s)
        self._leaders = Leaders(access(cluster), client_id)

    def close(self) -> None:
        """Let go of all connections; a later question connects again."""
        self._brokers.close()
        self._leaders.close()

    def ask_another(self) -> None:
        """Ask another broker next what any can answer, as far as there is a choice."""
        self._brokers.another()

    def asked(self, api: str, fields: Fields) -> AskedOnce:
        """Make a request, for `ask_each`."""
        return AskedOnce(self._client_id, api, fields)

    def ask_each(
        self, asked: Mapping[Address, Sequence[AskedOnce]]
    ) -> Iterator[tuple[Address, Sequence[bytes] | ReplicatorError]]:
        """Ask brokers at the same time; yield the answers of each, or why there are none."""
        waiting = [
            (address, self._leaders.ask(address, [(one.write, ALLOWANCE_S) for one in several]))
            for address, several in asked.items()
        ]
        for address, future in waiting:
            try:
                yield address, answered(future)
            except ReplicatorError as error:
                yield address, error

    def check(self, code: int, doing: str, right: str) -> None:
        """Raise what an error code means."""
        if code:
            raise failures.classify_code(code, self._cluster, doing, right)

    def _addresses(self, timeout_s: float) -> dict[int, Address]:
        """Return the addresses of all brokers, by id."""
        fields = {"include_cluster_authorized_operations": False}
        answer = self._ask_any(AskedOnce(self._client_id, "describe_cluster", lambda _: fields), timeout_s)
        self.check(int(answer.error_code), "list its brokers", "Describe on the cluster")
        found = {int(each.broker_id): (each.host, int(each.port)) for each in answer.brokers}
        self._brokers.learn(list(found.values()))
        return found

    def _ask_any(self, asked: AskedOnce, timeout_s: float) -> Any:
        question = self._question(asked.write, timeout_s)
        assert question.answer is not None
        return asked.read(question.answer)

    def _question(self, request: BrokerRequest, timeout_s: float) -> Question:
        """Return a question that some broker has answered. Raises why none has."""
        question = self._brokers.ask(request)
        question.poll(timeout_s)
        if question.answer is None:
            raise question.failed or self._brokers.last or Unreachable(f"cluster {self._cluster!r}: no answer in time")
        return question


def answered(future: Future[list[bytes]]) -> list[bytes]:
    """Return the answers of one broker. Raises why there are none."""
    error = reason(future)
    if error is not None:
        raise error
    return future.result()
