"""What a flow has copied, from its claims and positions alone: `verify` of a flow whose source isn't asked.

After a failover the source may be gone for good, and what was copied before can still be proven. A position says of
which topic of which cluster it is, and up to where it was copied; what the source has besides nobody can say. Nothing
behind a flow's last copies is looked at: whoever has gone over writes there.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping

from replicator.config import Flow
from replicator.flow.topics import ControlPlane
from replicator.kafka import offset_reader
from replicator.kafka.topic_questions import TopicInfo
from replicator.model.checkpoint import Position, Stored
from replicator.model.errors import ConfigError, Incident
from replicator.model.partition import Partition, Span
from replicator.proof.former_targets import former_targets
from replicator.proof.known_partitions import begun, taken_out, unclear
from replicator.proof.pairs import PairFacts, pairs_of, readable, with_claims
from replicator.proof.snapshot import Snapshot, await_applied, hidden_copies

TAKEN_OUT = ("it isn't part of the flow any more: what was copied while it was is looked at",)


def take(flow: Flow, topics: Collection[str], *, connect_timeout_ms: int) -> Snapshot:
    """Ask the target alone. Nothing is changed.

    Args:
        topics: source topics; all that the flow has copied when empty, also those that aren't part of it any more.
        connect_timeout_ms: how long to wait for the target.

    Raises:
        ConfigError: the flow has never copied one of `topics`.
        Incident: there is nothing to look at.
        Unreachable, NotAllowed, Retriable: see `ControlPlane`.
    """
    with ControlPlane(flow, connect_timeout_ms=connect_timeout_ms) as clusters:
        cluster_id = clusters.target.connect().cluster_id
        control = clusters.state.control_if_any()
        opened = control.open if control else None
        claims = clusters.state.claims_if_any()
        former_topics = taken_out(flow, claims)
        known = begun(flow, claims, opened)
        for partitions in former_topics.values():
            known |= partitions
        if others := sorted(set(topics) - {at.topic for at in known}):
            raise ConfigError(f"flow {flow.name} has not copied topic {', '.join(others)}")
        routes = {at: to for at, to in known.items() if not topics or at.topic in topics}
        targets = clusters.target.topics({to.topic for to in routes.values()}, configs=True)
        there = {to for to in routes.values() if to.topic in targets and to.partition < targets[to.topic].partitions}
        positions = offset_reader.positions(flow, there)
        starts, ends = (clusters.target.offsets(there, end=end) for end in (False, True))
        copied = {at for at, to in routes.items() if positions.get(to) is not None}
        named = unclear(flow, routes, copied, None, targets, claims, (starts, ends), opened, topics)
        read, unreadable = _readable(routes, positions)
        hidden = await_applied(clusters, {routes[at]: it.evidence.next_target_offset for at, it in read.items()})
        unreadable += [hidden_copies(at, routes[at], hidden[routes[at]]) for at in read if routes[at] in hidden]
        read = {at: it for at, it in read.items() if routes[at] not in hidden}
        former = former_targets(flow, routes, claims)
        stable = clusters.target.offsets([routes[at] for at in read], end=True, committed_only=True)
    facts = [
        _facts(
            routes[at],
            it,
            targets[routes[at].topic],
            (starts[routes[at]], stable[routes[at]]),
            TAKEN_OUT if at.topic in former_topics else (),
        )
        for at, it in sorted(read.items())
    ]
    without = (*named, *unreadable)
    if not facts:
        why = f"flow {flow.name} has no position of a partition that it has copied"
        raise next(iter(without), Incident("nothing_to_reconcile", why))
    pairs, not_compared = pairs_of(flow, with_claims(facts, claims, former))
    taken_ms = time.time_ns() // 1_000_000
    return Snapshot(pairs, (), taken_ms, (*not_compared, *without), cluster_ids=("", cluster_id), source_asked=False)


def _readable(
    routes: Mapping[Partition, Partition], positions: Mapping[Partition, Stored | None]
) -> tuple[dict[Partition, Position], list[Incident]]:
    found, wrong = dict[Partition, Position](), list[Incident]()
    for at, to in sorted(routes.items()):
        if (stored := positions.get(to)) is not None:
            try:
                found[at] = readable(at, stored)
            except Incident as incident:
                wrong.append(incident)
    return found, wrong


def _facts(to: Partition, position: Position, target: TopicInfo, bounds: Span, notes: tuple[str, ...]) -> PairFacts:
    """Return what both clusters would say, had the source stood still at the position. `bounds`: of the target's
    log.
    """
    evidence = position.evidence
    at = Partition(evidence.source_topic, to.partition)
    return PairFacts(
        source=at,
        target=to,
        source_topic=TopicInfo(at.topic, evidence.source_topic_id, to.partition + 1),
        target_topic=target,
        source_cluster=evidence.source_cluster,
        position=position,
        source_bounds=(min(evidence.log_start, position.offset), position.offset),
        source_stable=position.offset,
        target_bounds=bounds,
        target_end_before=0,
        notes=notes,
    )
