"""What a flow would do, found out without changing anything: topics to create, missing rights, limits, incidents.

Called by `eos-replicate plan`. Topics are judged one by one by the functions that `run` uses (`flow.listing`,
`flow.topic_rules`, `flow.first_start`), so that both say the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from replicator.config import Config, Flow, routing
from replicator.flow.first_start import is_first_start
from replicator.flow.listing import MAX_MESSAGE_BYTES, Listing, judge_topics
from replicator.flow.topic_rules import Listed, TopicVerdict, needs_claims
from replicator.flow.topics import ControlPlane, check_control_topic, internal_topics, listed
from replicator.inspect.timestamps import bounds_of, refused_timestamps
from replicator.kafka import offset_reader
from replicator.kafka.admin import ClusterInfo, TopicSpec
from replicator.kafka.topic_questions import TopicInfo
from replicator.model import checkpoint, names
from replicator.model.checkpoint import Position
from replicator.model.errors import Incident, NotAllowed, ReplicatorError
from replicator.model.partition import Committed, Partition
from replicator.state.claims import Claims
from replicator.state.origins import FoundOrigins, loops

SOURCE_RIGHTS = ("Describe", "DescribeConfigs", "Read")
TARGET_RIGHTS = ("Describe", "DescribeConfigs", "Read", "Write")
GROUP_RIGHTS = ("Describe", "Read")
Kind = Literal["right", "limit", "topic", "position", "conflict", "cluster"]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that would stop the flow or a part of it (`error`), or that its owner should know (`warning`)."""

    severity: Literal["error", "warning"]
    kind: Kind
    message: str
    exit_code: int = 4


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """One topic of the flow. `configs` are those that a created topic gets; empty for an existing one. Of a topic with
    action `stop` or `wait` nothing is copied; a finding says why."""

    source: str
    target: str
    partitions: int
    action: Literal["create", "grow", "keep", "stop", "wait"]
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

    def note(self, finding: Finding) -> None:
        """Add a finding, once."""
        if finding not in self.findings:
            self.findings.append(finding)


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
        self._claims: Claims | None = None  # None: they can't be read
        self._stored: Mapping[Partition, Committed | None] | None = None  # positions; None: they can't be read
        self._broker_configs: Mapping[str, str] = {}  # of the target; empty where they can't be read

    def attempt(self, step: Callable[[], object], kind: Kind) -> bool:
        """Runs a step; what it raises on purpose is a finding, and False."""
        try:
            step()
        except ReplicatorError as error:
            self._found(error, kind)
            return False
        return True

    def _found(self, error: ReplicatorError, kind: Kind) -> None:
        named: Kind = "right" if isinstance(error, NotAllowed) else kind
        self._result.note(Finding("error", named, str(error), error.exit_code))

    def run(self) -> None:
        source, target = self._clusters.connect()
        self.attempt(lambda: self._limits(target), "cluster")
        # Without that right positions cannot be read, and waiting for them would be in vain.
        readable = self.attempt(self._group, "right")
        listing = self._listing(source, target)
        if not listing.topics:
            message = f"no topic of cluster {self._flow.source.name!r} is selected now"
            self._result.note(Finding("warning", "topic", message))
        self.attempt(lambda: self._internal(listing, readable), "topic")
        targets = self._targets(listing)
        self._topics(listing, targets)
        for message in size_warnings(self._flow, listing.topics, _infos(targets)):
            self._result.note(Finding("warning", "limit", message))
        if readable:
            self.attempt(lambda: self._positions(listing, _infos(targets)), "position")
            self.attempt(lambda: self._timestamps(listing, _infos(targets)), "topic")
        self._result.unchecked += [
            f"Write and Describe on transactional ids eos.{self._flow.name}.*",
            *(f"Write on topic {item.target!r}" for item in self._result.topics if item.action == "create"),
        ]

    def _listing(self, source: ClusterInfo, target: ClusterInfo) -> Listing:
        flow, found = self._flow, self._clusters.listed_source(rights=True)
        there = {name: it for name, it in found.items() if it != Listed()}
        identity = {flow.source.name: source.cluster_id, flow.target.name: target.cluster_id}
        conflicts = routing.topic_conflicts(self._config, flow.name, {flow.source.name: list(there)}, identity)
        for name in sorted(found.keys() - there.keys()):
            why = f"cluster {flow.source.name!r} has no topic {name!r}"
            self._found(Incident("unknown_source_topic", why, topic=name), "topic")
        self._rights(there.values(), SOURCE_RIGHTS, flow.source.name)
        listing = Listing.of(there, conflicts, ())
        origins = self._origins(listing)
        return listing.coming_from(origins, loops(flow, source.cluster_id, target.cluster_id, origins.origins))

    def _origins(self, listing: Listing) -> FoundOrigins:
        """Where topics come from, by other flows' claims on the source. What may not be read is a warning."""
        found = self._clusters.source_claims.origins({name: info.topic_id for name, info in listing.topics.items()})
        for error in found.unread.values():
            kind: Kind = "right" if isinstance(error, NotAllowed) else "conflict"
            message = f"{error}; whether topics come back over flows of other files is not checked"
            self._result.note(Finding("warning", kind, message))
        return found

    def _targets(self, listing: Listing) -> dict[str, Listed]:
        wanted = [routing.target_topic(self._flow, name) for name in listing.topics if name not in listing.conflicts]
        found = self._clusters.listed_target(wanted, rights=True)
        self._rights(found.values(), TARGET_RIGHTS, self._flow.target.name)
        return found

    def _rights(self, found: Iterable[Listed], needed: Iterable[str], cluster: str) -> None:
        for it in found:
            rights = it.info.rights if it.info else None
            missing = [right for right in needed if rights is not None and right not in rights]
            if it.info and missing:
                message = f"cluster {cluster!r}: the user needs {', '.join(missing)} on topic {it.info.name!r}"
                self._result.note(Finding("error", "right", message, NotAllowed.exit_code))
            elif it.denied:
                self._found(it.denied, "right")

    def _group(self) -> None:
        group = names.position_group(self._flow.name)
        rights = self._clusters.target.group_rights(group)
        missing = [right for right in GROUP_RIGHTS if rights is not None and right not in rights]
        if missing:
            message = f"cluster {self._flow.target.name!r}: the user needs {', '.join(missing)} on group {group!r}"
            self._result.note(Finding("error", "right", message, NotAllowed.exit_code))

    def _internal(self, listing: Listing, positions_readable: bool) -> None:
        """The flow's own topics: which are to be created, and whether they may be."""
        flow = self._flow
        control, claims = internal_topics(flow)
        found = listed(self._clusters.target, (control.name, claims.name), rights=True)
        self._rights(found.values(), TARGET_RIGHTS, flow.target.name)
        absent = [spec for spec in (control, claims) if found[spec.name].info is None]
        info = found[control.name].info
        if info is not None and found[control.name].denied is None:
            check_control_topic(info)
        if all(_readable(it) for it in found.values()):
            self._state(listing, positions_readable)  # raises: nothing is created over what was lost
        self._result.internal += absent
        self._try_create(absent)

    def _state(self, listing: Listing, positions_readable: bool) -> None:
        """Whether the flow has run, and what it has claimed. Raises Incident, see `first_start`."""
        state = self._clusters.state
        control, claims = state.control_if_any(), state.claims_if_any()
        self._claims = claims or Claims({}, ())
        if control is not None and control.begun:
            state.claims()
            return
        is_first_start(
            self._flow.name,
            has_claims=bool(self._claims.claims),
            has_positions=positions_readable and self._clusters.has_positions(listing.topics),
            control=state.control_if_any(),
        )

    def _topics(self, listing: Listing, targets: Mapping[str, Listed]) -> None:
        verdicts = judge_topics(self._flow, listing, targets, self._claims or Claims({}, ()))
        hidden: list[TopicSpec] = []
        for name, info in listing.topics.items():
            target = targets.get(routing.target_topic(self._flow, name), Listed())
            if self._claims is None and target.info is not None and needs_claims(info, target):
                verdicts[name] = TopicVerdict()  # whether it is the flow's own can't be known
            for stopped in (verdicts[name].stopped, verdicts[name].stopped_beyond):
                if stopped is not None:
                    self._found(stopped, "conflict" if name in listing.conflicts else "topic")
            self._result.topics.append(_topic_plan(self._flow, info, verdicts[name]))
            if target.info is None and target.denied is not None:
                hidden.append(TopicSpec(routing.target_topic(self._flow, name), info.partitions, -1, {}))
        self._try_create([*(it.create for it in verdicts.values() if it.create), *hidden])
        grown = {it.grow.topic: it.grow.partitions for it in verdicts.values() if it.grow}
        for refused in self._clusters.target.grow_topics(grown, dry=True).values():
            if refused is not None:
                self._found(refused, "topic")

    def _try_create(self, specs: Iterable[TopicSpec]) -> None:
        for refused in self._clusters.target.create_topics(specs, dry=True).values():
            if isinstance(refused, ReplicatorError):
                self._found(refused, "topic")

    def _positions(self, listing: Listing, targets: Mapping[str, TopicInfo]) -> None:
        """How many partitions have a position; one with data and none would be stopped (invariant 7)."""
        counts: dict[str, int] = {}
        for item in self._result.topics:
            if item.target in targets:
                counts[item.target] = min(item.partitions, targets[item.target].partitions)
        asked = [Partition(topic, number) for topic, count in counts.items() for number in range(count)]
        found = self._stored = offset_reader.positions(self._flow, asked)
        claimed = self._claims.claims if self._claims else {}
        without = [at for at, position in found.items() if position is None and at not in claimed]
        ends = self._clusters.target.offsets(without, end=True)
        for at in without:
            if ends[at] > 0:
                message = (
                    f"target {at} holds data (end offset {ends[at]}) but the flow has no position there; "
                    "it would not start, so as not to copy twice"
                )
                self._result.note(Finding("error", "position", message))
        for at in sorted(at for at, position in found.items() if position is None and at in claimed):
            name = claimed[at].without_position(targets[at.topic].topic_id)
            self._found(Incident(name, f"{at} was claimed before"), "position")
        self._recreated(listing, found)
        have = [at.topic for at, position in found.items() if position is not None]
        self._result.topics = [
            replace(item, partitions_with_position=have.count(item.target)) for item in self._result.topics
        ]

    def _timestamps(self, listing: Listing, targets: Mapping[str, TopicInfo]) -> None:
        """Records of the source that the target would refuse for their timestamps."""
        if self._stored is None:
            return
        bounds = {
            item.source: (item.target, bounds_of(targets.get(item.target), item.configs, self._broker_configs))
            for item in self._result.topics
            if item.action in ("create", "grow", "keep")
        }
        offsets: dict[Partition, int | None] = {}
        for source, (target, taken) in bounds.items():
            for number in range(listing.topics[source].partitions if taken.bounded else 0):
                stands = self._stored.get(Partition(target, number))
                offsets[Partition(source, number)] = None if stands is None else stands.offset
        now_ms = time.time_ns() // 1_000_000
        for incident in refused_timestamps(self._flow, self._clusters.source, offsets, bounds, now_ms):
            self._found(incident, "topic")

    def _recreated(self, listing: Listing, positions: Mapping[Partition, Committed | None]) -> None:
        """Source topics that are others than the positions were written for, one error for each."""
        now = {routing.target_topic(self._flow, name): info for name, info in listing.topics.items()}
        told: set[str] = set()
        for at, position in sorted(positions.items()):
            if position is None or at.topic in told:
                continue
            found = checkpoint.read(position)
            if not isinstance(found, Position):
                continue  # told by `run`, as what it is
            was = found.evidence
            topic = now[at.topic]
            if was.source_topic == topic.name and was.source_topic_id != topic.topic_id:
                told.add(at.topic)
                why = f"its id was {was.source_topic_id}, is {topic.topic_id}"
                self._found(Incident("source_topic_recreated", why, topic=topic.name), "position")

    def _limits(self, target: ClusterInfo) -> None:
        if not target.brokers:
            return
        try:
            configs = self._clusters.target.broker_configs(target.brokers[0])
        except (NotAllowed, Incident) as error:
            self._result.note(Finding("warning", "right", f"{error}; limits of the target are not checked"))
            return
        self._broker_configs = configs
        for message in limit_faults(self._flow, configs):
            self._result.note(Finding("error", "limit", message))


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
    """Records that could be too large for the target. Pure."""
    for name, info in sources.items():
        there = targets.get(routing.target_topic(flow, name))
        largest = int(info.configs.get(MAX_MESSAGE_BYTES, "0"))
        limit = there.configs.get(MAX_MESSAGE_BYTES) if there else None
        if there is not None and limit is not None and largest > int(limit):
            yield (
                f"target topic {there.name!r} takes {limit} bytes, source topic {name!r} {largest} "
                f"({MAX_MESSAGE_BYTES}); a larger record would stop its partition"
            )
    if flow.target.compression not in ("", "zstd"):
        yield (
            f"records are written with compression.type={flow.target.compression}: one that the source holds better "
            f"compressed could be larger than the target takes ({MAX_MESSAGE_BYTES}), which would stop its partition; "
            "without that property records that are too large are sent with zstd"
        )


def _topic_plan(flow: Flow, info: TopicInfo, verdict: TopicVerdict) -> TopicPlan:
    item = TopicPlan(info.name, routing.target_topic(flow, info.name), info.partitions, "keep")
    if verdict.stopped is not None:
        return replace(item, action="stop")
    if verdict.waiting:
        return replace(item, action="wait")
    if verdict.create is not None:
        return replace(item, action="create", configs=verdict.create.configs)
    return replace(item, action="grow") if verdict.grow else item


def _readable(it: Listed) -> bool:
    """Whether a topic can be read, or isn't there."""
    if it.info is None:
        return it.denied is None
    return it.info.rights is None or "Read" in it.info.rights


def _infos(found: Mapping[str, Listed]) -> dict[str, TopicInfo]:
    return {name: it.info for name, it in found.items() if it.info is not None}
