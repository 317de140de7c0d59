"""The topics of a flow on both clusters: what the source has, and what the target must have before copying.

Invariant: target topics and partitions exist before the first transaction, as the broker refuses to commit
an offset for a partition that it doesn't have, and the positions are keyed by the target's partitions.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import TracebackType

from replicator import names
from replicator.admin import ClusterAdmin, ClusterInfo, TopicInfo, TopicSpec
from replicator.config import Flow
from replicator.errors import Incident, Unreachable
from replicator.planes.contract import Partition
from replicator.planes.records import look
from replicator.routing import literals, selects, target_topic

COPIED_CONFIGS = (
    "cleanup.policy",
    "retention.ms",
    "retention.bytes",
    "compression.type",
    "max.message.bytes",
    "message.timestamp.type",
    "message.timestamp.before.max.ms",
    "message.timestamp.after.max.ms",
    "min.compaction.lag.ms",
    "delete.retention.ms",
    "segment.ms",
)
"""Topic configs that decide what a reader finds. Effective values are copied, so that clusters with different
defaults keep the same records; what concerns the cluster (replicas, placement) stays the target's own."""

TIMESTAMP_TYPE = "message.timestamp.type"
_OLD_BOUND = "message.timestamp.difference.max.ms"
_NEW_BOUNDS = ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms")
CONTROL_CONFIGS = {"cleanup.policy": "compact"}
MAP_CONFIGS = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}


@dataclass(frozen=True, slots=True)
class Growth:
    """Partitions to add to an existing target topic."""

    topic: str
    partitions_before: int
    partitions: int


@dataclass(frozen=True, slots=True)
class Changes:
    """What the target needs before records can be copied."""

    create: tuple[TopicSpec, ...] = ()
    grow: tuple[Growth, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.create or self.grow)


def target_configs(flow: Flow, source: Mapping[str, str]) -> dict[str, str]:
    """Configs of a target topic, from the effective ones of its source topic.

    A source that stamps records with the time of append gets a target that keeps these times (CreateTime),
    because the target would stamp its own; whoever wants that lists message.timestamp.type in
    topic_configs.extra.
    """
    wanted = {key: source[key] for key in (*COPIED_CONFIGS, *flow.topic_configs.extra) if key in source}
    if TIMESTAMP_TYPE in wanted and TIMESTAMP_TYPE not in flow.topic_configs.extra:
        wanted[TIMESTAMP_TYPE] = "CreateTime"
    if _OLD_BOUND in source:  # brokers before KIP-937 have one bound for both directions
        for key in _NEW_BOUNDS:
            wanted.setdefault(key, source[_OLD_BOUND])
    return wanted


def changes(
    flow: Flow, sources: Mapping[str, TopicInfo], targets: Mapping[str, TopicInfo], owned: Collection[str]
) -> Changes:
    """What to create and to grow. Pure.

    Args:
        sources: selected source topics by name.
        targets: existing topics of the target by name.
        owned: target topics in which the flow has a position; only these grow.

    Raises:
        Incident: an existing target topic with fewer partitions that is not the flow's own, or added
            partitions in a flow that stops for them.
    """
    create: list[TopicSpec] = []
    grow: list[Growth] = []
    for name, info in sorted(sources.items()):
        target = target_topic(flow, name)
        existing = targets.get(target)
        if existing is None:
            configs = target_configs(flow, info.configs)
            create.append(TopicSpec(target, info.partitions, flow.topic_configs.replication_factor, configs))
        elif existing.partitions < info.partitions:
            _check_growth(flow, info, existing, owned)
            grow.append(Growth(target, existing.partitions, info.partitions))
    return Changes(tuple(create), tuple(grow))


def _check_growth(flow: Flow, source: TopicInfo, existing: TopicInfo, owned: Collection[str]) -> None:
    counts = f"it has {existing.partitions} partitions, source topic {source.name!r} has {source.partitions}"
    if existing.name not in owned:
        raise Incident(
            "target_topic_too_small",
            f"the target topic exists on cluster {flow.target.name!r} with fewer partitions: {counts}",
            topic=existing.name,
            advice=f"Add partitions to it (to {source.partitions}), delete it, or rename",
        )
    if flow.new_partitions == "stop":
        raise Incident(
            "source_partitions_added",
            f"partitions were added at the source and new_partitions is stop: {counts}",
            topic=existing.name,
            advice="Set new_partitions: copy, or add the partitions at the target yourself",
        )


class ControlPlane:
    """Admin clients on both clusters of a flow. Use from one thread, and close (or use as context manager).

    Every method raises Unreachable, NotAllowed, Retriable, or Incident when a cluster refuses for good.
    """

    def __init__(self, flow: Flow, *, connect_timeout_ms: int | None = None) -> None:
        limits = flow.limits
        patience = limits.connect_timeout_ms if connect_timeout_ms is None else connect_timeout_ms
        self.flow = flow
        self.source, self.target = (
            ClusterAdmin(side, request_timeout_ms=limits.request_timeout_ms, connect_timeout_ms=patience)
            for side in (flow.source, flow.target)
        )

    def __enter__(self) -> ControlPlane:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Lets go of both clusters."""
        self.source.close()
        self.target.close()

    def connect(self) -> tuple[ClusterInfo, ClusterInfo]:
        """Source and target as they answer; bounded by limits.connect_timeout_ms each."""
        return self.source.connect(), self.target.connect()

    def list_source(self, *, configs: bool = True, rights: bool = False) -> dict[str, TopicInfo]:
        """Selected source topics with partitions, ids and effective configs. See `missing` for those not found."""
        wanted = {name for name in self.source.topic_names() if selects(self.flow, name)}
        named = {name for name in literals(self.flow) if selects(self.flow, name)}
        return self.source.topics(wanted | named, configs=configs, rights=rights)

    def missing(self, found: Collection[str]) -> Incident | None:
        """The incident of topics that the flow names (not by a pattern) and that are not among `found`."""
        missing = sorted(name for name in literals(self.flow) if selects(self.flow, name) and name not in found)
        if not missing:
            return None
        return Incident(
            "unknown_source_topic",
            f"cluster {self.flow.source.name!r} has no topic " + ", ".join(repr(name) for name in missing),
            topic=missing[0],
            advice="Correct topics in the flow, or create it",
        )

    def opened_before(self) -> bool:
        """Whether this flow has run before: its control topic is on the target."""
        return bool(self.target.topics([names.control_topic(self.flow.name)]))

    def list_target(
        self, sources: Collection[str], *, configs: bool = False, rights: bool = False
    ) -> dict[str, TopicInfo]:
        """Existing target topics of these source topics, by target name."""
        return self.target.topics((target_topic(self.flow, name) for name in sources), configs=configs, rights=rights)

    def ensure_target(self, sources: Mapping[str, TopicInfo]) -> Changes:
        """Creates and grows target topics, and returns what was done once the target shows it.

        Raises:
            Incident: see `changes`; also when the target refuses a topic for good.
        """
        targets = self.list_target(sources)
        wanted = changes(self.flow, sources, targets, self.owned(sources, targets))
        created = tuple(spec for spec in wanted.create if self.target.create_topic(spec))
        for growth in wanted.grow:
            self.target.grow_topic(growth.topic, growth.partitions)
        self._await_partitions({growth.topic: growth.partitions for growth in wanted.grow})
        self._await_partitions({spec.name: spec.partitions for spec in created})
        met = {spec.name: 1 for spec in wanted.create if spec not in created}
        if not met:
            return wanted
        self._await_partitions(met)  # made by somebody else meanwhile: now visible, and judged as they are
        further = self.ensure_target(sources)
        return Changes(created + further.create, wanted.grow + further.grow)

    def owned(self, sources: Mapping[str, TopicInfo], targets: Mapping[str, TopicInfo]) -> frozenset[str]:
        """Target topics too small for their source in which the flow has positions already."""
        pairs = ((targets.get(target_topic(self.flow, name)), info) for name, info in sources.items())
        small = [there for there, info in pairs if there is not None and there.partitions < info.partitions]
        asked = [Partition(topic.name, number) for topic in small for number in range(topic.partitions)]
        found = look.positions(self.flow, asked)
        return frozenset(at.topic for at, position in found.items() if position is not None)

    def ensure_internal(self, map_partitions: int) -> None:
        """Creates the control topic (one partition, compacted) and the map topic, or checks and grows them.

        Args:
            map_partitions: the number of lanes; the map topic never shrinks.
        """
        control, lane_map = names.control_topic(self.flow.name), names.map_topic(self.flow.name)
        replicas = self.flow.topic_configs.replication_factor
        self.target.create_topic(TopicSpec(control, 1, replicas, CONTROL_CONFIGS))
        self.target.create_topic(TopicSpec(lane_map, map_partitions, replicas, MAP_CONFIGS))
        self._await_partitions({control: 1, lane_map: 1})
        found = self.target.topics((control, lane_map), configs=True)
        check_control_topic(found[control])
        if found[lane_map].partitions < map_partitions:
            self.target.grow_topic(lane_map, map_partitions)
            self._await_partitions({lane_map: map_partitions})

    def _await_partitions(self, expected: Mapping[str, int]) -> None:
        """Until the brokers show what the controller has accepted; Kafka has no event for that."""
        if not expected:
            return

        def shown() -> bool:
            found = self.target.topics(expected)
            return all(name in found and found[name].partitions >= count for name, count in expected.items())

        if not self.target.until(shown):
            raise Unreachable(
                f"cluster {self.flow.target.name!r} accepted topics but does not show them: " + ", ".join(expected)
            )


def check_control_topic(info: TopicInfo) -> None:
    """A control topic that could lose a generation, or split them over partitions, is worse than none."""
    policy = info.configs.get("cleanup.policy", "")
    if info.partitions == 1 and policy == "compact":
        return
    raise Incident(
        "control_topic_unfit",
        f"it has {info.partitions} partitions and cleanup.policy={policy}; it needs 1 and compact",
        topic=info.name,
        advice="Set cleanup.policy=compact; with more than one partition the flow needs another name",
    )
