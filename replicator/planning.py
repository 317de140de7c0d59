"""What a flow would do, found out without changing anything: topics to create, missing rights, limits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from replicator import names, routing
from replicator.admin import ClusterInfo, TopicInfo, TopicSpec
from replicator.config import Config, Flow
from replicator.errors import ConfigError, Incident, NotAllowed, ReplicatorError
from replicator.planes.contract import Partition
from replicator.planes.records import look
from replicator.topics import (
    CONTROL_CONFIGS,
    MAP_CONFIGS,
    TIMESTAMP_TYPE,
    Changes,
    ControlPlane,
    Growth,
    changes,
    check_control_topic,
)

SOURCE_RIGHTS = ("Describe", "DescribeConfigs", "Read")
TARGET_RIGHTS = ("Describe", "DescribeConfigs", "Read", "Write")
GROUP_RIGHTS = ("Describe", "Read")


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that would stop the flow (`error`), or that its owner should know (`warning`)."""

    severity: Literal["error", "warning"]
    kind: Literal["right", "limit", "topic", "position", "conflict", "cluster"]
    message: str
    exit_code: int = 4


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """One topic of the flow. `configs` are those that a created topic gets; empty for an existing one."""

    source: str
    target: str
    partitions: int
    action: Literal["create", "grow", "keep"]
    configs: Mapping[str, str] = field(default_factory=dict)
    partitions_with_position: int = 0


@dataclass(slots=True)
class FlowPlan:
    """The plan of one flow. `unchecked` names rights that no read-only request can prove."""

    flow: str
    source: str
    target: str
    topics: list[TopicPlan] = field(default_factory=list)
    internal: list[TopicSpec] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)

    def exit_code(self) -> int:
        """0, or the code with which `run` would end."""
        codes = {finding.exit_code for finding in self.findings if finding.severity == "error"}
        return next((code for code in (4, 3, 2) if code in codes), 0)


def plan(flow: Flow, config: Config, *, connect_timeout_ms: int) -> FlowPlan:
    """Asks both clusters. Errors become findings, so that one missing right hides no other."""
    result = FlowPlan(flow.name, flow.source.name, flow.target.name)
    with ControlPlane(flow, connect_timeout_ms=connect_timeout_ms) as clusters:
        planner = _Planner(flow, config, clusters, result)
        planner.attempt(planner.run, "cluster")
    return result


class _Planner:
    """The steps of one plan."""

    def __init__(self, flow: Flow, config: Config, clusters: ControlPlane, result: FlowPlan) -> None:
        self._flow, self._config, self._clusters, self._result = flow, config, clusters, result

    def attempt(self, step: Callable[[], object], kind: Literal["topic", "cluster", "right", "position"]) -> bool:
        """Runs a step; what it raises on purpose is a finding, and False."""
        try:
            step()
        except ReplicatorError as error:
            named = "right" if isinstance(error, NotAllowed) else kind
            self._result.findings.append(Finding("error", named, str(error), error.exit_code))
            return False
        return True

    def run(self) -> None:
        source, target = self._clusters.connect()
        self.attempt(lambda: self._conflicts(source, target), "topic")
        self.attempt(lambda: self._limits(target), "cluster")
        self.attempt(self._internal, "topic")
        # Without that right positions cannot be read, and waiting for them would be in vain.
        readable = self.attempt(self._group, "right")
        sources = self._sources()
        if not sources:
            self._warn("topic", f"no topic of cluster {self._flow.source.name!r} is selected now")
        targets = self._targets(sources)
        self._sizes(sources, targets)
        self.attempt(lambda: self._topics(sources, targets, readable), "topic")
        self._result.unchecked += [
            f"Write and Describe on transactional ids eos.{self._flow.name}.*",
            *(f"Write on topic {item.target!r}" for item in self._result.topics if item.action == "create"),
        ]

    def _error(self, kind: Literal["right", "limit", "position"], message: str, exit_code: int = 4) -> None:
        self._result.findings.append(Finding("error", kind, message, exit_code))

    def _warn(self, kind: Literal["limit", "topic", "right"], message: str) -> None:
        self._result.findings.append(Finding("warning", kind, message))

    def _conflicts(self, source: ClusterInfo, target: ClusterInfo) -> None:
        known = {self._flow.source.name: self._clusters.source.topic_names()}
        identity = {self._flow.source.name: source.cluster_id, self._flow.target.name: target.cluster_id}
        found = routing.conflicts(self._config.flows.values(), known, identity)
        for conflict in found:
            if conflict.flow == self._flow.name:
                code = ConfigError.exit_code
                self._result.findings.append(Finding("error", "conflict", conflict.message, code))

    def _sources(self) -> dict[str, TopicInfo]:
        """Source topics with their configs, where they may be read."""
        found = self._clusters.list_source(rights=True, configs=False)
        missing = self._clusters.missing(found)
        if missing is not None:
            self._result.findings.append(Finding("error", "topic", str(missing), missing.exit_code))
        self._rights(found.values(), SOURCE_RIGHTS, self._flow.source.name)
        return self._with_configs(found, self._clusters.source.topic_configs)

    def _targets(self, sources: Mapping[str, TopicInfo]) -> dict[str, TopicInfo]:
        found = self._described(routing.target_topic(self._flow, name) for name in sources)
        self._rights(found.values(), TARGET_RIGHTS, self._flow.target.name)
        return self._with_configs(found, self._clusters.target.topic_configs)

    def _described(self, target_names: Iterable[str]) -> dict[str, TopicInfo]:
        """Existing topics of the target, asked one by one: one that may not be seen hides no other."""
        found: dict[str, TopicInfo] = {}

        def ask(name: str) -> None:
            found.update(self._clusters.target.topics([name], rights=True))

        for name in target_names:
            self.attempt(partial(ask, name), "topic")
        return found

    def _with_configs(
        self, found: Mapping[str, TopicInfo], ask: Callable[[Iterable[str]], dict[str, dict[str, str]]]
    ) -> dict[str, TopicInfo]:
        """Configs of those topics whose user may see them (the others have a finding already)."""
        told = [name for name, info in found.items() if info.rights is None or "DescribeConfigs" in info.rights]
        configs = ask(told)
        return {
            name: TopicInfo(name, info.topic_id, info.partitions, configs.get(name, {}), info.rights)
            for name, info in found.items()
        }

    def _rights(self, infos: Iterable[TopicInfo], needed: Iterable[str], cluster: str) -> None:
        for info in infos:
            missing = [right for right in needed if info.rights is not None and right not in info.rights]
            if missing:
                message = f"cluster {cluster!r}: the user needs {', '.join(missing)} on topic {info.name!r}"
                self._error("right", message, NotAllowed.exit_code)

    def _group(self) -> None:
        group = names.position_group(self._flow.name)
        rights = self._clusters.target.group_rights(group)
        missing = [right for right in GROUP_RIGHTS if rights is not None and right not in rights]
        if missing:
            message = f"cluster {self._flow.target.name!r}: the user needs {', '.join(missing)} on group {group!r}"
            self._error("right", message, NotAllowed.exit_code)

    def _internal(self) -> None:
        flow, target = self._flow, self._clusters.target
        replicas = flow.topic_configs.replication_factor
        specs = [
            TopicSpec(names.control_topic(flow.name), 1, replicas, CONTROL_CONFIGS),
            TopicSpec(names.map_topic(flow.name), flow.lanes, replicas, MAP_CONFIGS),
        ]
        found = self._described(spec.name for spec in specs)
        self._rights(found.values(), TARGET_RIGHTS, flow.target.name)
        for name, info in self._with_configs(found, target.topic_configs).items():
            if name == specs[0].name and info.configs:
                check_control_topic(info)
        for spec in specs:
            if spec.name not in found:
                self._result.internal.append(spec)
                self._try_create(spec)

    def _try_create(self, spec: TopicSpec) -> None:
        self.attempt(partial(self._clusters.target.create_topic, spec, dry=True), "topic")

    def _try_grow(self, growth: Growth) -> None:
        grow = self._clusters.target.grow_topic
        self.attempt(partial(grow, growth.topic, growth.partitions, dry=True), "topic")

    def _topics(
        self, sources: Mapping[str, TopicInfo], targets: Mapping[str, TopicInfo], positions_readable: bool
    ) -> None:
        wanted = Changes()
        owned = self._clusters.owned(sources, targets) if positions_readable else frozenset(targets)
        for name, info in sources.items():
            try:
                one = changes(self._flow, {name: info}, targets, owned)
            except Incident as error:
                self._result.findings.append(Finding("error", "topic", str(error), error.exit_code))
                continue
            wanted = Changes(wanted.create + one.create, wanted.grow + one.grow)
            self._result.topics.append(_topic_plan(self._flow, info, one))
        for spec in wanted.create:
            self._try_create(spec)
        for growth in wanted.grow:
            self._try_grow(growth)
        if positions_readable:
            self.attempt(lambda: self._positions(targets), "position")

    def _positions(self, targets: Mapping[str, TopicInfo]) -> None:
        """How many partitions have a position; one with data and none would stop the flow (invariant 7)."""
        counts: dict[str, int] = {}
        for item in self._result.topics:
            if item.target in targets:
                counts[item.target] = min(item.partitions, targets[item.target].partitions)
        asked = [Partition(topic, number) for topic, count in counts.items() for number in range(count)]
        found = look.positions(self._flow, asked)
        without = [at for at, position in found.items() if position is None]
        ends = self._clusters.target.offsets(without, end=True)
        for at in without:
            if ends[at] > 0:
                self._error(
                    "position",
                    f"target {at} holds data (end offset {ends[at]}) but the flow has no position there; "
                    "it would not start, so as not to copy twice",
                )
        have = [at.topic for at, position in found.items() if position is not None]
        self._result.topics = [_counted(item, have.count(item.target)) for item in self._result.topics]

    def _limits(self, target: ClusterInfo) -> None:
        if not target.brokers:
            return
        try:
            configs = self._clusters.target.broker_configs(target.brokers[0])
        except (NotAllowed, Incident) as error:
            self._warn("right", f"{error}; limits of the target are not checked")
            return
        for message in limit_faults(self._flow, configs):
            self._error("limit", message)

    def _sizes(self, sources: Mapping[str, TopicInfo], targets: Mapping[str, TopicInfo]) -> None:
        for message in size_warnings(self._flow, sources, targets):
            self._warn("limit", message)


def limit_faults(flow: Flow, broker: Mapping[str, str]) -> Iterator[str]:
    """Limits of the target's brokers that would stop the flow, or lose its positions. Pure."""
    timeout_ms, max_ms = flow.limits.transaction_timeout_ms, broker.get("transaction.max.timeout.ms")
    if max_ms is not None and timeout_ms > int(max_ms):
        yield f"limits.transaction_timeout_ms is {timeout_ms}, the target allows {max_ms} (transaction.max.timeout.ms)"
    retention_min = broker.get("offsets.retention.minutes")
    if retention_min is not None and int(retention_min) * 60_000 < 2 * flow.limits.recommit_interval_ms:
        yield (
            f"the target forgets positions after {retention_min} minutes (offsets.retention.minutes); "
            f"limits.recommit_interval_ms is {flow.limits.recommit_interval_ms} and must be less than half of that"
        )


def size_warnings(flow: Flow, sources: Mapping[str, TopicInfo], targets: Mapping[str, TopicInfo]) -> Iterator[str]:
    """Records that could be too large on the way, and times that the target would replace. Pure."""
    record_max = flow.limits.record_bytes_max
    for name, info in sources.items():
        largest = int(info.configs.get("max.message.bytes", "0"))
        if largest > record_max:
            yield f"topic {name!r} takes batches of {largest} bytes; limits.record_bytes_max is {record_max}"
        there = targets.get(routing.target_topic(flow, name))
        if there is None:
            continue
        limit = there.configs.get("max.message.bytes")
        if limit is not None and largest > int(limit):
            yield (
                f"target topic {there.name!r} takes {limit} bytes, source topic {name!r} {largest} "
                "(max.message.bytes); a larger record would stop the flow"
            )
        if there.configs.get(TIMESTAMP_TYPE) == "LogAppendTime":
            yield f"target topic {there.name!r} stamps records anew (LogAppendTime): timestamps will differ"


def _topic_plan(flow: Flow, info: TopicInfo, wanted: Changes) -> TopicPlan:
    target = routing.target_topic(flow, info.name)
    if wanted.create:
        return TopicPlan(info.name, target, info.partitions, "create", wanted.create[0].configs)
    return TopicPlan(info.name, target, info.partitions, "grow" if wanted.grow else "keep")


def _counted(item: TopicPlan, count: int) -> TopicPlan:
    return TopicPlan(item.source, item.target, item.partitions, item.action, item.configs, count)
