"""Asks any broker for the names of all topics: implements `kafka.topic_questions.Answers`. Used by `topics`."""

from __future__ import annotations

from replicator.model.errors import ReplicatorError, Unreachable
from replicator.wire import metadata_response
from replicator.wire.any_broker import AnyBroker, body_at
from replicator.wire.metadata_request import metadata_request
from replicator.wire.response_limits import BadResponse


class TopicNames:
    """One question."""

    def __init__(self, cluster: str, brokers: AnyBroker, client_id: str) -> None:
        self._cluster, self._brokers = cluster, brokers
        self._question = brokers.ask(lambda connection: metadata_request(connection, client_id, None))

    def poll(self, timeout_s: float) -> bool:
        """See `Answers`."""
        return self._question.poll(timeout_s)

    def values(self) -> frozenset[str] | ReplicatorError:
        """See `Answers`."""
        question, why = self._question, self._question.failed or self._brokers.last or "no answer in time"
        if question.answer is not None and question.connection is not None:
            try:
                at = body_at(question.answer, question.connection)
                version = question.connection.version("metadata", metadata_response.VERSIONS[1])
                return frozenset(topic.name for topic in metadata_response.read(question.answer, at, version).topics)
            except BadResponse as bad:
                self._brokers.close()
                why = f"{question.connection.where}: answers with {bad}"
        return Unreachable(f"cluster {self._cluster!r}: cannot list topics: {why}")
