"""Those of a flow's own topics that hold none of its state, for `inspect.planning`: which `run` would make, and what is
wrong with them or keeps it from that. Without most of them records are copied all the same.

The control topic and the claims, over which a flow is never begun again, are `planning`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from replicator.config import Flow
from replicator.flow.heartbeats import heartbeats_spec
from replicator.flow.offsets_topic import check_index_topic, check_map_topic, index_topic_of, map_topic_of
from replicator.flow.topics import ControlPlane, aside_topic, check_lanes_topic, lanes_topic, listed, notes_topic
from replicator.inspect.flow_plan import FlowPlan, Kind, PlanFinding
from replicator.inspect.plan_rights import lacks, missing_on_topic
from replicator.kafka.admin import TopicSpec
from replicator.kafka.topic_questions import TopicInfo
from replicator.model.errors import Incident, NotAllowed, ReplicatorError

TARGET_RIGHTS = ("Describe", "DescribeConfigs", "Read", "Write")


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnTopic:
    """A topic that `run` makes sure of. `until_then`: what isn't done without it; empty: the flow isn't copied. `check`
    raises Incident for one that is there and can't be used."""

    spec: TopicSpec
    until_then: str = ""
    check: Callable[[TopicInfo], None] | None = None
    rights: tuple[str, ...] = TARGET_RIGHTS
    at_source: bool = False


def own_topics(flow: Flow, lanes: int) -> Iterator[OwnTopic]:
    """Yield those of this flow, which has so many lanes. Pure."""
    yield OwnTopic(spec=lanes_topic(flow, lanes), check=partial(check_lanes_topic, lanes=lanes))
    if (blocks := map_topic_of(flow)) is not None:
        yield OwnTopic(spec=blocks, until_then="no offset map is written", check=check_map_topic)
    if (index := index_topic_of(flow)) is not None:
        yield OwnTopic(spec=index, until_then="the offset map isn't consolidated", check=check_index_topic)
    if flow.groups.synced:
        yield OwnTopic(spec=notes_topic(flow), until_then="no consumer groups are synced")
    if flow.policy.sets_aside:
        yield OwnTopic(spec=aside_topic(flow), until_then="what policy sets aside waits for an operator")
    if flow.heartbeat:
        spec, rights = heartbeats_spec(flow), ("Write",)
        yield OwnTopic(spec=spec, until_then="no heartbeats are written", rights=rights, at_source=True)


def plan_own_topics(flow: Flow, clusters: ControlPlane, lanes: int, result: FlowPlan) -> None:
    """Add to a plan which of them would be made, and what is wrong with them. Raises nothing that a cluster says."""
    for topic in own_topics(flow, lanes):
        try:
            made = _look(flow, clusters, topic)
        except ReplicatorError as error:
            result.note(_finding(topic, error))
        else:
            into = result.at_source if topic.at_source else result.internal
            into += [topic.spec] if made else []


def _look(flow: Flow, clusters: ControlPlane, topic: OwnTopic) -> bool:
    """Return whether the topic would be made. Raises what is wrong with it, or why it can't be made."""
    spec = topic.spec
    admin, cluster = (clusters.source, flow.source) if topic.at_source else (clusters.target, flow.target)
    found = listed(admin, (spec.name,), rights=True)[spec.name]
    missing = missing_on_topic(found, topic.rights)
    answer = True if found.info is not None else admin.create_topics([spec], dry=True)[spec.name]
    if missing:
        missing += ["Create"] if isinstance(answer, NotAllowed) else []
        raise NotAllowed(lacks(cluster, missing, f"topic {spec.name!r}"))
    if found.denied is not None:
        raise found.denied
    if found.info is not None:
        if topic.check is not None:
            topic.check(found.info)
        return False
    if isinstance(answer, ReplicatorError):
        raise answer
    return True


def _finding(topic: OwnTopic, error: ReplicatorError) -> PlanFinding:
    kind: Kind = "right" if isinstance(error, NotAllowed) else "topic"
    if topic.until_then:
        return PlanFinding("warning", kind, f"{error}; until then {topic.until_then}")
    if isinstance(error, Incident):
        return PlanFinding("error", kind, str(error), error.exit_code, error.name, error.topic, error.partition)
    return PlanFinding("error", kind, str(error), error.exit_code)
