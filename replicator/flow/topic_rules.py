"""What becomes of one source topic: created or grown at the target, copied, stopped by an incident, or waiting. Pure.

Called by `flow.setup` at start and at each discovery, and by `inspect.planning`: both say the same of a topic, and each
topic is decided on by itself, so that the conflict of one never hides another's.

Invariants
- Target topics and partitions exist before the first transaction: the broker refuses an offset for a partition that it
  doesn't have, and positions are keyed by the target's partitions.
- Nothing is created over a claim: what was claimed once and is missing now was deleted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from replicator.config import Flow
from replicator.config.routing import target_topic
from replicator.kafka.admin import TopicSpec
from replicator.kafka.topic_questions import TopicInfo
from replicator.model.errors import Incident, NotAllowed, ReplicatorError
from replicator.model.origins import NONE, Origins
from replicator.model.partition import Partition
from replicator.model.route import Route
from replicator.model.timestamps import (
    TIMESTAMP_TYPE,
    UNBOUNDED,
    TimestampBounds,
    replaces_timestamps,
    target_rewrites_timestamps,
)
from replicator.state.claims import Claim

MAX_MESSAGE_BYTES = "max.message.bytes"
CLEANUP_POLICY = "cleanup.policy"
COPIED_CONFIGS = (
    CLEANUP_POLICY,
    "retention.ms",
    "retention.bytes",
    "compression.type",
    MAX_MESSAGE_BYTES,
    "message.timestamp.type",
    "min.compaction.lag.ms",
    "delete.retention.ms",
    "segment.ms",
)
"""Topic configs that decide what a reader finds. Effective values are copied, so that clusters with different
defaults keep the same records; what concerns the cluster (replicas, placement) stays the target's own. Bounds of
timestamps aren't among them: what the source took in time may be too old for them when it is copied (MirrorMaker 2's
DefaultConfigPropertyFilter means to leave them out, too)."""
NEVER_SET_AGAIN = frozenset({TIMESTAMP_TYPE})
"""Of the configs that a created topic gets, those that an existing one keeps, unless `topic_configs.extra` names them:
a target that stamps records stops its topic, and it is for its owner to say what is meant."""


@dataclass(frozen=True, slots=True)
class ListedTopic:
    """One topic as its cluster tells it. `denied`: why it, or its configs, could not be told; without `info` and
    `denied` there is no such topic. `configs_denied`: of a topic that may not be seen, its configs may not either."""

    info: TopicInfo | None = None
    denied: NotAllowed | None = None
    configs_denied: bool = False


@dataclass(frozen=True, slots=True)
class Growth:
    """Partitions to add to an existing target topic."""

    topic: str
    partitions_before: int
    partitions: int


@dataclass(frozen=True, slots=True)
class ConfigChanges:
    """Configs of an existing target topic that its source topic has with other values."""

    topic: str
    before: Mapping[str, str]
    after: Mapping[str, str]

    def said(self) -> str:
        """Say it in words, in the order of their names."""
        return ", ".join(f"{key}: {self.before[key]} → {value}" for key, value in sorted(self.after.items()))


@dataclass(frozen=True, slots=True)
class TopicDecision:
    """What becomes of a topic's partitions, in this order.

    `stopped` and `waiting` concern all of them; `stopped_beyond` and `waiting_beyond` those that the target doesn't
    have. Otherwise the target topic is created, or grows, if one of these is given, and all partitions are copied.
    """

    stopped: Incident | None = None
    waiting: str = ""
    stopped_beyond: Incident | None = None
    waiting_beyond: str = ""
    create: TopicSpec | None = None
    grow: Growth | None = None


def target_configs(flow: Flow, source: Mapping[str, str]) -> dict[str, str]:
    """Return the configs of a target topic, from the effective ones of its source topic.

    A source that stamps records with the time of append gets a target that keeps these times (CreateTime),
    because the target would stamp its own; whoever wants that lists message.timestamp.type in
    topic_configs.extra.
    """
    wanted = {key: source[key] for key in (*COPIED_CONFIGS, *flow.topic_configs.extra) if key in source}
    if TIMESTAMP_TYPE in wanted and TIMESTAMP_TYPE not in flow.topic_configs.extra:
        wanted[TIMESTAMP_TYPE] = "CreateTime"
    return wanted


def changed_configs(flow: Flow, source: TopicInfo, target: TopicInfo) -> ConfigChanges | None:
    """Return the configs of an existing target topic that are to be set, as the source topic has them now; None:
    nothing is.

    `max.message.bytes` is only raised: what the source took before it was lowered is perhaps yet to be copied. Which
    ones never change follows MirrorMaker 2's DefaultConfigPropertyFilter. What the target doesn't show (a broker of
    another version) is left alone.
    """
    if not flow.topic_configs.sync:
        return None
    kept = NEVER_SET_AGAIN - set(flow.topic_configs.extra)
    after = {
        key: value
        for key, value in target_configs(flow, source.configs).items()
        if key not in kept and key in target.configs and _is_other(key, value, target.configs[key])
    }
    return ConfigChanges(target.name, {key: target.configs[key] for key in after}, after) if after else None


def _is_other(key: str, source: str, target: str) -> bool:
    if key == MAX_MESSAGE_BYTES:
        return int(source) > int(target)
    if key == CLEANUP_POLICY:
        return set(source.split(",")) != set(target.split(","))
    return source != target


def needs_claims(source: TopicInfo, target: ListedTopic) -> bool:
    """Return whether `decide_topic` needs the topic's claims: only where something would be created."""
    return target.denied is None and (target.info is None or target.info.partitions < source.partitions)


def decide_topic(
    flow: Flow,
    source: TopicInfo,
    denied: NotAllowed | None,
    target: ListedTopic,
    claims: tuple[Claim, ...],
    conflict: Incident | None,
    unclaimed: str | None = None,
) -> TopicDecision:
    """Decide over one source topic.

    Args:
        source: as its cluster lists it; its configs count only if `denied` is None.
        claims: those of its target topic, see `needs_claims`.
        conflict: what stops the topic whatever the target says, see `Listing`.
        unclaimed: of a target topic without claims, see `unclaimed`; None: it may not grow.
    """
    if conflict is not None:
        return TopicDecision(stopped=conflict)
    unseen = denied or target.denied
    if unseen is not None:
        return TopicDecision(waiting=str(unseen))
    if target.info is None:
        return _absent(flow, source, claims)
    rewritten = rewrites(flow, source, target.info)
    if rewritten is not None:
        return TopicDecision(stopped=rewritten)
    if target.info.partitions < source.partitions:
        return _too_small(flow, source, target.info, claims, unclaimed)
    return TopicDecision()


def _absent(flow: Flow, source: TopicInfo, claims: tuple[Claim, ...]) -> TopicDecision:
    name = target_topic(flow, source.name)
    if claims:
        why = f"cluster {flow.target.name!r} has no topic {name!r}, but this flow has claimed {len(claims)} partitions"
        return TopicDecision(stopped=Incident("target_topic_deleted", why, topic=source.name))
    configs = target_configs(flow, source.configs)
    return TopicDecision(create=TopicSpec(name, source.partitions, flow.topic_configs.replication_factor, configs))


def rewrites(flow: Flow, source: TopicInfo, target: TopicInfo) -> Incident | None:
    """Return the incident of an existing target topic that would change timestamps."""
    if not replaces_timestamps(target.configs) or TIMESTAMP_TYPE in flow.topic_configs.extra:
        return None
    return target_rewrites_timestamps(flow.target.name, target.name, source.name)


def _too_small(
    flow: Flow, source: TopicInfo, target: TopicInfo, claims: tuple[Claim, ...], unclaimed: str | None
) -> TopicDecision:
    counts = (
        f"topic {target.name!r} of cluster {flow.target.name!r} has {target.partitions} partitions, source topic "
        f"{source.name!r} has {source.partitions}"
    )
    if unclaimed:
        return TopicDecision(waiting=f"whether {target.name!r} may grow isn't known: {unclaimed}")
    if not claims and unclaimed is None:
        return TopicDecision(stopped=Incident("target_topic_too_small", counts, topic=source.name))
    others = sorted({claim.target_topic_id for claim in claims} - {target.topic_id})
    # A lane decides on the partitions that are there; the others aren't made in a topic that isn't the flow's.
    if others:
        why = f"its id was {', '.join(others)}, and is {target.topic_id} now; {counts}"
        return TopicDecision(stopped_beyond=Incident("target_topic_recreated", why, topic=source.name))
    if flow.new_partitions == "stop":
        return TopicDecision(stopped=Incident("source_partitions_added", counts, topic=source.name))
    return TopicDecision(grow=Growth(target.name, target.partitions, source.partitions))


def refused(name: str, decision: TopicDecision, error: ReplicatorError) -> TopicDecision:
    """Return the decision over source topic `name` where the target refused to create or to grow."""
    reason = str(error)
    incident = Incident(error.name, error.detail, topic=name) if isinstance(error, Incident) else None
    waiting = reason if isinstance(error, NotAllowed) else ""
    if decision.create:
        return TopicDecision(stopped=incident, waiting=waiting)
    return TopicDecision(stopped_beyond=incident, waiting_beyond=waiting)


def topic_routes(
    flow: Flow, source: TopicInfo, target: TopicInfo | None, decision: TopicDecision, origins: Origins = NONE
) -> list[Route]:
    """Make the routes of all partitions of a topic. `target` is the topic as it is after creating and growing;
    `origins` say where the source has the topic from."""
    name, target_id = target_topic(flow, source.name), target.topic_id if target else ""
    there = target.partitions if target else 0
    bounds = TimestampBounds.of(target.configs) if target else UNBOUNDED
    bytes_max = int(target.configs.get(MAX_MESSAGE_BYTES, "0")) if target else 0
    compression = target.configs.get("compression.type", "") if target else ""
    routes: list[Route] = []
    for number in range(source.partitions):
        stopped, waiting = decision.stopped, decision.waiting
        if stopped is None and not waiting and number >= there:
            stopped, waiting = decision.stopped_beyond, decision.waiting_beyond
        at, to = Partition(source.name, number), Partition(name, number)
        target_there = target_id if number < there else ""
        routes.append(
            Route(at, to, source.topic_id, target_there, stopped, waiting, bounds, origins, bytes_max, compression)
        )
    return routes
