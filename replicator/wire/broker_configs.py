"""Asks brokers for their own configs: several at the same time, and the first answer counts. Used by `topics`.

A broker tells its own configs only, so it must be asked by its id: any broker tells who there is.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait

from replicator.kafka import failures
from replicator.kafka.topic_questions import READING_BROKER_CONFIGS
from replicator.model.errors import ReplicatorError, Unreachable, Unsupported
from replicator.wire import metadata_response, protocol
from replicator.wire.any_broker import AnyBroker, body_at
from replicator.wire.connection import Address, Connection
from replicator.wire.leaders import Leaders, reason
from replicator.wire.metadata_request import metadata_request
from replicator.wire.protocol import made
from replicator.wire.response_limits import BadResponse

ASKED = 3
"""Brokers that are asked, of all: one that is dead or frozen costs nothing then."""
_BROKER = 4  # ConfigResource.Type.BROKER
_API, _VERSION = "describe_configs", 4


class BrokerConfigs:
    """Implements `kafka.topic_questions.Answers` over one question."""

    def __init__(self, cluster: str, brokers: AnyBroker, leaders: Leaders, client_id: str) -> None:
        self._cluster, self._brokers, self._leaders, self._client_id = cluster, brokers, leaders, client_id
        self._question = brokers.ask(lambda connection: metadata_request(connection, client_id, ()))
        self._asked: set[Future[list[bytes]]] | None = None
        self._found: Mapping[str, str] | ReplicatorError | None = None
        self._error: ReplicatorError | None = None

    def poll(self, timeout_s: float) -> bool:
        """See `Answers`."""
        deadline_s = time.monotonic() + timeout_s
        while self._found is None:
            left_s = max(0.0, deadline_s - time.monotonic())
            if self._asked is None:
                if not self._question.poll(left_s):
                    return False
                self._ask()
                continue
            done, self._asked = wait(self._asked, timeout=left_s, return_when=FIRST_COMPLETED)
            if not done:
                return False
            for future in done:
                self._take(future)
            if self._found is None and not self._asked:
                self._found = self._error
        return True

    def _ask(self) -> None:
        question = self._question
        if question.answer is None or question.connection is None:
            self._found = question.failed or self._none("no answer")
            return
        try:
            version = question.connection.version("metadata", metadata_response.VERSIONS[1])
            at = body_at(question.answer, question.connection)
            nodes = metadata_response.read(question.answer, at, version).brokers
        except BadResponse as bad:
            self._found = self._none(f"a broker answers with {bad}")
            return
        some = random.sample(sorted(nodes.items()), min(ASKED, len(nodes)))
        self._asked = {self._request(node, address) for node, address in some}
        if not some:
            self._found = self._none("it names no broker")

    def _request(self, node: int, address: Address) -> Future[list[bytes]]:
        def write(connection: Connection) -> bytes:
            if connection.version(_API, _VERSION) < _VERSION:
                raise Unsupported(f"{connection.where}: it doesn't speak {_API} of version {_VERSION}")
            exchange = protocol.exchange(_API, _VERSION)
            resource = made(
                exchange.types.DescribeConfigsResource,
                resource_type=_BROKER,
                resource_name=str(node),
                configuration_keys=None,
            )
            fields = {"resources": (resource,), "include_synonyms": False, "include_documentation": False}
            return exchange.write(0, self._client_id, fields)

        return self._leaders.ask(address, [(write, 0.0)])

    def _take(self, future: Future[list[bytes]]) -> None:
        """Take an answer; an error counts when no broker gives anything better."""
        try:
            found = reason(future) or self._read(future.result()[0])
        except BadResponse as bad:
            found = self._none(f"a broker answers with {bad}")
        if isinstance(found, ReplicatorError):
            self._error = found
        else:
            self._found = found

    def _read(self, data: bytes) -> Mapping[str, str] | ReplicatorError:
        _, answer = protocol.exchange(_API, _VERSION).read(b"\0\0\0\0" + data)
        (result,) = answer.results
        code, (doing, right) = int(result.error_code), READING_BROKER_CONFIGS
        if code:
            return failures.classify_code(code, self._cluster, doing, right, result.error_message or "")
        return {entry.name: entry.value for entry in result.configs if entry.value is not None}

    def _none(self, why: str) -> Unreachable:
        return Unreachable(f"cluster {self._cluster!r}: cannot {READING_BROKER_CONFIGS[0]}: {why}")

    def values(self) -> Mapping[str, str] | ReplicatorError:
        """See `Answers`."""
        return self._none(str(self._brokers.last or "no answer in time")) if self._found is None else self._found
