"""One cluster's control plane over confluent-kafka's admin client: bounded waits, errors name the cluster.

librdkafka retries connecting for ever and says so only through its error callback; `connect` turns that into
one error within its time. Offsets of groups are not read here: the admin call for it crashes the process in
librdkafka 2.16 while the group coordinator is still coming up (see `kafka.offset_reader`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import structlog
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AdminClient,
    NewPartitions,
    NewTopic,
)

from replicator.config import Cluster
from replicator.kafka import failures
from replicator.kafka.client_log import line_logger
from replicator.kafka.offset_questions import EARLIEST, LATEST, MAX_TIMESTAMP, STABLE, ListedOffset, Wanted
from replicator.kafka.properties import client_properties
from replicator.kafka.topic_questions import TopicInfo, TopicQuestions, operations, within
from replicator.model.errors import Incident, NotAllowed, ReplicatorError, TopicMissing, Unreachable
from replicator.model.partition import Partition

T = TypeVar("T")
CONNECT_ATTEMPT_S = 5.0  # for one broker to answer: the client asks the one that it takes for the controller
ASK_AGAIN_S = 0.05  # between two questions to a cluster whose broker has just gone
AddressedPartition = tuple[str, int]

_TELLING = (KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError._RESOLVE, KafkaError._TRANSPORT)
"""Local errors from the most to the least telling: which one the operator should read."""


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    """Who answered. `rights` are the user's operations on the cluster; None when the broker does not say."""

    cluster_id: str
    brokers: tuple[int, ...]
    rights: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic to create. `replication_factor` -1 takes the cluster's default."""

    name: str
    partitions: int
    replication_factor: int
    configs: Mapping[str, str]


class ClusterAdmin:
    """Blocking calls, each bounded by the request timeout. Used from one thread.

    Raises, in every method: Unreachable, NotAllowed, Retriable, or Incident for a refusal of another kind.
    """

    def __init__(
        self, cluster: Cluster, topics: TopicQuestions, *, request_timeout_ms: int, connect_timeout_ms: int
    ) -> None:
        """`topics` asks the cluster for topics; it is closed with this."""
        self.cluster, self._topics = cluster, topics
        self._request_s = request_timeout_ms / 1000
        self._connect_s = connect_timeout_ms / 1000
        self._errors: dict[int, KafkaError] = {}
        self._client = self._made()

    def _made(self) -> AdminClient:
        properties = client_properties(self.cluster, error_cb=self._noted)
        try:
            return AdminClient(properties, logger=line_logger(self._line))
        except KafkaException as error:
            raise Unreachable(f"cluster {self.cluster.name!r}: {failures.reason(error.args[0])}") from error

    def _line(self, text: str) -> None:
        structlog.get_logger().info("client", detail=f"cluster {self.cluster.name!r}: {text}")

    def _noted(self, error: KafkaError) -> None:
        self._errors[error.code()] = error

    def connect(self) -> ClusterInfo:
        """Wait until the cluster answers. Wrong credentials end the wait at once, all else its limit."""
        doing = "reach it"
        deadline = time.monotonic() + self._connect_s
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                raise self._unreachable()
            limit_s = max(0.1, min(left, CONNECT_ATTEMPT_S))
            future = self._client.describe_cluster(include_authorized_operations=True, request_timeout=limit_s)
            try:
                answer = self._wait(future, doing, limit_s=limit_s + 1, stop=self._credentials_refused)
            except KafkaException as error:
                kafka_error = error.args[0]
                if kafka_error.code() in failures.UNREACHABLE:
                    self._client.poll(ASK_AGAIN_S)  # a broker that went down took the question with it: ask again,
                    if kafka_error.code() == KafkaError._TIMED_OUT:  # or it may wait for a controller that is dead
                        self._client = self._made()
                    continue
                raise failures.classify(kafka_error, self.cluster.name, doing, "Describe on the cluster") from error
            rights = answer.authorized_operations
            return ClusterInfo(
                cluster_id=answer.cluster_id or "",
                brokers=tuple(node.id for node in answer.nodes),
                rights=None if not rights else operations(rights),
            )

    def topic_names(self) -> frozenset[str]:
        """Return topics that the user may see, without creating any."""
        return _raised(within(self._topics.names(), self._request_s))

    def describe(self, names: Iterable[str], *, rights: bool = False) -> dict[str, TopicInfo | ReplicatorError]:
        """Describe topics in one request, without configs. Topics that don't exist are left out; a topic's own error,
        such as a missing right, is its value.

        Args:
            rights: ask which operations the user may do.
        """
        answers = within(self._topics.describe(list(names), rights=rights), self._request_s)
        return {name: _own(answer) for name, answer in answers.items() if not isinstance(answer, TopicMissing)}

    def topics(self, names: Iterable[str], *, configs: bool = False, rights: bool = False) -> dict[str, TopicInfo]:
        """Describe topics as `describe` does, but raise the first error. `configs`: with effective configs (needs
        DescribeConfigs)."""
        found = {name: _raised(answer) for name, answer in self.describe(names, rights=rights).items()}
        if not configs:
            return found
        values = self.topic_configs(found)
        return {name: replace(info, configs=values[name]) for name, info in found.items()}

    def describe_configs(self, names: Iterable[str]) -> dict[str, Mapping[str, str] | ReplicatorError]:
        """Return effective configs of existing topics, in one request: what is set on the topic, else the broker's
        default. A topic's own error is its value."""
        answers = within(self._topics.configs(list(names)), self._request_s)
        return {name: _own(answer) for name, answer in answers.items()}

    def topic_configs(self, names: Iterable[str]) -> dict[str, Mapping[str, str]]:
        """Describe configs as `describe_configs` does, but raise the first error."""
        return {name: _raised(answer) for name, answer in self.describe_configs(names).items()}

    def broker_configs(self) -> dict[str, str]:
        """Return configs of one of the brokers."""
        return dict(_raised(within(self._topics.broker_configs(), self._request_s)))

    def create_topics(self, specs: Iterable[TopicSpec], *, dry: bool = False) -> dict[str, bool | ReplicatorError]:
        """Create topics in one request: whether it was created here (False: it exists), or why not, by name.

        Args:
            dry: only ask whether they would be accepted (rights, configs, policies).
        """
        topics = [
            NewTopic(spec.name, spec.partitions, replication_factor=spec.replication_factor, config=dict(spec.configs))
            for spec in specs
        ]
        if not topics:
            return {}
        futures = self._client.create_topics(
            topics, validate_only=dry, request_timeout=self._request_s, operation_timeout=self._request_s
        )
        exists = {KafkaError.TOPIC_ALREADY_EXISTS}
        answers = {
            name: self._outcome(
                future, f"create topic {name!r}", f"Create on topic {name!r} (or on the cluster)", exists, absent=False
            )
            for name, future in futures.items()
        }
        return {
            name: answer if isinstance(answer, ReplicatorError) else answer is not False
            for name, answer in answers.items()
        }

    def grow_topics(self, totals: Mapping[str, int], *, dry: bool = False) -> dict[str, ReplicatorError | None]:
        """Add partitions up to these totals, in one request; why not, by name."""
        if not totals:
            return {}
        futures = self._client.create_partitions(
            [NewPartitions(name, total) for name, total in totals.items()],
            validate_only=dry,
            request_timeout=self._request_s,
            operation_timeout=self._request_s,
        )
        return {
            name: self._outcome(future, f"add partitions to topic {name!r}", f"Alter on topic {name!r}")
            for name, future in futures.items()
        }

    def group_rights(self, group: str) -> frozenset[str] | None:
        """Return the operations that the user may do on a group; None when the broker does not say. NotAllowed:
        none."""
        future = self._client.describe_consumer_groups(
            [group], include_authorized_operations=True, request_timeout=self._request_s
        )[group]
        unknown = {
            KafkaError.GROUP_ID_NOT_FOUND,
            KafkaError.NOT_COORDINATOR,
            KafkaError.COORDINATOR_NOT_AVAILABLE,
            KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
            KafkaError.UNSUPPORTED_VERSION,
            KafkaError._UNSUPPORTED_FEATURE,
        }
        answer = self._result(future, f"describe group {group!r}", f"Describe on group {group!r}", unknown)
        if answer is None or not answer.authorized_operations:
            return None
        return operations(answer.authorized_operations)

    def offsets(
        self, partitions: Iterable[AddressedPartition], *, end: bool, committed_only: bool = False
    ) -> dict[AddressedPartition, int]:
        """Start or end offsets. With `committed_only` the end is the last stable offset."""
        wanted = (STABLE if committed_only else LATEST) if end else EARLIEST
        return {at: found.offset for at, found in self._listed(partitions, wanted).items()}

    def latest_records(self, partitions: Iterable[AddressedPartition]) -> dict[AddressedPartition, tuple[int, int]]:
        """Return offset and timestamp (ms) of the record with the largest timestamp of each partition; both -1 where it
        has no records (KIP-734)."""
        return dict(self._listed(partitions, MAX_TIMESTAMP))

    def _listed(
        self, partitions: Iterable[AddressedPartition], wanted: Wanted
    ) -> dict[AddressedPartition, ListedOffset]:
        asked = self._topics.list_offsets([Partition(*at) for at in partitions], (wanted,), patient=True)
        (found,) = within(asked, self._request_s)
        return {at: _raised(answer) for at, answer in found.items()}

    def until(self, condition: Callable[[], bool], pause_s: float = 0.01) -> bool:
        """Ask again and again within the request timeout, the first time after `pause_s`, then after twice that and so
        on; False when the time is over."""
        deadline = time.monotonic() + self._request_s
        while not condition():
            if time.monotonic() + pause_s > deadline:
                return False
            self._client.poll(pause_s)
            pause_s = min(pause_s * 2, 0.5)
        return True

    def close(self) -> None:
        """Serve what is left and let go of the client, which ends its threads and connections.

        Its callback leads back here: otherwise it would live until the cycle is collected, and who copies looks for
        garbage rarely.
        """
        self._client.poll(0)
        del self._client
        self._topics.close()

    def _outcome(
        self, future: Future[Any], doing: str, right: str, silent: Iterable[int] = (), absent: Any = None
    ) -> Any:
        """Return what `_result` does; an error that concerns this future's resource alone is returned, not raised."""
        try:
            return self._result(future, doing, right, silent, absent)
        except (NotAllowed, Incident) as error:
            return error

    def _result(
        self, future: Future[Any], doing: str, right: str, silent: Iterable[int] = (), absent: Any = None
    ) -> Any:
        """Return the future's result; `absent` when it failed with a code in `silent`."""
        try:
            return self._wait(future, doing, limit_s=self._request_s + 5)
        except KafkaException as error:
            kafka_error = error.args[0]
            if kafka_error.code() in silent:
                return absent
            raise failures.classify(kafka_error, self.cluster.name, doing, right) from error

    def _wait(self, future: Future[T], doing: str, *, limit_s: float, stop: Callable[[], None] | None = None) -> T:
        """Wait while serving librdkafka's error callback, which runs only inside poll."""
        deadline = time.monotonic() + limit_s
        while not future.done():
            if time.monotonic() > deadline:
                self._client = self._made()  # it may wait for a controller that is dead, see `topic_questions`
                raise Unreachable(f"cluster {self.cluster.name!r}: cannot {doing}: no answer in {limit_s:.0f} s")
            wait([future], timeout=0.05)
            self._client.poll(0)
            if stop is not None:
                stop()
        return future.result()

    def _credentials_refused(self) -> None:
        for code in failures.CREDENTIALS:
            if code in self._errors:
                raise failures.classify(self._errors[code], self.cluster.name, "log in")

    def _unreachable(self) -> Unreachable:
        """Return the most telling of the errors seen so far."""
        servers = ", ".join(self.cluster.bootstrap_servers)
        seen = next((self._errors[code] for code in _TELLING if code in self._errors), None)
        why = f": {failures.reason(seen)}" if seen else ""
        return Unreachable(
            f"cluster {self.cluster.name!r} ({servers}) did not answer within {self._connect_s:g} s{why}"
        )


def _raised(answer: T | ReplicatorError) -> T:
    """Return the answer, if it isn't an error."""
    if isinstance(answer, ReplicatorError):
        raise answer
    return answer


def _own(answer: T | ReplicatorError) -> T | ReplicatorError:
    """Return the answer; an error that isn't the topic's own is raised."""
    if isinstance(answer, ReplicatorError) and not isinstance(answer, NotAllowed | Incident):
        raise answer
    return answer
