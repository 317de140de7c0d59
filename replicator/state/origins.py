"""Whether a topic comes from the cluster to which a flow would copy it. Pure.

Invariant: no record comes back to where it was read, because each round would write it again. Within one flow file
`config.routing` knows all flows. Others are known by their claims: a claim says from which cluster its partition is
copied, and from where that cluster had it. So each flow reads the claims of others on its *source* cluster, and hands
on in its own claims, on the target, what it finds there.

Used by `flow.setup` and `inspect.planning` for all topics, and by lanes between the claim of a partition and its first
record: of two flows that start at the same time, at least one has then claimed before the other looks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from replicator.config import Flow
from replicator.config.routing import target_topic
from replicator.model.errors import Incident, ReplicatorError, Retriable, Unreachable
from replicator.model.origins import NONE, Origin, Origins
from replicator.state.claims import Claims


@dataclass(frozen=True, slots=True)
class FoundOrigins:
    """Where topics come from, by topic; those that no flow writes are left out.

    `unread`: why a claims topic, by its name, could not be read. A right that is missing, or what isn't a claims topic
    of this version, stays so until somebody does something; anything else may pass.
    """

    origins: Mapping[str, Origins] = field(default_factory=dict)
    unread: Mapping[str, ReplicatorError] = field(default_factory=dict)

    @property
    def passing(self) -> ReplicatorError | None:
        """What keeps some of it from being known now, and may pass."""
        return next((it for it in self.unread.values() if isinstance(it, Retriable | Unreachable)), None)


OriginsById = Mapping[tuple[str, str], Origins]
"""By topic and topic id: a claim counts for the topic of its id only. Of one that was created again under its name the
flow writes nothing."""


def claimed_origins(flow: str, claims: Claims) -> OriginsById:
    """Say where the topics come from that this flow has claimed.

    A claim that was written by a version that didn't say where a partition comes from says nothing.
    """
    found: dict[tuple[str, str], Origins] = {}
    for at, claim in claims.claims.items():
        if claim.source_cluster:
            hop = Origin(claim.source_cluster, claim.source.topic, flow)
            known = found.get((at.topic, claim.target_topic_id), NONE)
            found[at.topic, claim.target_topic_id] = known | claim.origins | {hop}
    return found


def merged(origins: Iterable[OriginsById]) -> OriginsById:
    """Merge them all."""
    found: dict[tuple[str, str], Origins] = {}
    for each in origins:
        for topic, hops in each.items():
            found[topic] = found.get(topic, NONE) | hops
    return found


def of_topics(origins: OriginsById, topic_ids: Mapping[str, str]) -> dict[str, Origins]:
    """Return those of topics that have these ids now."""
    return {name: origins[name, topic_id] for name, topic_id in topic_ids.items() if (name, topic_id) in origins}


def loop(flow: Flow, source_id: str, target_id: str, topic: str, origins: Origins) -> Incident | None:
    """Return the incident of a source topic whose records would come back to where they were read; None if they don't.

    `source_id`, `target_id`: of the flow's clusters. What comes from the target's cluster never goes back there. Within
    one cluster a chain of copies is no loop, unless it comes back to a topic, or to this flow.
    """
    to = target_topic(flow, topic)
    if source_id != target_id:
        back = sorted(hop for hop in origins if hop.cluster == target_id)
    else:
        back = sorted(hop for hop in origins if hop.flow == flow.name or (hop.cluster, hop.topic) == (target_id, to))
    if not back:
        return None
    hop = back[0]
    over = "" if len(origins) == 1 else f", over flows {', '.join(sorted({it.flow for it in origins}))}"
    why = (
        f"topic {topic!r} of cluster {flow.source.name!r} is a copy: flow {hop.flow!r} reads its records from "
        f"{hop.topic!r} of cluster {hop.cluster}{over}, and this flow would write them there again, to {to!r}"
    )
    return Incident("flows_in_conflict", why, topic=topic)


def loops(flow: Flow, source_id: str, target_id: str, origins: Mapping[str, Origins]) -> dict[str, Incident]:
    """Return the incidents of those of the flow's source topics that `loop` finds."""
    found = {topic: loop(flow, source_id, target_id, topic, hops) for topic, hops in origins.items()}
    return {topic: incident for topic, incident in found.items() if incident is not None}
