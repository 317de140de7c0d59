"""Asks one cluster for topics, their configs and offsets: the contract, and its implementation with librdkafka.

`wire.topics` implements it, too, and is used wherever it can log in: librdkafka sends these questions to the broker
that was the controller when it looked last, which under KRaft is any broker, and while that one is dead it neither
answers nor rests (2.16). So the client here is thrown away when a question isn't answered in time.

Used by `kafka.admin` and `kafka.clusters`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AclOperation, AdminClient, ConfigResource

from replicator.config import Cluster
from replicator.kafka import failures
from replicator.kafka.answers import SLICE_S
from replicator.kafka.cluster_info import AdminClusterInfo, ClusterInfo
from replicator.kafka.offset_questions import AdminOffsetAnswers, OffsetAnswers, Wanted
from replicator.kafka.properties import client_properties
from replicator.model.errors import ReplicatorError, Unreachable
from replicator.model.partition import Partition

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Replicas(NamedTuple):
    """Of a partition: the broker that leads it (-1: none), how many replicas are in sync, and how many there are."""

    leader: int
    in_sync: int
    whole: int


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic as its cluster describes it. `rights` are operations the user may do; None when not asked. `short` has
    the partitions that have no leader, or not all replicas in sync."""

    name: str
    topic_id: str
    partitions: int
    configs: Mapping[str, str] = field(default_factory=dict)
    rights: frozenset[str] | None = None
    short: Mapping[int, Replicas] = field(default_factory=dict)


class TopicAnswers(Protocol[T_co]):
    """Answers that may still be under way."""

    def poll(self, timeout_s: float) -> bool:
        """Wait so long at most; whether all answers are there."""

    def values(self) -> Mapping[str, T_co | ReplicatorError]:
        """Say what is known by now, by topic: TopicMissing, NotAllowed, Incident or Retriable of a single one,
        Unreachable where no answer has come."""


class Answers(Protocol[T_co]):
    """Answers of any kind."""

    def poll(self, timeout_s: float) -> bool:
        """Wait so long at most; whether all is there."""

    def values(self) -> T_co:
        """Say what is known by now."""


class TopicQuestions(Protocol):
    """Used by one thread. Every method returns at once."""

    def describe(self, topics: Collection[str], *, rights: bool = False) -> TopicAnswers[TopicInfo]:
        """Return topics without their configs. `rights`: ask which operations the user may do."""

    def configs(self, topics: Collection[str]) -> TopicAnswers[Mapping[str, str]]:
        """Return effective configs of existing topics: what is set on the topic, else the broker's default."""

    def list_offsets(
        self, partitions: Collection[Partition], wanted: Sequence[Wanted], *, patient: bool = False
    ) -> OffsetAnswers:
        """Return the offsets of logs. `patient`: a partition without leader, or whose leader doesn't answer, is asked
        for again as long as the answers are polled; else for a moment, so that it doesn't hold up the others."""

    def names(self) -> Answers[frozenset[str] | ReplicatorError]:
        """List the topics that the user may see, without creating any."""

    def broker_configs(self) -> Answers[Mapping[str, str] | ReplicatorError]:
        """Return the configs of one of the brokers, whichever answers; or why none does."""

    def cluster_info(self) -> Answers[ClusterInfo | ReplicatorError]:
        """Ask who answers for the cluster. It is asked until somebody does; wrong credentials are an answer. Until then
        the value is why nobody does."""

    def ask_another(self) -> None:
        """Ask another broker next who leads what, as far as there is a choice."""

    def connect(self, topics: Collection[str] = ()) -> None:
        """Begin to connect, also to the leaders of these topics: the first question finds a connection."""

    def close(self) -> None:
        """Let go of connections; a later question connects again."""


class _Futures(Generic[T]):
    """Implements `TopicAnswers` over futures of an admin client."""

    def __init__(
        self,
        cluster: str,
        futures: Mapping[str, Future[Any]],
        read: Callable[[Any], T],
        words: tuple[str, str],
        unanswered: Callable[[], None],
    ) -> None:
        """`words`: what was tried with a topic, and the right that it takes, with `{}` for its name."""
        self._cluster, self._futures, self._read, self._words = cluster, futures, read, words
        self._unanswered = unanswered

    def poll(self, timeout_s: float) -> bool:
        """See `TopicAnswers`."""
        return not wait(self._futures.values(), timeout=max(0.0, timeout_s)).not_done

    def values(self) -> Mapping[str, T | ReplicatorError]:
        """See `TopicAnswers`."""
        found = {name: self._value(name, future) for name, future in self._futures.items()}
        if any(isinstance(value, Unreachable) for value in found.values()):
            self._unanswered()
        return found

    def _value(self, name: str, future: Future[Any]) -> T | ReplicatorError:
        doing, right = (text.format(repr(name)) for text in self._words)
        if not future.done():
            return Unreachable(f"cluster {self._cluster!r}: cannot {doing}: no answer in time")
        try:
            answer = future.result()
        except KafkaException as error:
            return failures.classify(error, self._cluster, doing, right)
        return self._read(answer)


DESCRIBING = ("describe topic {}", "Describe on topic {}")
READING_BROKER_CONFIGS = ("read the configs of the cluster", "DescribeConfigs on the cluster")
READING_CONFIGS = ("read the configs of topic {}", "DescribeConfigs on topic {}")


class _AdminBrokerConfigs:
    """Implements `Answers`: finds out which brokers there are, then asks one."""

    def __init__(self, cluster: str, client: AdminClient, timeout_s: float, unanswered: Callable[[], None]) -> None:
        self._cluster, self._client, self._timeout_s, self._unanswered = cluster, client, timeout_s, unanswered
        self._nodes: Future[Any] = client.describe_cluster(request_timeout=timeout_s)
        self._configs: Future[Any] | None = None

    def poll(self, timeout_s: float) -> bool:
        """See `Answers`."""
        deadline_s = time.monotonic() + timeout_s
        if self._configs is None:
            if wait([self._nodes], timeout=max(0.0, timeout_s)).not_done:
                return False
            if self._nodes.exception() is not None:
                return True
            resource = ConfigResource(ConfigResource.Type.BROKER, str(self._nodes.result().nodes[0].id))
            self._configs = self._client.describe_configs([resource], request_timeout=self._timeout_s)[resource]
        return not wait([self._configs], timeout=max(0.0, deadline_s - time.monotonic())).not_done

    def values(self) -> Mapping[str, str] | ReplicatorError:
        """See `Answers`."""
        doing, right = READING_BROKER_CONFIGS
        failed = self._nodes.done() and self._nodes.exception() is not None
        future = self._nodes if failed else self._configs
        if future is None or not future.done():
            self._unanswered()
            return Unreachable(f"cluster {self._cluster!r}: cannot {doing}: no answer in time")
        try:
            return config_values(future.result())
        except KafkaException as error:
            return failures.classify(error, self._cluster, doing, right)


class _ListedNames:
    """Implements `Answers`: asked when it is waited for."""

    def __init__(self, cluster: str, client: AdminClient) -> None:
        self._cluster, self._client = cluster, client
        self._found: frozenset[str] | ReplicatorError | None = None

    def poll(self, timeout_s: float) -> bool:
        """See `Answers`."""
        if self._found is None:
            try:
                self._found = frozenset(self._client.list_topics(timeout=max(0.0, timeout_s)).topics)
            except KafkaException as error:
                self._found = failures.classify(error, self._cluster, "list topics", "Describe on topics")
        return True

    def values(self) -> frozenset[str] | ReplicatorError:
        """See `Answers`."""
        return Unreachable(f"cluster {self._cluster!r}: cannot list topics") if self._found is None else self._found


class AdminTopicQuestions:
    """Implements `TopicQuestions` with librdkafka: speaks all of its logins."""

    def __init__(self, cluster: Cluster, client_id: str, timeout_s: float) -> None:
        """`timeout_s`: how long the client tries to have an answer."""
        self._cluster, self._timeout_s = cluster, timeout_s
        self._errors: dict[int, KafkaError] = {}
        self._own = {"client.id": client_id, "log_level": 0, "error_cb": self._noted}
        self._admin: AdminClient | None = None

    def _noted(self, error: KafkaError) -> None:
        self._errors[error.code()] = error

    @property
    def _client(self) -> AdminClient:
        if self._admin is None:
            with failures.making(self._cluster.name):
                self._admin = AdminClient(client_properties(self._cluster, **self._own))
        return self._admin

    def describe(self, topics: Collection[str], *, rights: bool = False) -> TopicAnswers[TopicInfo]:
        """See `TopicQuestions`."""
        names, futures = sorted(set(topics)), {}
        if names:
            futures = self._client.describe_topics(
                TopicCollection(names), include_authorized_operations=rights, request_timeout=self._timeout_s
            )
        return _Futures(self._cluster.name, futures, _info, DESCRIBING, self.close)

    def configs(self, topics: Collection[str]) -> TopicAnswers[Mapping[str, str]]:
        """See `TopicQuestions`."""
        resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in sorted(set(topics))]
        futures: dict[str, Future[Any]] = {}
        if resources:
            asked = self._client.describe_configs(resources, request_timeout=self._timeout_s)
            futures = {resource.name: future for resource, future in asked.items()}
        return _Futures(self._cluster.name, futures, config_values, READING_CONFIGS, self.close)

    def list_offsets(
        self, partitions: Collection[Partition], wanted: Sequence[Wanted], *, patient: bool = False
    ) -> OffsetAnswers:
        """See `TopicQuestions`; librdkafka asks again for `timeout_s`, whether or not it is asked to be patient."""
        described = self.describe({at.topic for at in partitions})

        def leaderless() -> list[Partition]:
            topics = {name: info for name, info in described.values().items() if isinstance(info, TopicInfo)}
            short = {Partition(name, at): it for name, info in topics.items() for at, it in info.short.items()}
            return [at for at in partitions if at in short and short[at].leader < 0]

        return AdminOffsetAnswers(
            self._cluster.name,
            (partitions, wanted),
            (described.poll, leaderless),
            lambda: (self._client, self._timeout_s),
            self.close,
        )

    def names(self) -> Answers[frozenset[str] | ReplicatorError]:
        """See `TopicQuestions`; librdkafka asks any broker, and waits for it."""
        return _ListedNames(self._cluster.name, self._client)

    def broker_configs(self) -> Answers[Mapping[str, str] | ReplicatorError]:
        """See `TopicQuestions`."""
        return _AdminBrokerConfigs(self._cluster.name, self._client, self._timeout_s, self.close)

    def cluster_info(self) -> Answers[ClusterInfo | ReplicatorError]:
        """See `TopicQuestions`."""
        return AdminClusterInfo(self._cluster.name, lambda: self._client, self._errors, _cluster_info, self.close)

    def ask_another(self) -> None:
        """See `TopicQuestions`. The client chooses by itself."""

    def connect(self, topics: Collection[str] = ()) -> None:
        """See `TopicQuestions`."""
        self._client.poll(0)

    def close(self) -> None:
        """See `TopicQuestions`."""
        self._admin = None


def _cluster_info(found: Any) -> ClusterInfo:
    rights = operations(found.authorized_operations) if found.authorized_operations else None
    return ClusterInfo(found.cluster_id or "", tuple(node.id for node in found.nodes), rights)


def _info(found: Any) -> TopicInfo:
    rights = operations(found.authorized_operations) if found.authorized_operations else None
    all_ = {
        each.id: Replicas(-1 if each.leader is None else each.leader.id, len(each.isr), len(each.replicas))
        for each in found.partitions
    }
    short = {number: each for number, each in all_.items() if each.leader < 0 or each.in_sync < each.whole}
    return TopicInfo(found.name, str(found.topic_id), len(found.partitions), {}, rights, short)


def config_values(entries: Any) -> Mapping[str, str]:
    """Return configs as an admin client answers, those that have a value."""
    return {entry.name: entry.value for entry in entries.values() if entry.value is not None}


def operations(found: Iterable[AclOperation]) -> frozenset[str]:
    """Return Kafka's own spelling of operations: DESCRIBE_CONFIGS → DescribeConfigs."""
    return frozenset(operation.name.title().replace("_", "") for operation in found)


def operations_of_bits(bits: int) -> frozenset[str]:
    """Return, as `operations`, what is meant by the bits in a response."""
    return operations(operation for operation in AclOperation if bits >> operation.value & 1)


def raised(answer: T | ReplicatorError) -> T:
    """Return the answer, if it isn't an error."""
    if isinstance(answer, ReplicatorError):
        raise answer
    return answer


def within(answers: Answers[T], timeout_s: float, waits: Callable[[T], None] | None = None) -> T:
    """Return the answers, once they are all there or the time is over. `waits`: called several times a second until
    then, or after each attempt to connect, with what is known; what it raises ends the wait."""
    deadline_s, slice_s = time.monotonic() + timeout_s, math.inf if waits is None else SLICE_S
    while not answers.poll(min(slice_s, deadline_s - time.monotonic())) and time.monotonic() < deadline_s:
        if waits is not None:
            waits(answers.values())
    return answers.values()
