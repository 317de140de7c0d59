"""The plan of one flow as data: what is to be created, what is wrong. Made by `inspect.planning`. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from replicator.config import Flow, routing
from replicator.flow.topic_rules import ConfigChanges, TopicDecision
from replicator.inspect.expected_starts import ExpectedStarts
from replicator.inspect.plan_groups import GroupPlan
from replicator.kafka.admin import TopicSpec
from replicator.kafka.topic_questions import TopicInfo
from replicator.model.acls import TopicAcl

Kind = Literal["right", "limit", "topic", "position", "conflict", "cluster", "file", "group"]
STANDS_BY = "run would stand by"
"""So begins a finding that says why `run` would neither copy anything nor end."""


@dataclass(frozen=True, slots=True)
class PlanFinding:
    """Something that would stop the flow or a part of it (`error`), or that its owner should know (`warning`).

    `incident`: the name of the one that `run` would log, of this source topic and partition (-1: of all of them).
    """

    severity: Literal["error", "warning"]
    kind: Kind
    message: str
    exit_code: int = 4
    incident: str = ""
    topic: str = ""
    partition: int = -1


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """One topic of the flow. `configs` are those that a created topic gets; empty for an existing one. Of a topic with
    action `stop` or `wait` nothing is copied; a finding says why. `gone`: it was deleted at the source, and its copy
    stays."""

    source: str
    target: str
    partitions: int
    action: Literal["create", "grow", "keep", "stop", "wait", "gone"]
    configs: Mapping[str, str] = field(default_factory=dict)
    partitions_with_position: int = 0
    changes: ConfigChanges | None = None
    """Configs that are to be set on an existing topic (`topic_configs.sync`)."""


@dataclass(frozen=True, slots=True)
class CoupledPlan:
    """Topics that transactions at the source tie together, and those of them that the flow doesn't copy (`outside`)."""

    topics: tuple[str, ...]
    outside: tuple[str, ...]
    groups: tuple[str, ...]


@dataclass(slots=True)
class FlowPlan:
    """The plan of one flow. `unchecked` names rights that no read-only request can prove. `engine`: by what it is
    copied, where that isn't `records` as a matter of course."""

    flow: str
    source: str
    target: str
    topics: list[TopicPlan] = field(default_factory=list)
    internal: list[TopicSpec] = field(default_factory=list)
    at_source: list[TopicSpec] = field(default_factory=list)
    """Topics that are to be created at the source (`heartbeat`)."""
    acls: list[TopicAcl] = field(default_factory=list)
    """ACLs that are to be created on target topics (`sync_acls`)."""
    groups: list[GroupPlan] = field(default_factory=list)
    """Consumer groups that are synced (`groups`)."""
    coupled: list[CoupledPlan] = field(default_factory=list)
    coupled_unknown: list[str] = field(default_factory=list)
    """What isn't known of coupled topics, and why."""
    findings: list[PlanFinding] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)
    engine: str = ""
    releases: dict[str, str] = field(default_factory=dict)
    """Of Kafka, by cluster: such as 4.3, empty where a cluster doesn't tell. One that doesn't answer isn't here."""
    new_settings: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """What all workers of the flow would run differently with this file, by key: before and after as JSON, empty for
    the default."""

    def exit_code(self) -> int:
        """Return 0, or the code with which `run` would end."""
        codes = {finding.exit_code for finding in self.findings if finding.severity == "error"}
        return next((code for code in (4, 3, 2) if code in codes), 0)

    def ready(self) -> bool:
        """Return whether `run` would copy something: nothing ends it, and nothing has it stand by."""
        return not self.exit_code() and not any(it.message.startswith(STANDS_BY) for it in self.findings)

    def note(self, finding: PlanFinding) -> None:
        """Add a finding, once."""
        if finding not in self.findings:
            self.findings.append(finding)


def topic_plan(flow: Flow, info: TopicInfo, decision: TopicDecision) -> TopicPlan:
    """Say what becomes of one topic that the source lists. Pure."""
    item = TopicPlan(info.name, routing.target_topic(flow, info.name), info.partitions, "keep")
    if decision.stopped is not None:
        return replace(item, action="stop")
    if decision.waiting:
        return replace(item, action="wait")
    if decision.create is not None:
        return replace(item, action="create", configs=decision.create.configs)
    return replace(item, action="grow") if decision.grow else item


def gone_topics(expected: ExpectedStarts, listed: Collection[str]) -> list[TopicPlan]:
    """Return topics that were copied and that the source doesn't list any more. Pure."""
    found: dict[str, TopicPlan] = {}
    for at, it in sorted(expected.items()):
        if at.topic not in listed:
            before = found.get(at.topic, TopicPlan(at.topic, it.route.target.topic, 0, "gone"))
            found[at.topic] = replace(
                before, partitions=before.partitions + 1, partitions_with_position=before.partitions_with_position + 1
            )
    return list(found.values())
