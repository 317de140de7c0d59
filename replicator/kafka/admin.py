"""One cluster's control plane over confluent-kafka's admin client: bounded waits, errors name the cluster.

What any broker can answer is asked through `topic_questions`; librdkafka's client is for what only the controller or a
coordinator does. Offsets of groups are not read here: the admin call for it crashes the process in
librdkafka 2.16 while the group coordinator is still coming up (see `kafka.offset_reader`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from replicator.backoff import longer
from replicator.config import Cluster
from replicator.kafka import failures
from replicator.kafka.acl_bindings import acl_of, binding_of
from replicator.kafka.client_log import line_logger
from replicator.kafka.cluster_info import ClusterInfo
from replicator.kafka.offset_questions import EARLIEST, LATEST, MAX_TIMESTAMP, STABLE, ListedOffset, Wanted, of_each
from replicator.kafka.properties import client_properties
from replicator.kafka.topic_questions import TopicInfo, TopicQuestions, operations, raised, within
from replicator.model.acls import TopicAcl
from replicator.model.errors import Incident, NotAllowed, ReplicatorError, TopicMissing, Unreachable
from replicator.model.partition import Partition

T = TypeVar("T")
AddressedPartition = tuple[str, int]
ACLS_MAX = 1_000
"""How many ACLs are created by one request."""


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic to create. `replication_factor` -1 takes the cluster's default."""

    name: str
    partitions: int
    replication_factor: int
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member of a consumer group, as its coordinator knows it. `host` is the address that it connects from,
    `assignment` what its group's protocol says that it has been given."""

    client_id: str
    host: str
    assignment: bytes = b""


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
        self._made: AdminClient | None = None

    @property
    def _client(self) -> AdminClient:
        """Made when it is needed: until `connect` a token command may have no token for it."""
        if self._made is None:
            try:
                self._made = AdminClient(client_properties(self.cluster), logger=line_logger(self._line))
            except KafkaException as error:
                raise Unreachable(f"cluster {self.cluster.name!r}: {failures.reason(error.args[0])}") from error
        return self._made

    def _line(self, text: str) -> None:
        import structlog  # takes 70 ms, and most commands log nothing

        structlog.get_logger().info("client", detail=f"cluster {self.cluster.name!r}: {text}")

    def connect(self, waits: Callable[[object], None] | None = None) -> ClusterInfo:
        """Wait until the cluster answers. Wrong credentials end the wait at once, all else its limit, or what `waits`
        raises, see `within`: it gets the reason why nobody answers."""
        found = within(self._topics.cluster_info(), self._connect_s, waits)
        if isinstance(found, Unreachable) and not failures.refuses_credentials(found, self.cluster.name):
            servers = ", ".join(self.cluster.bootstrap_servers)
            why = f": {found}" if str(found) else ""
            raise Unreachable(
                f"cluster {self.cluster.name!r} ({servers}) did not answer within {self._connect_s:g} s{why}"
            ) from found
        return raised(found)

    def topic_names(self) -> frozenset[str]:
        """Return topics that the user may see, without creating any."""
        return raised(within(self._topics.names(), self._request_s))

    def describe(self, names: Iterable[str], *, rights: bool = False) -> dict[str, TopicInfo | ReplicatorError]:
        """Describe topics in one request, without configs. Topics that don't exist are left out; a topic's own error,
        such as a missing right, is its value.

        Args:
            rights: ask which operations the user may do.
        """
        answers = within(self._topics.describe(list(names), rights=rights), self._request_s)
        return {name: _own(answer) for name, answer in answers.items() if not isinstance(answer, TopicMissing)}

    def topics(self, names: Iterable[str], *, configs: bool = False, rights: bool = False) -> dict[str, TopicInfo]:
        """Describe topics as `describe` does, but raise the first error. `configs`: with them (DescribeConfigs)."""
        if not configs:
            return {name: raised(answer) for name, answer in self.describe(names, rights=rights).items()}
        described, values = self.describe_with_configs(names, rights=rights)
        found = {name: raised(answer) for name, answer in described.items()}
        return {name: replace(info, configs=raised(values[name])) for name, info in found.items()}

    def describe_with_configs(
        self, names: Iterable[str], *, rights: bool = False
    ) -> tuple[dict[str, TopicInfo | ReplicatorError], dict[str, Mapping[str, str] | ReplicatorError]]:
        """Return what `describe` does and, asked for at the same time, the effective configs of those topics: what is
        set on the topic, else the broker's default. A topic's own error is its value. Of a topic that may not be
        described there are no configs, but perhaps the error that they may not be seen either."""
        asked = list(names)
        configs = self._topics.configs(asked)
        described = self.describe(asked, rights=rights)
        answers = within(configs, self._request_s)
        told = {name: answers[name] for name, it in described.items() if isinstance(it, TopicInfo)}
        denied = {name: answers[name] for name, it in described.items() if isinstance(it, NotAllowed)}
        refused = {name: it for name, it in denied.items() if isinstance(it, NotAllowed)}
        return described, {name: _own(it) for name, it in (told | refused).items()}

    def broker_configs(self) -> dict[str, str]:
        """Return configs of one of the brokers."""
        return dict(raised(within(self._topics.broker_configs(), self._request_s)))

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

    def set_configs(
        self, wanted: Mapping[str, Mapping[str, str]], *, dry: bool = False
    ) -> dict[str, ReplicatorError | None]:
        """Set configs of topics, in one request, and leave their other ones (IncrementalAlterConfigs, KIP-339); why
        not, by name.

        Args:
            dry: only ask whether they would be accepted (rights, values, policies).
        """
        if not wanted:
            return {}
        futures = self._client.incremental_alter_configs(
            [_resource(name, values) for name, values in wanted.items()],
            validate_only=dry,
            request_timeout=self._request_s,
        )
        return {
            resource.name: self._outcome(
                future, f"set configs of topic {resource.name!r}", f"AlterConfigs on topic {resource.name!r}"
            )
            for resource, future in futures.items()
        }

    def delete_records(self, before: Mapping[Partition, int]) -> None:
        """Drop the records of partitions below these offsets (DeleteRecords, KIP-107). Raises the first error."""
        wanted = [TopicPartition(at.topic, at.partition, offset) for at, offset in before.items()]
        if not wanted:
            return
        futures = self._client.delete_records(
            wanted, request_timeout=self._request_s, operation_timeout=self._request_s
        )
        for at, future in futures.items():
            self._result(future, f"delete records of topic {at.topic!r}", f"Delete on topic {at.topic!r}")

    def topic_acls(self) -> list[TopicAcl]:
        """Return all ACLs of topics."""
        wanted = AclBindingFilter(
            restype=ResourceType.TOPIC,
            name=None,  # type: ignore[arg-type]  # None: any
            resource_pattern_type=ResourcePatternType.ANY,
            principal=None,  # type: ignore[arg-type]
            host=None,  # type: ignore[arg-type]
            operation=AclOperation.ANY,
            permission_type=AclPermissionType.ANY,
        )
        future = self._client.describe_acls(wanted, request_timeout=self._request_s)
        return [acl_of(binding) for binding in self._result(future, "list ACLs", "Describe on the cluster")]

    def create_acls(self, wanted: Collection[TopicAcl]) -> dict[TopicAcl, ReplicatorError | None]:
        """Create ACLs, in requests of `ACLS_MAX`; one that is there already stays. Why not, by ACL."""
        left, answers = sorted(wanted), dict[TopicAcl, ReplicatorError | None]()
        for at in range(0, len(left), ACLS_MAX):
            bindings = {acl: binding_of(acl) for acl in left[at : at + ACLS_MAX]}
            futures = self._client.create_acls(list(bindings.values()), request_timeout=self._request_s)
            answers |= {
                acl: self._outcome(futures[binding], "create ACLs", "Alter on the cluster")
                for acl, binding in bindings.items()
            }
        return answers

    def group_rights(self, group: str) -> frozenset[str] | None:
        """Return which operations the user may do on a group; None where the broker doesn't say. NotAllowed: none."""
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
            KafkaError._INVALID_ARG,  # librdkafka's, of a group whose members aren't consumers, as Kafka Connect's
        }
        answer = self._result(future, f"describe group {group!r}", f"Describe on group {group!r}", unknown)
        if answer is None or not answer.authorized_operations:
            return None
        return operations(answer.authorized_operations)

    def members(
        self, group: str, timeout_s: float | None = None, hidden: Callable[[], list[GroupMember]] = list
    ) -> list[GroupMember]:
        """List the members of a group of any classic protocol, such as Kafka Connect's; none where there is no such
        group, and none where the user may not describe it. From any thread. `timeout_s`: instead of the request
        timeout. `hidden`: lists them where there is such a group, but DescribeGroups doesn't know it, as one of the new
        protocol."""
        try:
            found = self._client.list_groups(group, self._request_s if timeout_s is None else timeout_s)
        except KafkaException as error:
            raise failures.classify(
                error.args[0], self.cluster.name, f"describe group {group!r}", f"Describe on group {group!r}"
            ) from error
        members = [
            GroupMember(each.client_id or "", each.client_host or "", each.assignment or b"")
            for it in found
            for each in it.members
        ]
        return members if members or all(it.state == "Empty" for it in found) else hidden()

    def count_members(self, group: str, hidden: Callable[[], list[GroupMember]] = list) -> int:
        """Count the members of a group. `hidden`: as of `members`. Raises NotAllowed where the user may not describe
        it: it isn't known then."""
        members = self.members(group, hidden=hidden)
        if not members:
            self.group_rights(group)
        return len(members)

    def offsets(
        self, partitions: Iterable[AddressedPartition], *, end: bool, committed_only: bool = False
    ) -> dict[AddressedPartition, int]:
        """Start or end offsets. With `committed_only` the end is the last stable offset."""
        wanted = (STABLE if committed_only else LATEST) if end else EARLIEST
        return {at: found.offset for at, found in self._listed(partitions, wanted).items()}

    def listed_offsets(
        self, ats: Collection[Partition], wanted: Wanted, *, patient: bool = False
    ) -> dict[Partition, ListedOffset | ReplicatorError]:
        """Return an offset of each log, or why it isn't known. `patient`: as of `TopicQuestions.list_offsets`."""
        return within(self._topics.list_offsets(ats, (wanted,), patient=patient), self._request_s)[0]

    def several_offset_answers(
        self, partitions: Collection[Partition], wanted: Sequence[Wanted], *, patient: bool = False
    ) -> dict[Partition, tuple[int, ...] | ReplicatorError]:
        """Return several offsets of each log, or why one isn't known. Arguments as of `TopicQuestions.list_offsets`."""
        return of_each(within(self._topics.list_offsets(partitions, wanted, patient=patient), self._request_s))

    def latest_records(self, partitions: Iterable[AddressedPartition]) -> dict[AddressedPartition, tuple[int, int]]:
        """Return offset and timestamp (ms) of the record with the largest timestamp of each partition; both -1 where it
        has no records (KIP-734), or that record isn't replicated yet."""
        return {at: (it.offset, it.timestamp_ms) for at, it in self._listed(partitions, MAX_TIMESTAMP).items()}

    def _listed(self, ats: Iterable[AddressedPartition], wanted: Wanted) -> dict[AddressedPartition, ListedOffset]:
        found = self.listed_offsets([Partition(*at) for at in ats], wanted, patient=True)
        return {at: raised(answer) for at, answer in found.items()}

    def ask_another(self) -> None:
        """See `TopicQuestions`."""
        self._topics.ask_another()

    def until(self, condition: Callable[[], bool], pause_s: float = 0.01) -> bool:
        """Ask again and again within the request timeout, the first time after `pause_s`, then after twice that and so
        on; False when the time is over."""
        deadline = time.monotonic() + self._request_s
        while not condition():
            if time.monotonic() + pause_s > deadline:
                return False
            self._client.poll(pause_s)
            pause_s = longer(pause_s, 0.5)
        return True

    def close(self) -> None:
        """Serve what is left and let go of the client, which ends its threads and connections.

        Its callback leads back here: otherwise it would live until the cycle is collected, and who copies looks for
        garbage rarely.
        """
        if self._made is not None:
            self._made.poll(0)
            self._made = None
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

    def _wait(self, future: Future[T], doing: str, *, limit_s: float) -> T:
        """Wait while serving librdkafka's log lines, which are handed over only inside poll."""
        deadline = time.monotonic() + limit_s
        while not future.done():
            if time.monotonic() > deadline:
                self._made = None  # it may wait for a controller that is dead, see `topic_questions`
                raise Unreachable(f"cluster {self.cluster.name!r}: cannot {doing}: no answer in {limit_s:.0f} s")
            wait([future], timeout=0.05)
            self._client.poll(0)
        return future.result()


def _resource(topic: str, values: Mapping[str, str]) -> ConfigResource:
    entries = [
        ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in sorted(values.items())
    ]
    return ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)


def _own(answer: T | ReplicatorError) -> T | ReplicatorError:
    """Return the answer; an error that isn't the topic's own is raised."""
    if isinstance(answer, ReplicatorError) and not isinstance(answer, NotAllowed | Incident):
        raise answer
    return answer
