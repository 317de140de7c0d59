"""Both clusters of a flow as dictionaries: what `flow.topics.ControlPlane` is for the control plane's units."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, cast

import structlog

from replicator.config import Config, Flow, load_text
from replicator.config.routing import literals, selects, target_topic
from replicator.flow.setup import Setup
from replicator.flow.topic_rules import ListedTopic
from replicator.flow.topics import Answers, ControlPlane, Waits
from replicator.kafka.admin import TopicSpec
from replicator.kafka.cluster_info import ClusterInfo
from replicator.kafka.topic_questions import TopicInfo
from replicator.model import names
from replicator.model.acls import TopicAcl
from replicator.model.errors import Incident, NotAllowed, ReplicatorError
from replicator.model.partition import LogEnds, Partition
from replicator.state.claims import Claim, Claims
from replicator.state.control_topic import Control
from replicator.state.generation import LaneAssignment
from replicator.state.origins import FoundOrigins, claimed_origins, merged, of_topics
from replicator.state.own_file import lanes_wanted, own_file
from replicator.workers.settings import OwnFile

SOURCE_CONFIGS = {
    "cleanup.policy": "delete",
    "max.message.bytes": "1048588",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": "9223372036854775807",
    "message.timestamp.after.max.ms": "3600000",
}
CONTROL, CLAIMS, MAP = names.control_topic("f"), names.claims_topic("f"), names.offsets_topic("f")


@lru_cache
def config(settings: str = "", topics: str = '["^t.*"]', more: str = "") -> Config:
    text = f"""\
clusters:
  a: {{properties: {{bootstrap.servers: "a:1"}}}}
  b: {{properties: {{bootstrap.servers: "b:1"}}}}
flows:
  f: {{source: a, target: b, topics: {topics}, {settings}}}
{more}
"""
    return load_text(text, env={})


def flow(settings: str = "", topics: str = '["^t.*"]') -> Flow:
    return config(settings, topics).flows["f"]


def topic(name: str, partitions: int = 2, topic_id: str = "", **configs: str) -> TopicInfo:
    """A topic with id `id-NAME` and the configs of a source topic; others by keyword, `_` for `.`."""
    own = {key.replace("_", "."): value for key, value in configs.items()}
    return TopicInfo(name, topic_id or f"id-{name}", partitions, {**SOURCE_CONFIGS, **own})


def claim(name: str, partition: int = 0, target_topic_id: str = "") -> Claim:
    """A claim of source topic `name`'s partition."""
    target = Partition(f"a.{name}", partition)
    target_id = target_topic_id or f"id-{target.topic}"
    return Claim(target, Partition(name, partition), f"id-{name}", target_id, 0, 0, 1, "somebody", 1)


def opened(
    lanes: int = 1, listing: Mapping[str, int] | None = None, own: OwnFile | None = None, before: Control | None = None
) -> Control:
    """A control topic with a generation open, of the settings of `own`: the first one, or the next after `before`."""
    control = before or Control()
    prepared = control.prepare(LaneAssignment(lanes), listing or {}, 1, own=own)
    control = control.apply(prepared)
    for record in control.finish(2):
        control = control.apply(record)
    return control


@dataclass
class FakeState:
    """`state.flow_state.FlowState`. `asked` notes the order of questions."""

    control_topic: Control | None = None
    claims_topic: Claims | None = None
    asked: list[str] = field(default_factory=list)

    def control(self) -> Control:
        found = self.control_confirmed()
        if found is None or not found.begun:
            raise Incident("control_topic_lost", "in a test", topic=CONTROL)
        return found

    def control_confirmed(self) -> Control | None:
        return self.control_if_any()

    def control_if_any(self) -> Control | None:
        self.asked.append("control")
        return self.control_topic

    def both_if_any(self) -> tuple[Control | None, Callable[[], Claims | None]]:
        control, claims = self.control_if_any(), self.claims_if_any()
        return control, lambda: claims

    def claims(self) -> Claims:
        found = self.claims_if_any()
        if found is None:
            raise Incident("claims_topic_lost", "in a test", topic=CLAIMS)
        return found

    def claims_if_any(self) -> Claims | None:
        self.asked.append("claims")
        return self.claims_topic


@dataclass
class FakeSourceClaims:
    """`state.source_claims.SourceClaims`: claims by flow; `unread` by claims topic."""

    claims: dict[str, Claims] = field(default_factory=dict)
    unread: dict[str, ReplicatorError] = field(default_factory=dict)

    def origins(self, topic_ids: Mapping[str, str]) -> FoundOrigins:
        found = merged(claimed_origins(flow, claims) for flow, claims in self.claims.items())
        return FoundOrigins(of_topics(found, topic_ids), self.unread)


@dataclass
class FakeLogs:
    """What is asked for the ends of the target's logs: those that aren't named were never written to."""

    known: dict[Partition, LogEnds | ReplicatorError] = field(default_factory=dict)
    asked: list[Partition] = field(default_factory=list)

    def log_ends(self, partitions: Collection[Partition]) -> dict[Partition, LogEnds | ReplicatorError]:
        self.asked += partitions
        return {at: self.known.get(at, LogEnds(f"id-{at.topic}", 0, 0, 0)) for at in partitions}


@dataclass
class FakePlane:
    """Topics of both clusters by name; `denied` by cluster and topic, `refused` by name of what is created or grown.

    `denied_configs`: topics that may be seen, but not their configs.
    """

    flow: Flow
    source: dict[str, TopicInfo] = field(default_factory=dict)
    target: dict[str, TopicInfo] = field(default_factory=dict)
    state: FakeState = field(default_factory=FakeState)
    source_claims: FakeSourceClaims = field(default_factory=FakeSourceClaims)
    positions: bool = False
    denied: dict[str, NotAllowed] = field(default_factory=dict)
    denied_configs: dict[str, NotAllowed] = field(default_factory=dict)
    refused: dict[str, ReplicatorError] = field(default_factory=dict)
    created: list[str] = field(default_factory=list)
    grown: list[str] = field(default_factory=list)
    requests: int = 0
    same_cluster: bool = False
    closed: bool = False
    fails: ReplicatorError | None = None  # every question to the source
    unset: ReplicatorError | None = None  # every change of configs
    source_acls: set[TopicAcl] = field(default_factory=set)
    target_acls: set[TopicAcl] = field(default_factory=set)
    unlisted: ReplicatorError | None = None  # every question for ACLs
    target_logs: FakeLogs = field(default_factory=FakeLogs)

    def close(self) -> None:
        self.closed = True

    def connect(
        self,
        waits: Waits = lambda cluster, why, target_answers: None,
        answers: Answers = lambda cluster: None,
    ) -> tuple[ClusterInfo, ClusterInfo]:
        answers(self.flow.source)
        answers(self.flow.target)
        return ClusterInfo("ca", (1,)), ClusterInfo("ca" if self.same_cluster else "cb", (1,))

    def named(self) -> set[str]:
        return {name for name in literals(self.flow) if selects(self.flow, name)}

    def listed_source(self, known: Collection[str] = (), *, rights: bool = False) -> dict[str, ListedTopic]:
        if self.fails is not None:
            raise self.fails
        visible = {name for name in self.source if selects(self.flow, name) and name not in self.denied}
        return self._listed(self.source, visible | self.named() | set(known))

    def listed_target(self, wanted: Iterable[str], *, rights: bool = False) -> dict[str, ListedTopic]:
        return self._listed(self.target, wanted)

    def _listed(self, topics: Mapping[str, TopicInfo], wanted: Iterable[str]) -> dict[str, ListedTopic]:
        self.requests += 1
        found: dict[str, ListedTopic] = {}
        for name in sorted(wanted):
            info, hidden, plain = topics.get(name), self.denied.get(name), self.denied_configs.get(name)
            if hidden is not None:
                found[name] = ListedTopic(None, hidden)
            elif info is not None and plain is not None:
                found[name] = ListedTopic(replace(info, configs={}), plain)
            else:
                found[name] = ListedTopic(info)
        return found

    def has_positions(self, sources: Mapping[str, TopicInfo]) -> bool:
        self.state.asked.append("positions")
        return self.positions

    def create(self, specs: Collection[TopicSpec]) -> dict[str, bool | ReplicatorError]:
        self.requests += bool(specs)
        return {spec.name: self._create(spec) for spec in specs}

    def _create(self, spec: TopicSpec) -> bool | ReplicatorError:
        if spec.name in self.refused:
            return self.refused[spec.name]
        if spec.name in self.target:
            return False
        self.target[spec.name] = TopicInfo(spec.name, f"id-{spec.name}", spec.partitions, dict(spec.configs))
        self.created.append(spec.name)
        return True

    def grow(self, totals: Mapping[str, int]) -> dict[str, ReplicatorError | None]:
        self.requests += bool(totals)
        for name, total in totals.items():
            if name not in self.refused:
                self.target[name] = replace(self.target[name], partitions=total)
                self.grown.append(name)
        return {name: self.refused.get(name) for name in totals}

    def set_configs(self, wanted: Mapping[str, Mapping[str, str]]) -> dict[str, ReplicatorError | None]:
        self.requests += 1
        if self.unset is not None:
            raise self.unset
        for name, values in wanted.items():
            if name not in self.refused:
                self.target[name] = replace(self.target[name], configs={**self.target[name].configs, **values})
        return {name: self.refused.get(name) for name in wanted}

    def acls(self) -> tuple[Collection[TopicAcl], Collection[TopicAcl]]:
        if self.unlisted is not None:
            raise self.unlisted
        return self.source_acls, self.target_acls

    def create_acls(self, wanted: Collection[TopicAcl]) -> dict[TopicAcl, ReplicatorError | None]:
        self.target_acls |= {acl for acl in wanted if acl.topic not in self.refused}
        return {acl: self.refused.get(acl.topic) for acl in wanted}

    def internal(self) -> dict[str, TopicInfo]:
        return {name: self.target[name] for name in (CONTROL, CLAIMS) if name in self.target}

    def create_internal(self, lanes: int) -> None:
        for name, partitions in ((CONTROL, 1), (CLAIMS, lanes)):
            self._create(TopicSpec(name, partitions, -1, {"cleanup.policy": "compact"}))
        if self.state.control_topic is None:
            self.state.control_topic = Control()
        if self.state.claims_topic is None:
            self.state.claims_topic = Claims({}, ())

    def offsets_topic(self) -> TopicInfo | None:
        if MAP in self.denied:
            raise self.denied[MAP]
        return self.target.get(MAP)

    def offsets_index_topic(self) -> TopicInfo | None:
        return self.target.get(names.offsets_index_topic("f"))

    def create_map_topic(self, spec: TopicSpec) -> ReplicatorError | None:
        answer = self._create(spec)
        if answer is True:
            self.created.remove(spec.name)  # tests of target topics know nothing of it
        return answer if isinstance(answer, ReplicatorError) else None

    def copy(self, name: str) -> str:
        return target_topic(self.flow, name)


def run_before(plane: FakePlane, *claimed: Claim) -> FakePlane:
    """The same clusters after the flow has run: control topic open, these claims."""
    listing = {name: it.partitions for name, it in plane.source.items()}
    lanes = lanes_wanted(plane.flow, listing, Control())
    plane.state.control_topic = opened(lanes, listing, own_file(plane.flow))
    plane.state.claims_topic = Claims({it.target: it for it in claimed}, ())
    plane.target[CONTROL] = TopicInfo(CONTROL, "c", 1, {"cleanup.policy": "compact"})
    plane.target[CLAIMS] = TopicInfo(CLAIMS, "m", lanes, {"cleanup.policy": "compact"})
    return plane


def setup_of(plane: FakePlane, whole: Config | None = None) -> Setup:
    asked = threading.Event()
    asked.set()  # nothing is waited for
    made = cast(ControlPlane, plane)
    return Setup(plane.flow, whole or config(), made, "me", structlog.get_logger(), asked)


def drained(events: queue.SimpleQueue[Any]) -> list[Any]:
    """What has been put into a queue so far."""
    found: list[Any] = []
    while not events.empty():
        found.append(events.get())
    return found
