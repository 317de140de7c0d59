"""What a flow would do, found out without changing anything: topics to create, missing rights, limits, incidents.

Called by `eos-replicate plan`. Topics are decided on one by one by the functions that `run` uses (`flow.listing`,
`flow.topic_rules`, `flow.first_start`), and partitions by those of its lanes (`expected_starts`), so that both say
the same.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from replicator.config import Cluster, Config, Flow, routing
from replicator.config.engine import chosen_engine
from replicator.coupling.evidence import OFFSETS_TOPIC
from replicator.flow.acl_rules import lockouts, wanted_acls
from replicator.flow.acl_sync import principal
from replicator.flow.first_start import is_first_start
from replicator.flow.listing import Listing, config_changes, decide_topics
from replicator.flow.topic_rules import ListedTopic, TopicDecision, needs_claims
from replicator.flow.topics import ControlPlane, check_control_topic, internal_topics, listed
from replicator.flow.unclaimed import unclaimed
from replicator.inspect.expected_starts import ExpectedStarts, StartForecast, list_topics, no_topic, routes_of
from replicator.inspect.flow_plan import FlowPlan, Kind, PlanFinding, gone_topics, topic_plan
from replicator.inspect.plan_coupled import plan_coupled
from replicator.inspect.plan_file import file_findings, new_settings
from replicator.inspect.plan_groups import plan_groups
from replicator.inspect.plan_limits import limit_faults, offsets_topic_faults, size_warnings
from replicator.inspect.plan_mirrors import mirror_warnings
from replicator.inspect.plan_own_topics import TARGET_RIGHTS, plan_own_topics
from replicator.inspect.plan_rights import lacks, missing_on_group, missing_on_topic, transaction_rights
from replicator.inspect.plan_synced import synced_topics
from replicator.inspect.plan_tiered import tiered_warnings
from replicator.inspect.plan_transactions import transaction_warnings
from replicator.inspect.plan_versions import plan_versions
from replicator.inspect.plan_workers import members_that_are_no_workers
from replicator.inspect.timestamps import bounds_of, refused_timestamps
from replicator.kafka.admin import TopicSpec
from replicator.kafka.cluster_info import ClusterInfo
from replicator.kafka.topic_questions import TopicInfo
from replicator.lane.partition import Reason
from replicator.model import names
from replicator.model.errors import Incident, NotAllowed, ReplicatorError, Unreachable
from replicator.model.partition import LogEnds, Partition
from replicator.state.claims import Claims
from replicator.state.control_topic import Control
from replicator.state.own_file import lanes_wanted

SOURCE_RIGHTS = ("Describe", "DescribeConfigs", "Read")
CLAIMS_RIGHTS = (*TARGET_RIGHTS, "Alter")
"""It has a partition for each lane."""


def plan(flow: Flow, config: Config, *, connect_timeout_ms: int) -> FlowPlan:
    """Ask both clusters. Errors become findings, so that one missing right hides no other."""
    result = FlowPlan(flow.name, flow.source.name, flow.target.name, engine=chosen_engine(flow).told())
    with ControlPlane(flow, connect_timeout_ms=connect_timeout_ms) as clusters:
        planner = _Planner(flow, config, clusters, result)
        planner.attempt(planner.run, "cluster")
    return result


class _Planner:
    """The steps of one plan."""

    def __init__(self, flow: Flow, config: Config, clusters: ControlPlane, result: FlowPlan) -> None:
        self._flow, self._config, self._clusters, self._result = flow, config, clusters, result
        self._claims: Claims | None = None  # None: they can't be read
        self._control: Control | None = None  # None: it can't be read
        self._starts = True  # whether nothing of the whole flow keeps it from starting
        self._expected: ExpectedStarts = {}
        self._unclaimed: Mapping[str, str] = {}  # which topics without claims may grow
        self._broker_configs: Mapping[str, str] = {}  # of the target; empty where they can't be read

    @property
    def _failed_over(self) -> Mapping[str, int]:
        """Source topics that were."""
        return {} if self._control is None else self._control.failed_over

    def attempt(self, step: Callable[[], object], kind: Kind) -> bool:
        """Run a step; return False where it raises something on purpose, which is a finding."""
        try:
            step()
        except ReplicatorError as error:
            self._found(error, kind)
            return False
        return True

    def _found(self, error: ReplicatorError, kind: Kind, more: str = "") -> None:
        """Note an error as a finding. `more` is said behind what the error says."""
        named: Kind = "right" if isinstance(error, NotAllowed) else kind
        found = PlanFinding("error", named, f"{error}{more}", error.exit_code)
        if isinstance(error, Incident):
            found = replace(found, incident=error.name, topic=error.topic, partition=error.partition)
        self._result.note(found)

    def run(self) -> None:
        try:
            source, target = self._clusters.connect()
        except Unreachable:  # so ends librdkafka with a later Kafka, too
            plan_versions(self._flow, self._result, reached=False)
            raise
        if not plan_versions(self._flow, self._result):
            return  # other questions would be asked until they time out
        self.attempt(lambda: self._limits(target), "cluster")
        self.attempt(self._offsets_topic, "cluster")
        # Without that right positions cannot be read, and waiting for them would be in vain.
        readable = self._group()
        for finding in members_that_are_no_workers(self._flow, self._clusters):
            self._result.note(finding)
        listing = self._listing(source, target)
        if not listing.topics:
            unseen = "; topics that the user may not Describe aren't shown" if not listing.denied else ""
            self._result.note(PlanFinding("warning", "topic", f"{no_topic(self._flow)}{unseen}"))
        self._starts = self.attempt(lambda: self._internal(listing, readable), "topic")
        self._file(source)
        self._missing(listing)
        plan_own_topics(self._flow, self._clusters, self._lanes(listing), self._result)
        targets = self._targets(listing)
        self._topics(listing, targets)
        if self._flow.groups.synced:
            self.attempt(self._groups, "group")
        self._result.coupled, self._result.coupled_unknown = plan_coupled(self._flow)
        for message in size_warnings(self._flow, listing.topics, _infos(targets)):
            self._result.note(PlanFinding("warning", "limit", message))
        if readable:
            self.attempt(lambda: self._positions(source, listing, targets), "position")
            self.attempt(lambda: self._timestamps(listing, _infos(targets)), "topic")
        known = source.cluster_id, listing, targets, self._claims or Claims({}, ())
        synced = synced_topics(self._flow, *known, self._expected) - self._failed_over.keys()
        self._changes(listing.only(synced), targets)
        self._acls(synced)
        self._tiered(listing)
        for message in transaction_warnings(self._flow, listing.topics.keys(), _now_ms()):
            self._result.note(PlanFinding("warning", "topic", message))
        self._transactions()
        created = [item.target for item in self._result.topics if item.action == "create"]
        self._result.unchecked += [f"Write on topic {name!r}" for name in created]

    def _groups(self) -> None:
        found = plan_groups(self._flow)
        self._result.groups = found.groups
        for message in found.warnings:
            self._result.note(PlanFinding("warning", "group", message))
        for error in found.denied:
            named: Kind = "right" if isinstance(error, NotAllowed) else "group"
            self._result.note(PlanFinding("warning", named, f"{error}; its groups are not known"))

    def _listing(self, source: ClusterInfo, target: ClusterInfo) -> Listing:
        flow = self._flow
        ids = {flow.source.name: source.cluster_id, flow.target.name: target.cluster_id}
        there, listing, origins = list_topics(flow, self._config, self._clusters, ids)
        self._rights(there, SOURCE_RIGHTS, flow.source)
        for error in origins.unread.values():  # whoever may not read them isn't kept from copying
            kind: Kind = "right" if isinstance(error, NotAllowed) else "conflict"
            message = f"{error}; whether topics come back over flows of other files is not checked"
            self._result.note(PlanFinding("warning", kind, message))
        for message in mirror_warnings(flow, listing.topics, origins.origins, self._clusters.source.topic_names()):
            self._result.note(PlanFinding("warning", "topic", message))
        return listing

    def _file(self, source: ClusterInfo) -> None:
        """Find whether workers would run this file's settings."""
        if self._control is not None:
            self._result.new_settings = new_settings(self._flow, self._control)
            for finding in file_findings(self._flow, self._control, source.cluster_id):
                self._result.note(finding)

    def _missing(self, listing: Listing) -> None:
        """Note topics that the flow names and that aren't there; of those that were copied, `_positions` says more."""
        claims = self._claims or Claims({}, ())
        copied = {claim.source.topic for claim in claims.claims.values()}
        for missing in listing.missing:
            if self._flow.deleted_topics == "stop" or missing.topic not in copied:
                self._found(missing, "topic")

    def _targets(self, listing: Listing) -> dict[str, ListedTopic]:
        named = listing.topics.keys() | listing.denied.keys()
        wanted = [routing.target_topic(self._flow, name) for name in named if name not in listing.conflicts]
        found = self._clusters.listed_target(wanted, rights=True)
        self._rights(found, TARGET_RIGHTS, self._flow.target)
        return found

    def _rights(self, found: Mapping[str, ListedTopic], needed: Sequence[str], cluster: Cluster) -> None:
        for name, it in found.items():
            if missing := missing_on_topic(it, needed):
                self._lacks(cluster, missing, f"topic {name!r}")
            elif it.denied:
                self._found(it.denied, "right")

    def _lacks(self, cluster: Cluster, missing: Iterable[str], resource: str) -> None:
        self._result.note(PlanFinding("error", "right", lacks(cluster, missing, resource), NotAllowed.exit_code))

    def _group(self) -> bool:
        """Check the rights on the flow's groups; return whether positions may be read."""
        readable = True
        for group in (names.position_group(self._flow.name), names.workers_group(self._flow.name)):
            if missing := missing_on_group(self._clusters.target, group):
                self._lacks(self._flow.target, missing, f"group {group!r}")
                readable &= "Describe" not in missing or group != names.position_group(self._flow.name)
        return readable

    def _transactions(self) -> None:
        finding, unchecked = transaction_rights(self._flow)
        if finding is not None:
            self._result.note(finding)
        self._result.unchecked += [unchecked] if unchecked else []

    def _internal(self, listing: Listing, positions_readable: bool) -> None:
        """Check the flow's own topics: which are to be created, and whether they may be."""
        flow = self._flow
        control, claims = internal_topics(flow, lanes_wanted(flow, listing.partitions, self._control or Control()))
        found = listed(self._clusters.target, (control.name, claims.name), rights=True)
        self._rights({control.name: found[control.name]}, TARGET_RIGHTS, flow.target)
        there = found[claims.name].info
        grows = there is None or there.partitions < claims.partitions
        self._rights({claims.name: found[claims.name]}, CLAIMS_RIGHTS if grows else TARGET_RIGHTS, flow.target)
        absent = [spec for spec in (control, claims) if found[spec.name].info is None]
        info = found[control.name].info
        if info is not None and found[control.name].denied is None:
            check_control_topic(info)
        if all(_readable(it) for it in found.values()):
            self._state(listing, positions_readable)  # raises: nothing is created over what was lost
        self._result.internal += absent
        self._try_create(absent)

    def _lanes(self, listing: Listing) -> int:
        """Return how many lanes `run` would have: those of the flow's settings, unless workers would take this file."""
        control = self._control or Control()
        before = control.daemon
        if before is not None and before.settings and not self._result.new_settings:
            return before.lanes
        return lanes_wanted(self._flow, listing.partitions, control)

    def _state(self, listing: Listing, positions_readable: bool) -> None:
        """Find whether the flow has run, and what it has claimed. Raises Incident, see `first_start`."""
        state = self._clusters.state
        control, claims = state.control_if_any(), state.claims_if_any()
        self._control, self._claims = control or Control(), claims or Claims({}, ())
        if control is not None and control.begun:
            state.claims()
            return
        is_first_start(
            self._flow.name,
            has_claims=bool(self._claims.claims),
            has_positions=positions_readable and self._clusters.has_positions(listing.topics),
            control=state.control_if_any(),
        )

    def _topics(self, listing: Listing, targets: Mapping[str, ListedTopic]) -> None:
        known = self._flow, listing, targets, self._claims or Claims({}, ())
        first = {} if self._control is None else self._control.first_listing()
        self._unclaimed = unclaimed(*known, first, self._clusters.target_logs)
        decisions = decide_topics(*known, self._unclaimed, self._failed_over)
        unseen = [routing.target_topic(self._flow, name) for name in listing.denied.keys() - listing.topics.keys()]
        hidden = [TopicSpec(name, 1, -1, {}) for name in unseen if name in targets and targets[name].info is None]
        for name, info in listing.topics.items():
            target = targets.get(routing.target_topic(self._flow, name), ListedTopic())
            unread = self._claims is None and name not in self._failed_over
            if unread and target.info is not None and needs_claims(info, target):
                decisions[name] = TopicDecision()  # whether it is the flow's own can't be known
            if name in self._failed_over:
                self._result.note(PlanFinding("warning", "topic", decisions[name].waiting))
            for stopped in (decisions[name].stopped, decisions[name].stopped_beyond):
                if stopped is not None:
                    self._found(stopped, "conflict" if name in listing.conflicts else "topic")
            self._result.topics.append(topic_plan(self._flow, info, decisions[name]))
            if target.info is None and target.denied is not None:
                hidden.append(TopicSpec(routing.target_topic(self._flow, name), info.partitions, -1, {}))
        self._try_create([*(it.create for it in decisions.values() if it.create), *hidden])
        grown = {it.grow.topic: it.grow.partitions for it in decisions.values() if it.grow}
        for refused in self._clusters.target.grow_topics(grown, dry=True).values():
            if refused is not None:
                self._found(refused, "topic")

    def _changes(self, listing: Listing, targets: Mapping[str, ListedTopic]) -> None:
        """Find configs that would be set on existing topics. Where that is refused, copying goes on."""
        changes = {each.topic: each for each in config_changes(self._flow, listing, targets, self._failed_over)}
        self._result.topics = [replace(item, changes=changes.get(item.target)) for item in self._result.topics]
        wanted = {name: each.after for name, each in changes.items()}
        for refused in self._clusters.target.set_configs(wanted, dry=True).values():
            if refused is not None:
                kind: Kind = "right" if isinstance(refused, NotAllowed) else "topic"
                self._result.note(PlanFinding("warning", kind, str(refused)))

    def _acls(self, synced: Collection[str]) -> None:
        """Find ACLs that copies would get. Whatever keeps them from being created, records are copied."""
        if not self._flow.sync_acls:
            return
        topics = {it.source: it.target for it in self._result.topics if it.source in synced and it.action != "stop"}
        own = principal(self._flow.target.properties)
        try:
            source, target = self._clusters.acls()
        except ReplicatorError as error:
            kind: Kind = "right" if isinstance(error, NotAllowed) else "cluster"
            self._result.note(PlanFinding("warning", kind, f"{error}; until then sync_acls creates no ACL"))
            return
        self._result.acls += sorted(wanted_acls(source, topics, own) - frozenset(target))
        for message in lockouts(source, topics, own):
            self._result.note(PlanFinding("warning", "right", f"{message}: sync_acls leaves it out"))
        if self._result.acls:
            self._result.unchecked.append(f"Alter on cluster {self._flow.target.name!r}, to create ACLs")

    def _try_create(self, specs: Iterable[TopicSpec]) -> None:
        for refused in self._clusters.target.create_topics(specs, dry=True).values():
            if isinstance(refused, ReplicatorError):
                self._found(refused, "topic")

    def _positions(self, source: ClusterInfo, listing: Listing, targets: Mapping[str, ListedTopic]) -> None:
        """Find what becomes of each partition that can be copied to now, as `run` decides."""
        flow, claims = self._flow, self._claims or Claims({}, ())
        routes = routes_of(flow, listing, targets, claims, self._unclaimed, self._failed_over)
        forecast = StartForecast(flow, self._clusters, source.cluster_id, self._control, _now_ms)
        expected = self._expected = forecast.decide(routes, claims)
        have = Counter(it.route.source.topic for it in expected.values() if it.stored_offset is not None)
        self._result.topics = [
            replace(item, partitions_with_position=have[item.source]) for item in self._result.topics
        ]
        self._result.topics += gone_topics(expected, {item.source for item in self._result.topics})
        if not self._starts:
            return  # what would become of partitions then isn't known
        told = {item.source for item in self._result.topics if item.action in ("stop", "wait")}
        expected = forecast.check_target(expected)
        self._partitions({at: it for at, it in expected.items() if at.topic not in told and not it.to_be_made})

    def _partitions(self, expected: ExpectedStarts) -> None:
        """Note one finding for all partitions of a topic to which the same has happened."""
        alike: dict[tuple[str, str], list[Partition]] = {}
        for at, it in sorted(expected.items()):
            name = (
                it.decision.stopped.name if it.decision.stopped else it.decision.waits[0] if it.decision.waits else ""
            )
            if name and name != Reason.KEPT:
                alike.setdefault((at.topic, name), []).append(at)
        for (topic, _), partitions in alike.items():
            decision = expected[partitions[0]].decision
            more = f" ({len(partitions) - 1} more of its partitions the same)" if len(partitions) > 1 else ""
            if decision.stopped is not None:
                self._found(decision.stopped, "position", more)
            elif decision.waits is not None:
                message = f"{topic}[{partitions[0].partition}] would wait{more}: {decision.waits[1]}"
                self._result.note(PlanFinding("warning", "cluster", message))

    def _timestamps(self, listing: Listing, targets: Mapping[str, TopicInfo]) -> None:
        """Find records of the source that the target would refuse for their timestamps."""
        bounds = {
            item.source: (item.target, bounds_of(targets.get(item.target), item.configs, self._broker_configs))
            for item in self._result.topics
            if item.action in ("create", "grow", "keep")
        }
        offsets: dict[Partition, int | None] = {}
        for source, (_, taken) in bounds.items():
            for number in range(listing.topics[source].partitions if taken.bounded else 0):
                at = Partition(source, number)
                offsets[at] = self._expected[at].stored_offset if at in self._expected else None
        logs = {at: it.source for at, it in self._expected.items() if isinstance(it.source, LogEnds)}
        for incident in refused_timestamps(self._flow, self._clusters.source, offsets, logs, bounds, _now_ms()):
            self._found(incident, "topic")

    def _offsets_topic(self) -> None:
        found = self._clusters.listed_target([OFFSETS_TOPIC])[OFFSETS_TOPIC]
        if found.denied is not None:
            message = f"{found.denied}; whether {OFFSETS_TOPIC} keeps positions is not known"
            self._result.note(PlanFinding("warning", "right", message))
        for stops, message in offsets_topic_faults(self._flow, {} if found.info is None else found.info.configs):
            self._result.note(PlanFinding("error" if stops else "warning", "limit", message))

    def _tiered(self, listing: Listing) -> None:
        stored = {at: it.stored_offset for at, it in self._expected.items()}
        for message in tiered_warnings(self._flow, listing.topics, stored):
            self._result.note(PlanFinding("warning", "topic", message))

    def _limits(self, target: ClusterInfo) -> None:
        if not target.brokers:
            return
        try:
            configs = self._clusters.target.broker_configs()
        except (NotAllowed, Incident) as error:
            self._result.note(PlanFinding("warning", "right", f"{error}; limits of the target are not checked"))
            return
        self._broker_configs = configs
        for message in limit_faults(self._flow, configs):
            self._result.note(PlanFinding("error", "limit", message))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _readable(it: ListedTopic) -> bool:
    """Return whether a topic can be read, or isn't there."""
    if it.info is None:
        return it.denied is None
    return it.info.rights is None or "Read" in it.info.rights


def _infos(found: Mapping[str, ListedTopic]) -> dict[str, TopicInfo]:
    return {name: it.info for name, it in found.items() if it.info is not None}
