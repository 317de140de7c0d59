"""Which offsets of both sides must hold the same records, fixed before anything is read.

The order makes it safe beside a running flow: first the target's committed ends, then the flow's positions, read
stable. A position and its evidence were committed with the records, so source offsets below it and target offsets
below its `next_target_offset` correspond exactly. Whatever the flow committed below the ends that were read first is
covered by the positions that were read later; so a record between the two was not written by the flow, and it is
compared too.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from replicator.config import Delivery, Flow, routing
from replicator.flow.topics import ControlPlane
from replicator.kafka import offset_reader
from replicator.kafka.admin import TopicInfo
from replicator.kafka.topic_reader import TopicReader
from replicator.lane.judge import compare
from replicator.model import checkpoint, names
from replicator.model.checkpoint import BadMetadata, Position
from replicator.model.errors import ConfigError, Incident, Retriable, TopicMissing
from replicator.model.partition import Committed, LogEnds, Partition

AGAIN_S = 0.1  # between the first two tries, where a cluster doesn't answer for a moment
Offsets = tuple[int, int]
"""[first, end)"""
_OTHER_DATA = ("source_cluster_changed", "source_topic_changed", "source_topic_recreated", "target_topic_recreated")
"""Contradictions between a position and its clusters after which a comparison would mean nothing."""


@dataclass(frozen=True, slots=True)
class Window:
    """Only records from the first one at or after `from_ms` to before the first one at or after `to_ms`."""

    from_ms: int | None = None
    to_ms: int | None = None

    def __bool__(self) -> bool:
        return self.from_ms is not None or self.to_ms is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A partition of both sides with the offsets to compare.

    `source_cut`, `target_cut`: the log begins later than what was copied, by retention or DeleteRecords.
    `count`: records of the whole range according to the position; None where it says nothing about this range.
    `covered_end`: the target offset below which the position covers records.
    `notes`: what a reader of the report should know, in sentences.
    """

    source: Partition
    target: Partition
    source_range: Offsets
    target_range: Offsets
    source_cut: bool = False
    target_cut: bool = False
    source_compacted: bool = False
    target_compacted: bool = False
    count: int | None = None
    covered_end: int = -1
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What to compare. `waiting` are source partitions that the flow has not begun to copy, `not_compared` says of
    which others the position was written for another topic."""

    pairs: tuple[Pair, ...]
    waiting: tuple[Partition, ...]
    taken_ms: int
    not_compared: tuple[Incident, ...] = ()


@dataclass(frozen=True, slots=True)
class PairFacts:
    """What both clusters say about one partition. `target_end_before` was read before the position."""

    source: Partition
    target: Partition
    source_topic: TopicInfo
    target_topic: TopicInfo
    source_cluster: str
    committed: Committed
    claimed: int | None
    source_bounds: Offsets
    target_bounds: Offsets
    target_end_before: int


def take(flow: Flow, topics: Collection[str], window: Window, *, connect_timeout_ms: int) -> Snapshot:
    """Asks both clusters. Nothing is changed.

    Args:
        topics: source topics; all that the flow selects when empty.
        connect_timeout_ms: how long to wait for each cluster.

    Raises:
        ConfigError: the flow doesn't copy one of `topics`.
        Incident: there is nothing to compare, or all topics are others than the positions were written for.
        Unreachable, NotAllowed, Retriable: see `ControlPlane`.
    """
    others = sorted(name for name in topics if not routing.selects(flow, name))
    if others:
        raise ConfigError(f"flow {flow.name} does not copy topic {', '.join(others)}")
    with ControlPlane(flow, connect_timeout_ms=connect_timeout_ms) as clusters:
        here, _ = clusters.connect()
        found: list[Snapshot] = []
        failed: list[Retriable] = []

        def taken() -> bool:
            try:
                found.append(_taken(flow, topics, window, clusters, here.cluster_id))
            except TopicMissing:
                raise
            except Retriable as error:  # a leader that has just changed, say
                failed.append(error)
            return bool(found)

        if not clusters.target.until(taken, AGAIN_S):
            raise failed[-1]
        return found[0]


def _taken(
    flow: Flow, topics: Collection[str], window: Window, clusters: ControlPlane, source_cluster: str
) -> Snapshot:
    listed = clusters.list_source()
    absent = sorted(clusters.named() - listed.keys())
    if absent and not topics:
        why = f"cluster {flow.source.name!r} has no topic {', '.join(absent)}"
        raise Incident("unknown_source_topic", why, topic=absent[0])
    sources = {name: info for name, info in listed.items() if not topics or name in topics}
    unknown = sorted(set(topics) - sources.keys())
    if unknown:
        raise ConfigError(f"cluster {flow.source.name!r} has no topic {', '.join(unknown)}")
    targets = clusters.list_target(sources, configs=True)
    clusters.target.group_rights(names.position_group(flow.name))
    routes = {at: to for at, to in _routes(flow, sources) if to.partition < _partitions(targets, to.topic)}
    before = clusters.target.offsets(routes.values(), end=True, committed_only=True)
    positions = offset_reader.positions(flow, routes.values())
    copied = {at: to for at, to in routes.items() if positions[to] is not None}
    _await_applied(clusters, {to: _next_offset(flow, at, positions[to]) for at, to in copied.items()})
    bounds = {
        "source": (clusters.source.offsets(copied, end=False), clusters.source.offsets(copied, end=True)),
        "target": (
            clusters.target.offsets(copied.values(), end=False),
            clusters.target.offsets(copied.values(), end=True, committed_only=True),
        ),
    }
    claimed = clusters.state.claims_if_any() if copied else None
    claims = claimed.claims if claimed else {}
    facts = [
        PairFacts(
            source=at,
            target=to,
            source_topic=sources[at.topic],
            target_topic=targets[to.topic],
            source_cluster=source_cluster,
            committed=_known(positions[to]),
            claimed=claims[to].offset if to in claims else None,
            source_bounds=(bounds["source"][0][at], bounds["source"][1][at]),
            target_bounds=(bounds["target"][0][to], bounds["target"][1][to]),
            target_end_before=before[to],
        )
        for at, to in sorted(copied.items())
    ]
    if not facts:
        raise Incident(
            "nothing_to_reconcile",
            f"flow {flow.name} has no position yet for any partition of {', '.join(sorted(sources)) or 'its topics'}",
            advice="Run the flow first",
        )
    pairs, not_compared = pairs_of(flow, facts)
    waiting = tuple(sorted(at for at, _ in _routes(flow, sources) if at not in copied))
    return Snapshot(_cut_to(flow, pairs, window), waiting, time.time_ns() // 1_000_000, not_compared)


def pairs_of(flow: Flow, facts: Sequence[PairFacts]) -> tuple[tuple[Pair, ...], tuple[Incident, ...]]:
    """What to compare of all partitions, and an incident for each that can't be. Pure.

    A topic that was created again hides no other. Raises its Incident when nothing is left to compare.
    """
    pairs, incidents = list[Pair](), list[Incident]()
    for item in facts:
        try:
            pairs.append(pair_of(flow, item))
        except Incident as incident:
            incidents.append(incident)
    if not pairs:
        raise incidents[0]
    return tuple(pairs), tuple(incidents)


def pair_of(flow: Flow, facts: PairFacts) -> Pair:
    """What to compare of one partition. Pure. Raises Incident when the position was written for other topics."""
    position = _position(facts.source, facts.committed)
    evidence = position.evidence
    here = LogEnds(facts.source_topic.topic_id, facts.source_bounds[0], facts.source_bounds[1], facts.source_bounds[1])
    there = LogEnds(facts.target_topic.topic_id, facts.target_bounds[0], facts.target_bounds[1], facts.target_bounds[1])
    notes: list[str] = []
    wrong = compare(position, facts.source_cluster, facts.source.topic, here, there, evidence.generation)
    if wrong is not None:
        name, detail = wrong
        if name in _OTHER_DATA:
            at = facts.source
            raise Incident(name, detail, topic=at.topic, partition=at.partition, offset=position.offset)
        notes.append(f"{name}: {detail}")
    origin = facts.claimed
    if origin is None:
        origin = evidence.log_start
        notes.append("no claim says where the flow began; taken from the source's log start of that time")
    if evidence.delivery != Delivery.EXACTLY_ONCE.value:
        notes.append(f"copied with delivery {evidence.delivery}: differences are to be expected")
    source_start, source_end = facts.source_bounds
    target_start, target_end = facts.target_bounds
    end = evidence.next_target_offset
    if (
        evidence.delivery != Delivery.AT_LEAST_ONCE.value
    ):  # there, positions follow the records: what is behind is in flight
        end = max(end, facts.target_end_before)
    end = min(end, target_end)
    return Pair(
        source=facts.source,
        target=facts.target,
        source_range=(max(origin, source_start), min(position.offset, source_end)),
        target_range=(target_start, max(target_start, end)),
        source_cut=source_start > origin,
        target_cut=target_start > 0,
        source_compacted="compact" in facts.source_topic.configs.get("cleanup.policy", ""),
        target_compacted="compact" in facts.target_topic.configs.get("cleanup.policy", ""),
        count=evidence.count,
        covered_end=evidence.next_target_offset,
        notes=tuple(notes),
    )


def _cut_to(flow: Flow, pairs: tuple[Pair, ...], window: Window) -> tuple[Pair, ...]:
    """The part of each pair that lies in the window: the same records on both sides, found by their time."""
    if not window:
        return pairs
    for cluster, of_source in ((flow.source, True), (flow.target, False)):
        reader = TopicReader(flow, cluster)
        try:
            ats = [pair.source if of_source else pair.target for pair in pairs]
            first = reader.committed_at_time(ats, window.from_ms) if window.from_ms is not None else {}
            last = reader.committed_at_time(ats, window.to_ms) if window.to_ms is not None else {}
        finally:
            reader.close()
        pairs = tuple(_narrowed(pair, of_source, first, last) for pair in pairs)
    return pairs


def _narrowed(pair: Pair, of_source: bool, first: Mapping[Partition, int], last: Mapping[Partition, int]) -> Pair:
    at = pair.source if of_source else pair.target
    start, end = pair.source_range if of_source else pair.target_range
    to = last.get(at, -1)
    narrow_end = end if to < 0 else min(end, to)
    frm = first.get(at)
    narrow = start if frm is None else narrow_end if frm < 0 else max(start, min(frm, narrow_end))
    offsets = (narrow, max(narrow, narrow_end))
    if of_source:
        return replace(pair, source_range=offsets, source_cut=pair.source_cut and narrow == start, count=None)
    return replace(pair, target_range=offsets, target_cut=pair.target_cut and narrow == start, count=None)


def _routes(flow: Flow, sources: Mapping[str, TopicInfo]) -> Iterable[tuple[Partition, Partition]]:
    for name, info in sources.items():
        target = routing.target_topic(flow, name)
        for number in range(info.partitions):
            yield Partition(name, number), Partition(target, number)


def _partitions(topics: Mapping[str, TopicInfo], name: str) -> int:
    return topics[name].partitions if name in topics else 0


def _known(committed: Committed | None) -> Committed:
    assert committed is not None, "partitions without a position are left out before"
    return committed


def _position(at: Partition, committed: Committed) -> Position:
    try:
        return Position(committed.offset, checkpoint.decode(committed.metadata))
    except BadMetadata as error:
        raise Incident(
            error.incident, str(error), topic=at.topic, partition=at.partition, offset=committed.offset
        ) from error


def _next_offset(flow: Flow, at: Partition, committed: Committed | None) -> int:
    return _position(at, _known(committed)).evidence.next_target_offset


def _await_applied(clusters: ControlPlane, ends: Mapping[Partition, int]) -> None:
    """Until the target's committed ends reach what the positions cover: markers are applied one by one.

    A log that ends below has lost records, and no wait brings them back.
    """
    there = clusters.target.offsets(ends, end=True)
    wanted = {at: min(end, there[at]) for at, end in ends.items()}

    def applied() -> bool:
        stable = clusters.target.offsets(wanted, end=True, committed_only=True)
        return all(stable[at] >= end for at, end in wanted.items())

    if not clusters.target.until(applied):
        raise Retriable(
            f"cluster {clusters.flow.target.name!r}: an open transaction hides records of the flow's topics"
        )
