"""Which offsets of both sides must hold the same records, fixed before anything is read.

The order makes it safe beside a running flow: first the target's committed ends, then the flow's positions, read
stable. A position and its evidence were committed with the records, so source offsets below it and target offsets
below its `next_target_offset` correspond exactly. Whatever the flow committed below the ends that were read first is
covered by the positions that were read later; so a record between the two was not written by the flow, and it is
compared too.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from replicator import checkpoint, map, names, routing
from replicator.admin import TopicInfo
from replicator.checkpoint import BadMetadata, Observed, Position
from replicator.config import Delivery, Flow
from replicator.errors import ConfigError, Incident, Retriable
from replicator.planes.contract import Committed, Partition
from replicator.planes.records import look
from replicator.planes.records.reading import Reader
from replicator.topics import ControlPlane

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
    `vouched`: the target offset below which the position vouches for records.
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
    vouched: int = -1
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What to compare. `waiting` are source partitions that the flow has not begun to copy."""

    pairs: tuple[Pair, ...]
    waiting: tuple[Partition, ...]
    taken_ms: int


@dataclass(frozen=True, slots=True)
class Seen:
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
        Incident: there is nothing to compare, or a topic is another one than the position was written for.
        Unreachable, NotAllowed, Retriable: see `ControlPlane`.
    """
    others = sorted(name for name in topics if not routing.selects(flow, name))
    if others:
        raise ConfigError(f"flow {flow.name} does not copy topic {', '.join(others)}")
    with ControlPlane(flow, connect_timeout_ms=connect_timeout_ms) as clusters:
        here, _ = clusters.connect()
        listed = clusters.list_source()
        absent = clusters.missing(listed)
        if absent is not None and not topics:
            raise absent
        sources = {name: info for name, info in listed.items() if not topics or name in topics}
        unknown = sorted(set(topics) - sources.keys())
        if unknown:
            raise ConfigError(f"cluster {flow.source.name!r} has no topic {', '.join(unknown)}")
        targets = clusters.list_target(sources, configs=True)
        clusters.target.group_rights(names.position_group(flow.name))
        routes = {at: to for at, to in _routes(flow, sources) if to.partition < _partitions(targets, to.topic)}
        before = clusters.target.offsets(routes.values(), end=True, committed_only=True)
        positions = look.positions(flow, routes.values())
        copied = {at: to for at, to in routes.items() if positions[to] is not None}
        _await_applied(clusters, {to: _next_offset(flow, at, positions[to]) for at, to in copied.items()})
        bounds = {
            "source": (clusters.source.offsets(copied, end=False), clusters.source.offsets(copied, end=True)),
            "target": (
                clusters.target.offsets(copied.values(), end=False),
                clusters.target.offsets(copied.values(), end=True, committed_only=True),
            ),
        }
    claims = _claims(flow, bool(copied))
    seen = [
        Seen(
            source=at,
            target=to,
            source_topic=sources[at.topic],
            target_topic=targets[to.topic],
            source_cluster=here.cluster_id,
            committed=_known(positions[to]),
            claimed=claims[to].offset if to in claims else None,
            source_bounds=(bounds["source"][0][at], bounds["source"][1][at]),
            target_bounds=(bounds["target"][0][to], bounds["target"][1][to]),
            target_end_before=before[to],
        )
        for at, to in sorted(copied.items())
    ]
    if not seen:
        raise Incident(
            "nothing_to_reconcile",
            f"flow {flow.name} has no position yet for any partition of {', '.join(sorted(sources)) or 'its topics'}",
            advice="Run the flow first",
        )
    pairs = tuple(pair_of(flow, item) for item in seen)
    waiting = tuple(sorted(at for at, _ in _routes(flow, sources) if at not in copied))
    return Snapshot(_cut_to(flow, pairs, window), waiting, time.time_ns() // 1_000_000)


def pair_of(flow: Flow, seen: Seen) -> Pair:
    """What to compare of one partition. Pure. Raises Incident when the position was written for other topics."""
    position = _position(seen.source, seen.committed)
    evidence = position.evidence
    observed = Observed(
        source_cluster=seen.source_cluster,
        source_topic=seen.source.topic,
        source_topic_id=seen.source_topic.topic_id,
        source_log_start=seen.source_bounds[0],
        source_end=seen.source_bounds[1],
        target_topic_id=seen.target_topic.topic_id,
        target_end=seen.target_bounds[1],
        generation=evidence.generation,
    )
    notes: list[str] = []
    wrong = checkpoint.compare(position, observed)
    if wrong is not None:
        if wrong.name in _OTHER_DATA:
            at = seen.source
            raise Incident(wrong.name, wrong.detail, topic=at.topic, partition=at.partition, offset=position.offset)
        notes.append(f"{wrong.name}: {wrong.detail}")
    origin = seen.claimed
    if origin is None:
        origin = evidence.log_start
        notes.append("no claim says where the flow began; taken from the source's log start of that time")
    if evidence.delivery != Delivery.EXACTLY_ONCE.value:
        notes.append(f"copied with delivery {evidence.delivery}: differences are to be expected")
    source_start, source_end = seen.source_bounds
    target_start, target_end = seen.target_bounds
    end = evidence.next_target_offset
    if (
        evidence.delivery != Delivery.AT_LEAST_ONCE.value
    ):  # there, positions follow the records: what is behind is in flight
        end = max(end, seen.target_end_before)
    end = min(end, target_end)
    return Pair(
        source=seen.source,
        target=seen.target,
        source_range=(max(origin, source_start), min(position.offset, source_end)),
        target_range=(target_start, max(target_start, end)),
        source_cut=source_start > origin,
        target_cut=target_start > 0,
        source_compacted="compact" in seen.source_topic.configs.get("cleanup.policy", ""),
        target_compacted="compact" in seen.target_topic.configs.get("cleanup.policy", ""),
        count=evidence.count,
        vouched=evidence.next_target_offset,
        notes=tuple(notes),
    )


def _cut_to(flow: Flow, pairs: tuple[Pair, ...], window: Window) -> tuple[Pair, ...]:
    """The part of each pair that lies in the window: the same records on both sides, found by their time."""
    if not window:
        return pairs
    for cluster, of_source in ((flow.source, True), (flow.target, False)):
        reader = Reader(flow, cluster)
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
            "position_unreadable", str(error), topic=at.topic, partition=at.partition, offset=committed.offset
        ) from error


def _next_offset(flow: Flow, at: Partition, committed: Committed | None) -> int:
    return _position(at, _known(committed)).evidence.next_target_offset


def _await_applied(clusters: ControlPlane, ends: Mapping[Partition, int]) -> None:
    """Until the target's committed ends reach what the positions vouch for: markers are applied one by one.

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


def _claims(flow: Flow, wanted: bool) -> Mapping[Partition, map.Claim]:
    topic = names.map_topic(flow.name)
    if not wanted:
        return {}
    with ControlPlane(flow) as clusters:
        found = clusters.target.topics([topic])
    if topic not in found:
        return {}
    reader = Reader(flow, flow.target)
    try:
        return map.claims(reader.whole(topic, range(found[topic].partitions)))
    except map.BadMap as error:
        raise Incident("map_topic_unreadable", str(error), topic=topic) from error
    finally:
        reader.close()
