"""Partitions of which only some of what knows of them does: listings of both sides, claims, the control topic. Pure.

A snapshot begins from all of these. What one of them knows and another one doesn't is named: it is no agreement.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from replicator.config import Flow, routing
from replicator.kafka.topic_questions import TopicInfo
from replicator.model.errors import Incident
from replicator.model.partition import Partition
from replicator.proof.pairs import without_position
from replicator.state.claims import Claims
from replicator.state.generation import Generation


def unclear(
    flow: Flow,
    wanted: Mapping[Partition, Partition],
    copied: Collection[Partition],
    sources: Mapping[str, TopicInfo] | None,
    targets: Mapping[str, TopicInfo],
    claims: Claims | None,
    ends: tuple[Mapping[tuple[str, int], int], Mapping[tuple[str, int], int]],
    opened: Generation | None,
    chosen: Collection[str],
) -> list[Incident]:
    """Say why source partitions without a position can't be compared; those that the flow has not begun have no
    incident.

    Args:
        wanted: source partitions as the source lists them, with their target partitions.
        copied: those that have a position.
        sources: as of `source_gone`; None: the source isn't asked.
        ends: where the target partitions' logs begin and end.
        claims, opened, chosen: as of `source_gone`.
    """
    found = []
    for at, to in sorted(wanted.items()):
        if at not in copied:
            bounds = ends[0].get(to, 0), ends[1].get(to, 0)
            claim = claims.claims.get(to) if claims else None
            found.append(without_position(at, to, targets.get(to.topic), claim, bounds))
    named = [incident for incident in found if incident is not None]
    if sources is not None:
        named += source_gone(flow, sources, chosen, claims, opened)
    left = wanted.keys() - set(copied) - {Partition(it.topic, it.partition) for it in named}
    return [*named, *claims_lost(flow, left, claims, opened)]


def begun(flow: Flow, claims: Claims | None, opened: Generation | None) -> dict[Partition, Partition]:
    """Return the source partitions that the flow has begun to copy, as claims and the open generation say, with their
    target partitions."""
    found = {
        Partition(topic, number): Partition(routing.target_topic(flow, topic), number)
        for topic, partitions in (opened.partitions if opened else {}).items()
        if routing.selects(flow, topic)
        for number in range(partitions)
    }
    claimed = dict[Partition, Partition]()
    for at, it in (claims.claims if claims else {}).items():
        if routing.selects(
            flow, it.source.topic
        ):  # one that was renamed, and back, has several: the one of today counts
            today = at.topic == routing.target_topic(flow, it.source.topic)
            claimed[it.source] = at if today else claimed.get(it.source, at)
    return found | claimed


def taken_out(flow: Flow, claims: Claims | None) -> dict[str, dict[Partition, Partition]]:
    """Return the source topics that the flow has begun to copy, and that the flow file doesn't select any more: their
    partitions, with the target partitions that were claimed last: within a generation as their records stand."""
    found: dict[str, dict[Partition, Partition]] = {}
    for it in sorted(claims.claims.values() if claims else (), key=lambda it: it.generation):
        if not routing.selects(flow, it.source.topic):
            found.setdefault(it.source.topic, {})[it.source] = it.target
    return dict(sorted(found.items()))


def not_asked(topic: str) -> str:
    """Say of one of `taken_out` that nothing was looked at."""
    return (
        f"topic {topic} isn't part of the flow any more, and its copies weren't looked at: "
        "verify --without-source looks at them"
    )


def source_gone(
    flow: Flow,
    sources: Mapping[str, TopicInfo],
    chosen: Collection[str],
    claims: Claims | None,
    opened: Generation | None,
) -> list[Incident]:
    """Return an incident for each partition that the flow began to copy and that the source doesn't list any more.

    Args:
        sources: topics as the source lists them, with their partitions.
        chosen: topics that were asked for; all when empty.
        opened: the generation that is open, with the partitions of the flow's first listing.
    """
    return [
        Incident(
            "source_topic_deleted",
            f"{at} belongs to the flow, and the source doesn't list it: nothing says what {target} should hold",
            topic=at.topic,
            partition=at.partition,
        )
        for at, target in sorted(begun(flow, claims, opened).items())
        if (not chosen or at.topic in chosen)
        and (at.topic not in sources or at.partition >= sources[at.topic].partitions)
    ]


def claims_lost(
    flow: Flow, wanted: Collection[Partition], claims: Claims | None, opened: Generation | None
) -> list[Incident]:
    """Return, where a generation is open without a claims topic, an incident for each of the partitions without a
    position that its first listing has. They may have been copied, and the target topic deleted since, with the
    position."""
    if claims is not None or opened is None:
        return []
    why = "the flow is open and its claims topic is gone: nothing says whether this partition was copied"
    return [
        Incident("claims_topic_lost", why, topic=at.topic, partition=at.partition)
        for at in sorted(wanted)
        if at.partition < opened.partitions.get(at.topic, 0)
    ]


def more_on_target(
    flow: Flow, sources: Mapping[str, TopicInfo], targets: Mapping[str, TopicInfo]
) -> dict[Partition, str]:
    """Return the partitions that only the target topic has, with their source topic."""
    found: dict[Partition, str] = {}
    for name, info in sources.items():
        target = targets.get(routing.target_topic(flow, name))
        for number in range(info.partitions, target.partitions if target is not None else 0):
            found[Partition(routing.target_topic(flow, name), number)] = name
    return found


def not_copied(at: Partition, source: str, bounds: tuple[int, int]) -> Incident | None:
    """Return an incident about one of `more_on_target`, by where its log begins and ends; None: it never had a
    record.
    """
    if bounds[1] == 0:
        return None
    why = f"{at} has offsets {bounds[0]} to {bounds[1]}, and the source topic has no such partition"
    return Incident("target_partition_unknown", why, topic=source, partition=at.partition)
