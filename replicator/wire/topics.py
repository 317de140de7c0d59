"""Asks any living broker for topics and their configs, and leaders for offsets.

Implements `kafka.topic_questions.TopicQuestions`.

A response that is, byte by byte, the last one to the same question isn't read again: that is what mostly comes before
each commit. Made by `flow.wiring` and `flow.topics` through `topic_questions`.
"""

from __future__ import annotations

import base64
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import wait
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from replicator.config import Cluster
from replicator.kafka import failures
from replicator.kafka.cluster_info import ClusterInfo
from replicator.kafka.offset_questions import OffsetAnswers, Wanted
from replicator.kafka.topic_questions import (
    DESCRIBING,
    READING_CONFIGS,
    AdminTopicQuestions,
    Answers,
    Replicas,
    TopicAnswers,
    TopicInfo,
    TopicQuestions,
    operations_of_bits,
    within,
)
from replicator.model.errors import ReplicatorError, TopicMissing, Unreachable, Unsupported
from replicator.model.newest_epochs import NewestEpochs
from replicator.model.partition import Partition
from replicator.wire import metadata_response, offsets, protocol
from replicator.wire.access import access
from replicator.wire.any_broker import ATTEMPT_S, AnyBroker, Question, body_at
from replicator.wire.broker_configs import BrokerConfigs
from replicator.wire.cluster_answer import ClusterAnswer
from replicator.wire.connection import Connection
from replicator.wire.known_leaders import KnownLeaders
from replicator.wire.leaders import Leaders
from replicator.wire.metadata_request import metadata_request
from replicator.wire.newest_offsets import NewestOffsets
from replicator.wire.protocol import Exchange, made
from replicator.wire.response_limits import BadResponse
from replicator.wire.topic_names import TopicNames

T = TypeVar("T")
Values = Mapping[str, T | ReplicatorError]
_TOPIC = 2  # ConfigResource.Type.TOPIC
_QUESTIONS_KEPT, _KEPT_BYTES_MAX = 8, 2**22
CONFIGS_MAX = 1_000
"""Topics whose configs are asked for in one request: `response_limits` bounds what one response may hold."""


def topic_questions(
    cluster: Cluster, client_id: str, timeout_s: float, *, kept_s: float = math.inf, newest_only: bool = False
) -> TopicQuestions:
    """Ask questions of any living broker where the cluster's login is spoken here, else with librdkafka's admin client.

    A broker that is cut off from the others answers with what it knew last: who asks another one every `kept_s` isn't
    told so for long. `newest_only`: offsets that are told under an older leader epoch than this client was told before
    are Retriable, and another one is asked next who leads; only where the login is spoken here.

    Raises ConfigError: the cluster's properties are wrong.
    """
    try:
        otherwise = AdminTopicQuestions(cluster, client_id, timeout_s)
        return AnyBrokerTopics(cluster, client_id, otherwise, kept_s, newest_only=newest_only)
    except Unsupported:
        return AdminTopicQuestions(cluster, client_id, timeout_s)


@dataclass(frozen=True, slots=True)
class _Asked(Generic[T]):
    """A kind of question about certain topics."""

    topics: tuple[str, ...]
    words: tuple[str, str]
    write: Callable[[Connection], bytes]
    read: Callable[[bytes, int, Connection], Values[T]]
    """(response, where its brokers or results begin, connection); raises BadResponse."""
    came: Callable[[bytes, int, Connection], None] = lambda data, at, connection: None
    """Is told of each response that was read, or that is as the last one, with the same arguments."""


class AnyBrokerTopics:
    """Implements `TopicQuestions`."""

    def __init__(
        self,
        cluster: Cluster,
        client_id: str,
        otherwise: TopicQuestions,
        kept_s: float = math.inf,
        *,
        newest_only: bool = False,
    ) -> None:
        """`otherwise` is asked where a broker speaks no version that is known here (before Kafka 2.8). `newest_only`:
        as of `topic_questions`. Raises Unsupported, ConfigError as `AnyBroker`."""
        self.cluster, self._client_id, self._otherwise = cluster.name, client_id, otherwise
        self._brokers = AnyBroker(cluster, client_id, kept_s)
        self._leaders, self._led = Leaders(access(cluster), client_id), KnownLeaders()
        self._epochs = NewestEpochs() if newest_only else None
        self._supported = True
        self._asked: dict[tuple[str, ...], _Asked[Any]] = {}
        self._last: dict[tuple[str, ...], tuple[bytes, Any]] = {}

    def describe(self, topics: Collection[str], *, rights: bool = False) -> TopicAnswers[TopicInfo]:
        """See `TopicQuestions`."""
        names = tuple(sorted(set(topics)))
        if not self._supported:
            return self._otherwise.describe(names, rights=rights)
        return self._ask(("describe", str(rights), *names), lambda: self._describing(names, rights=rights))

    def configs(self, topics: Collection[str]) -> TopicAnswers[Mapping[str, str]]:
        """See `TopicQuestions`."""
        names = tuple(sorted(set(topics)))
        if not self._supported:
            return self._otherwise.configs(names)
        parts = [names[at : at + CONFIGS_MAX] for at in range(0, len(names), CONFIGS_MAX)]
        asked = [
            self._ask(("configs", *part), lambda part=part: self._reading_configs(part))  # type: ignore[misc]
            for part in parts
        ]
        return _Parts(asked)

    def list_offsets(
        self, partitions: Collection[Partition], wanted: Sequence[Wanted], *, patient: bool = False
    ) -> OffsetAnswers:
        """See `TopicQuestions`."""

        def otherwise() -> OffsetAnswers:
            return self._otherwise.list_offsets(partitions, wanted, patient=patient)

        if not self._supported:
            return otherwise()
        asked = self._brokers, self._leaders, self._led, self._client_id
        found = offsets.listing(self.cluster, asked, partitions, wanted, otherwise, patient=patient)
        return found if self._epochs is None else NewestOffsets(self.cluster, found, self._epochs, self.ask_another)

    def names(self) -> Answers[frozenset[str] | ReplicatorError]:
        """See `TopicQuestions`."""
        if not self._supported:
            return self._otherwise.names()
        return TopicNames(self.cluster, self._brokers, self._client_id)

    def broker_configs(self) -> Answers[Mapping[str, str] | ReplicatorError]:
        """See `TopicQuestions`."""
        if not self._supported:
            return self._otherwise.broker_configs()
        return BrokerConfigs(self.cluster, self._brokers, self._leaders, self._client_id)

    def cluster_info(self) -> Answers[ClusterInfo | ReplicatorError]:
        """See `TopicQuestions`."""
        if not self._supported:
            return self._otherwise.cluster_info()
        return ClusterAnswer(self.cluster, self._brokers, self._client_id, self._cluster_info_otherwise)

    def _cluster_info_otherwise(self) -> Answers[ClusterInfo | ReplicatorError]:
        self.unsupported()
        return self._otherwise.cluster_info()

    def ask_another(self) -> None:
        """See `TopicQuestions`."""
        self._brokers.another()
        self._led.forget()

    def connect(self, topics: Collection[str] = ()) -> None:
        """See `TopicQuestions`: here it has happened on return, or some seconds are over."""
        try:
            self._brokers.connection()
        except (Unreachable, Unsupported) as error:
            self._brokers.last = error
            return
        within(self.describe(topics), ATTEMPT_S)
        if topics and (metadata := self._led.metadata(topics)) is not None:
            leaders = {leader for topic in metadata.topics for _, leader, _ in topic.leaders.values()}
            addresses = [metadata.brokers[leader] for leader in leaders if leader in metadata.brokers]
            wait([self._leaders.ask(address, ()) for address in addresses], ATTEMPT_S)

    def close(self) -> None:
        """See `TopicQuestions`."""
        self._brokers.close()
        self._leaders.close()
        self._led.forget()
        self._otherwise.close()

    def _ask(self, key: tuple[str, ...], make: Callable[[], _Asked[T]]) -> TopicAnswers[T]:
        asked = self._asked.pop(key, None) or make()
        self._asked[key] = asked
        if len(self._asked) > _QUESTIONS_KEPT:
            oldest = next(iter(self._asked))
            del self._asked[oldest]
            self._last.pop(oldest, None)
        return _Answers(self, key, asked, self._brokers.ask(asked.write) if asked.topics else None)

    def why_not(self) -> ReplicatorError | None:
        """Say why no broker has answered, as far as it is known."""
        return self._brokers.last

    def read(self, key: tuple[str, ...], asked: _Asked[T], data: bytes, connection: Connection) -> Values[T]:
        """Read what a response says. Raises BadResponse."""
        begin = body_at(data, connection)
        body = data[begin:]
        last = self._last.get(key)
        if last is not None and last[0] == body:
            asked.came(data, begin, connection)
            return last[1]  # type: ignore[no-any-return]
        found = asked.read(data, begin, connection)
        asked.came(data, begin, connection)
        if len(body) <= _KEPT_BYTES_MAX:
            self._last[key] = body, found
        return found

    def unsupported(self) -> None:
        """Note that its brokers don't speak what is needed."""
        self._supported = False

    def _describing(self, names: tuple[str, ...], *, rights: bool) -> _Asked[TopicInfo]:
        def read(data: bytes, at: int, connection: Connection) -> Values[TopicInfo]:
            version = connection.version("metadata", metadata_response.VERSIONS[1])
            answer = metadata_response.read(data, at, version)
            self._brokers.learn(list(answer.brokers.values()))
            found = {topic.name: self._info(topic) for topic in answer.topics}
            return {name: found.get(name) or self._unknown(name) for name in names}

        def write(connection: Connection) -> bytes:
            return metadata_request(connection, self._client_id, names, rights=rights)

        def came(data: bytes, at: int, connection: Connection) -> None:
            self._led.take(names, data, at, connection.version("metadata", metadata_response.VERSIONS[1]))

        return _Asked(names, DESCRIBING, write, read, came)

    def _info(self, topic: metadata_response.TopicMetadata) -> TopicInfo | ReplicatorError:
        if topic.error:
            doing, right = (text.format(repr(topic.name)) for text in DESCRIBING)
            return failures.classify_code(topic.error, self.cluster, doing, right)
        # librdkafka's way to write ids, in which positions have them
        topic_id = base64.b64encode(topic.topic_id).decode().rstrip("=")
        rights = None if topic.rights is None else operations_of_bits(topic.rights)
        short = {number: Replicas(*each) for number, each in topic.short.items()}
        return TopicInfo(topic.name, topic_id, topic.partitions, {}, rights, short)

    def _unknown(self, name: str) -> ReplicatorError:
        return TopicMissing(f"cluster {self.cluster!r}: its answer leaves out topic {name!r}")

    def _reading_configs(self, names: tuple[str, ...]) -> _Asked[Mapping[str, str]]:
        def fields(exchange: Exchange) -> dict[str, Any]:
            resource = exchange.types.DescribeConfigsResource
            return {
                "resources": tuple(
                    made(resource, resource_type=_TOPIC, resource_name=name, configuration_keys=None) for name in names
                ),
                "include_synonyms": False,
                "include_documentation": False,
            }

        def read(data: bytes, at: int, connection: Connection) -> Values[Mapping[str, str]]:
            exchange = protocol.exchange("describe_configs", connection.version("describe_configs"))
            _, answer = exchange.read(b"\0\0\0\0" + data)
            found: dict[str, Mapping[str, str] | ReplicatorError] = {}
            for result in answer.results:
                doing, right = (text.format(repr(result.resource_name)) for text in READING_CONFIGS)
                code = int(result.error_code)
                found[result.resource_name] = (
                    failures.classify_code(code, self.cluster, doing, right, result.error_message or "")
                    if code
                    else {entry.name: entry.value for entry in result.configs if entry.value is not None}
                )
            return {name: found.get(name) or self._unknown(name) for name in names}

        return _Asked(names, READING_CONFIGS, self._writer("describe_configs", fields, 4, 4), read)

    def _writer(
        self, api: str, fields: Callable[[Exchange], dict[str, Any]], lowest: int, highest: int
    ) -> Callable[[Connection], bytes]:
        written: dict[int, bytes] = {}

        def write(connection: Connection) -> bytes:
            version = connection.version(api, highest)
            if version < lowest:
                raise Unsupported(f"{connection.where}: it speaks {api} up to version {version}")
            if version not in written:
                exchange = protocol.exchange(api, version)
                written[version] = exchange.write(0, self._client_id, fields(exchange))
            return written[version]

        return write


class _Parts(Generic[T]):
    """Implements `TopicAnswers` over several questions."""

    def __init__(self, parts: Sequence[TopicAnswers[T]]) -> None:
        self._parts = parts

    def poll(self, timeout_s: float) -> bool:
        """See `TopicAnswers`."""
        deadline_s = time.monotonic() + timeout_s
        return all(part.poll(max(0.0, deadline_s - time.monotonic())) for part in self._parts)

    def values(self) -> Values[T]:
        """See `TopicAnswers`."""
        return {name: value for part in self._parts for name, value in part.values().items()}


class _Answers(Generic[T]):
    """Implements `TopicAnswers` over one question."""

    def __init__(
        self, topics: AnyBrokerTopics, key: tuple[str, ...], asked: _Asked[T], question: Question | None
    ) -> None:
        self._topics, self._key, self._asked, self._question = topics, key, asked, question

    def poll(self, timeout_s: float) -> bool:
        """See `TopicAnswers`."""
        return self._question is None or self._question.poll(timeout_s)

    def values(self) -> Values[T]:
        """See `TopicAnswers`."""
        asked, question = self._asked, self._question
        if question is None:
            return {}
        error = question.failed or self._topics.why_not()
        if question.answer is not None and question.connection is not None:
            try:
                return self._topics.read(self._key, asked, question.answer, question.connection)
            except BadResponse as bad:
                self._topics.close()
                error = Unreachable(f"{question.connection.where}: answers with {bad}")
        if isinstance(error, Unsupported):
            self._topics.unsupported()
        why = str(error) if error is not None else "no answer in time"
        words = ", ".join(asked.topics[:3]) + (", ..." if len(asked.topics) > 3 else "")
        text = f"cluster {self._topics.cluster!r}: cannot {asked.words[0].format(words)}: {why}"
        return dict.fromkeys(asked.topics, Unreachable(text))
