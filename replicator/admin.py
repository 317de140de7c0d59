"""One cluster's control plane over confluent-kafka's admin client: bounded waits, errors name the cluster.

librdkafka retries connecting for ever and says so only through its error callback; `connect` turns that into
one error within its time. Offsets of groups are not read here: the admin call for it crashes the process in
librdkafka 2.16 while the group coordinator is still coming up (see planes/records/look.py).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from typing import Any, TypeVar

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka import TopicCollection as Names
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclOperation,
    AdminClient,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)

from replicator.config import Cluster
from replicator.errors import Incident, NotAllowed, ReplicatorError, Retriable, Unreachable

T = TypeVar("T")
ASK_AGAIN_S = 0.05  # between two questions to a cluster whose broker has just gone
AddressedPartition = tuple[str, int]

_DENIED = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
_CREDENTIALS = {KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED}
_GONE = {
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
    KafkaError._SSL,
    KafkaError.REQUEST_TIMED_OUT,
}
_UNKNOWN_TOPIC = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC}
_TELLING = (KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError._RESOLVE, KafkaError._TRANSPORT)
"""Local errors from the most to the least telling: which one the operator should read."""


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic as its cluster describes it. `rights` are operations the user may do; None when not asked."""

    name: str
    topic_id: str
    partitions: int
    configs: Mapping[str, str] = field(default_factory=dict)
    rights: frozenset[str] | None = None


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


def classify(error: KafkaError, cluster: str, doing: str, right: str = "") -> ReplicatorError:
    """What the worker does about a Kafka error.

    Args:
        cluster: its name in the flow file.
        doing: what was tried, in words that follow "cannot".
        right: operation and resource that the attempt needs, such as "Create on topic x".
    """
    code = error.code()
    text = _reason(error)
    if code in _DENIED:
        return NotAllowed(f"cluster {cluster!r}: not allowed to {doing}; the user needs {right or text}")
    if code in _CREDENTIALS:
        return Unreachable(f"cluster {cluster!r} refused the credentials: {text}")
    if code in _GONE:
        return Unreachable(f"cluster {cluster!r}: cannot {doing}: {text}")
    if error.retriable() or code in (KafkaError.NOT_COORDINATOR, KafkaError.NOT_CONTROLLER):
        return Retriable(f"cluster {cluster!r}: cannot {doing} now: {text}")
    return Incident("refused_by_cluster", f"cluster {cluster!r}: cannot {doing}: {error.name()}: {text}")


def client_properties(cluster: Cluster, **own: Any) -> dict[str, Any]:
    """librdkafka settings of a client that looks and administrates; `own` wins over the file."""
    quiet = {} if "debug" in cluster.properties or "log_level" in cluster.properties else {"log_level": 0}
    return {
        "client.id": "eos-replicate",
        "enable.metrics.push": "false",
        **quiet,
        **cluster.properties,
        **own,
    }


class ClusterAdmin:
    """Blocking calls, each bounded by the request timeout. Used from one thread.

    Raises, in every method: Unreachable, NotAllowed, Retriable, or Incident for a refusal of another kind.
    """

    def __init__(self, cluster: Cluster, *, request_timeout_ms: int, connect_timeout_ms: int) -> None:
        self.cluster = cluster
        self._request_s = request_timeout_ms / 1000
        self._connect_s = connect_timeout_ms / 1000
        self._errors: dict[int, KafkaError] = {}
        logger = logging.getLogger("replicator.librdkafka")
        properties = client_properties(cluster, error_cb=self._noted)
        try:
            self._client = AdminClient(properties, logger=logger)
        except KafkaException as error:
            raise Unreachable(f"cluster {cluster.name!r}: {_reason(error.args[0])}") from error

    def _noted(self, error: KafkaError) -> None:
        self._errors[error.code()] = error

    def connect(self) -> ClusterInfo:
        """Waits until the cluster answers. Wrong credentials end the wait at once, all else its limit."""
        doing = "reach it"
        deadline = time.monotonic() + self._connect_s
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                raise self._unreachable()
            future = self._client.describe_cluster(include_authorized_operations=True, request_timeout=max(left, 0.1))
            try:
                answer = self._wait(future, doing, limit_s=left + 1, stop=self._credentials_refused)
            except KafkaException as error:
                kafka_error = error.args[0]
                if kafka_error.code() in _GONE:  # a broker that went down took the question with it: ask again
                    self._client.poll(ASK_AGAIN_S)
                    continue
                raise classify(kafka_error, self.cluster.name, doing, "Describe on the cluster") from error
            rights = answer.authorized_operations
            return ClusterInfo(
                cluster_id=answer.cluster_id or "",
                brokers=tuple(node.id for node in answer.nodes),
                rights=None if not rights else _rights(rights),
            )

    def topic_names(self) -> frozenset[str]:
        """Topics that the user may see, without creating any."""
        try:
            listed = self._client.list_topics(timeout=self._request_s)
        except KafkaException as error:
            raise classify(error.args[0], self.cluster.name, "list topics", "Describe on topics") from error
        return frozenset(listed.topics)

    def topics(self, names: Iterable[str], *, configs: bool = False, rights: bool = False) -> dict[str, TopicInfo]:
        """Describes topics; those that don't exist are left out.

        Args:
            configs: ask for effective topic configs too (needs DescribeConfigs).
            rights: ask which operations the user may do.
        """
        wanted = sorted(set(names))
        if not wanted:
            return {}
        futures = self._client.describe_topics(
            Names(wanted), include_authorized_operations=rights, request_timeout=self._request_s
        )
        found: dict[str, TopicInfo] = {}
        for name, future in futures.items():
            answer = self._result(future, f"describe topic {name!r}", f"Describe on topic {name!r}", _UNKNOWN_TOPIC)
            if answer is not None:
                allowed = _rights(answer.authorized_operations) if answer.authorized_operations else None
                found[name] = TopicInfo(name, str(answer.topic_id), len(answer.partitions), {}, allowed)
        if not configs:
            return found
        values = self.topic_configs(found)
        return {
            name: TopicInfo(name, info.topic_id, info.partitions, values[name], info.rights)
            for name, info in found.items()
        }

    def topic_configs(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        """Effective configs of existing topics: what is set on the topic, else the broker's default."""
        return self._configs(ConfigResource.Type.TOPIC, sorted(set(names)), "topic {!r}")

    def broker_configs(self, broker: int) -> dict[str, str]:
        """Configs of a broker."""
        name = str(broker)
        return self._configs(ConfigResource.Type.BROKER, [name], "the cluster")[name]

    def _configs(self, kind: Any, names: list[str], words: str) -> dict[str, dict[str, str]]:
        """Set configs by resource; `words` name a resource to the operator."""
        if not names:
            return {}
        resources = [ConfigResource(kind, name) for name in names]
        found: dict[str, dict[str, str]] = {}
        for resource, future in self._client.describe_configs(resources, request_timeout=self._request_s).items():
            what = words.format(resource.name)
            entries = self._result(future, f"read the configs of {what}", f"DescribeConfigs on {what}")
            found[resource.name] = {e.name: e.value for e in entries.values() if e.value is not None}
        return found

    def create_topic(self, spec: TopicSpec, *, dry: bool = False) -> bool:
        """Creates a topic; False when it exists already.

        Args:
            dry: only ask whether it would be accepted (rights, configs, policies).
        """
        topic = NewTopic(
            spec.name, spec.partitions, replication_factor=spec.replication_factor, config=dict(spec.configs)
        )
        future = self._client.create_topics(
            [topic], validate_only=dry, request_timeout=self._request_s, operation_timeout=self._request_s
        )[spec.name]
        doing = f"create topic {spec.name!r}"
        right = f"Create on topic {spec.name!r} (or on the cluster)"
        exists = {KafkaError.TOPIC_ALREADY_EXISTS}
        return self._result(future, doing, right, exists, absent=False) is not False

    def grow_topic(self, name: str, partitions: int, *, dry: bool = False) -> None:
        """Adds partitions up to a total of `partitions`."""
        future = self._client.create_partitions(
            [NewPartitions(name, partitions)],
            validate_only=dry,
            request_timeout=self._request_s,
            operation_timeout=self._request_s,
        )[name]
        self._result(future, f"add partitions to topic {name!r}", f"Alter on topic {name!r}")

    def group_rights(self, group: str) -> frozenset[str] | None:
        """Operations that the user may do on a group; None when the broker does not say. NotAllowed: none."""
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
        return _rights(answer.authorized_operations)

    def offsets(
        self, partitions: Iterable[AddressedPartition], *, end: bool, committed_only: bool = False
    ) -> dict[AddressedPartition, int]:
        """Start or end offsets. With `committed_only` the end is the last stable offset."""
        spec = OffsetSpec.latest() if end else OffsetSpec.earliest()  # type: ignore[no-untyped-call]
        level = IsolationLevel.READ_COMMITTED if committed_only else IsolationLevel.READ_UNCOMMITTED
        request = {TopicPartition(topic, partition): spec for topic, partition in partitions}
        if not request:
            return {}
        futures = self._client.list_offsets(request, isolation_level=level, request_timeout=self._request_s)
        return {
            (at.topic, at.partition): self._result(
                future, f"read offsets of {at.topic}[{at.partition}]", f"Describe on topic {at.topic!r}"
            ).offset
            for at, future in futures.items()
        }

    def until(self, condition: Callable[[], bool]) -> bool:
        """Asks again and again within the request timeout; False when the time is over."""
        deadline = time.monotonic() + self._request_s
        pause_s = 0.01
        while not condition():
            if time.monotonic() + pause_s > deadline:
                return False
            self._client.poll(pause_s)
            pause_s = min(pause_s * 2, 0.5)
        return True

    def close(self) -> None:
        """Serves what is left and lets go of the client, which ends its threads and connections.

        Its callback leads back here: otherwise it would live until the cycle is collected, and who copies looks for
        garbage rarely.
        """
        self._client.poll(0)
        del self._client

    def _result(
        self, future: Future[Any], doing: str, right: str, silent: Iterable[int] = (), absent: Any = None
    ) -> Any:
        """The future's result; `absent` when it failed with a code in `silent`."""
        try:
            return self._wait(future, doing, limit_s=self._request_s + 5)
        except KafkaException as error:
            kafka_error = error.args[0]
            if kafka_error.code() in silent:
                return absent
            raise classify(kafka_error, self.cluster.name, doing, right) from error

    def _wait(self, future: Future[T], doing: str, *, limit_s: float, stop: Callable[[], None] | None = None) -> T:
        """Waits while serving librdkafka's error callback, which runs only inside poll."""
        deadline = time.monotonic() + limit_s
        while not future.done():
            if time.monotonic() > deadline:
                raise Unreachable(f"cluster {self.cluster.name!r}: cannot {doing}: no answer in {limit_s:.0f} s")
            wait([future], timeout=0.05)
            self._client.poll(0)
            if stop is not None:
                stop()
        return future.result()

    def _credentials_refused(self) -> None:
        for code in (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED):
            if code in self._errors:
                raise classify(self._errors[code], self.cluster.name, "log in")

    def _unreachable(self) -> Unreachable:
        """The most telling of the errors seen so far."""
        servers = ", ".join(self.cluster.bootstrap_servers)
        seen = next((self._errors[code] for code in _TELLING if code in self._errors), None)
        why = f": {_reason(seen)}" if seen else ""
        return Unreachable(
            f"cluster {self.cluster.name!r} ({servers}) did not answer within {self._connect_s:g} s{why}"
        )


def _rights(operations: Iterable[AclOperation]) -> frozenset[str]:
    """Kafka's own spelling of operations: DESCRIBE_CONFIGS → DescribeConfigs."""
    return frozenset(operation.name.title().replace("_", "") for operation in operations)


def _reason(error: KafkaError) -> str:
    """librdkafka's text without its noise about states and retries."""
    text = str(error.str()).split(" (after ")[0]
    return text.removeprefix("Broker: ").strip() or str(error.name())
