"""Which offsets of both sides must hold the same records, fixed before anything is read.

The order makes it safe beside a running flow: first the target's committed ends, then the flow's positions, read
stable. A position and its evidence were committed with the records, so source offsets below it and target offsets
below its `next_target_offset` correspond exactly. Whatever the flow committed below the ends that were read first is
covered by the positions that were read later; so a record between the two was not written by the flow, and it is
compared too.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from replicator.config import Flow, routing
from replicator.flow.topics import ControlPlane, reading_topics
from replicator.kafka import offset_reader
from replicator.kafka.topic_questions import TopicInfo
from replicator.model import names
from replicator.model.checkpoint import Stored
from replicator.model.errors import ConfigError, Incident, Retriable, TopicMissing
from replicator.model.partition import Partition
from replicator.proof import known_partitions
from replicator.proof.former_targets import former_targets
from replicator.proof.pairs import Pair, PairFacts, WaitingPair, pairs_of, readable, with_claims

SPARK_TIME_MS_MAX = (1 << 63) // 1000 - 1  # it counts microseconds, in 64 bits
AGAIN_S = 0.1  # between the first two tries, where a cluster doesn't answer for a moment


@dataclass(frozen=True, slots=True)
class Window:
    """Only records from the first one at or after `from_ms` to before the first one at or after `to_ms`."""

    from_ms: int | None = None
    to_ms: int | None = None

    def __bool__(self) -> bool:
        return self.from_ms is not None or self.to_ms is not None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What to compare. `waiting` are source partitions that the flow has not begun to copy, `not_compared` says which
    others can't be compared, and why: the position is gone, or was written for another topic. `cluster_ids`: of the
    source and of the target, as they say. `source_asked`: see `target_snapshot`. `notes`: what a reader should know of
    the flow, such as which topics aren't part of it any more."""

    pairs: tuple[Pair, ...]
    waiting: tuple[WaitingPair, ...]
    taken_ms: int
    not_compared: tuple[Incident, ...] = ()
    window: Window = Window()
    cluster_ids: tuple[str, str] = ("", "")
    source_asked: bool = True
    notes: tuple[str, ...] = ()


def take(
    flow: Flow,
    topics: Collection[str],
    window: Window,
    *,
    connect_timeout_ms: int,
    time_ms_max: int | None = SPARK_TIME_MS_MAX,
) -> Snapshot:
    """Ask both clusters. Nothing is changed.

    Args:
        topics: source topics; all that the flow selects when empty.
        connect_timeout_ms: how long to wait for each cluster.
        time_ms_max: partitions with a later timestamp can't be compared; None: whoever compares reads all of them.

    Raises:
        ConfigError: the flow doesn't copy one of `topics`.
        Incident: there is nothing to compare, or all topics are others than the positions were written for.
        Unreachable, NotAllowed, Retriable: see `ControlPlane`.
    """
    others = sorted(name for name in topics if not routing.selects(flow, name))
    if others:
        raise ConfigError(f"flow {flow.name} does not copy topic {', '.join(others)}")
    with ControlPlane(flow, connect_timeout_ms=connect_timeout_ms) as clusters:
        here, there = clusters.connect()
        found: list[Snapshot] = []
        failed: list[Retriable] = []

        def taken() -> bool:
            try:
                found.append(_taken(flow, topics, window, clusters, here.cluster_id, time_ms_max))
            except TopicMissing:
                raise
            except Retriable as error:  # a leader that has just changed, say
                failed.append(error)
            return bool(found)

        if not clusters.target.until(taken, AGAIN_S):
            raise failed[-1]
        return replace(found[0], cluster_ids=(here.cluster_id, there.cluster_id))


def _taken(
    flow: Flow,
    topics: Collection[str],
    window: Window,
    clusters: ControlPlane,
    source_cluster: str,
    time_ms_max: int | None,
) -> Snapshot:
    sources, absent = _sources(flow, topics, clusters)
    targets = clusters.list_target(sources, configs=True)
    control = clusters.state.control_if_any()
    opened = control.open if control else None
    clusters.target.group_rights(names.position_group(flow.name))
    wanted = dict(_routes(flow, sources))
    routes = {at: to for at, to in wanted.items() if to.partition < _partitions(targets, to.topic)}
    before = clusters.target.offsets(routes.values(), end=True, committed_only=True)
    positions = offset_reader.positions(flow, routes.values())
    copied = {at: to for at, to in routes.items() if positions[to] is not None}
    claimed = clusters.state.claims_if_any()
    former = former_targets(flow, copied, claimed)
    starts = clusters.target.offsets(routes.values(), end=False)
    ends = clusters.target.offsets(routes.values(), end=True)
    unclear = [
        *known_partitions.unclear(flow, wanted, copied, sources, targets, claimed, (starts, ends), opened, topics),
        *_only_on_target(flow, clusters, sources, targets),
    ]
    unclear += _absent(flow, absent, topics, unclear)
    far = _beyond_time(clusters, copied, window, time_ms_max)
    copied = {at: to for at, to in copied.items() if at not in far}
    readables = {to: readable(at, _known(positions[to])) for at, to in copied.items()}
    hidden = await_applied(clusters, {to: it.evidence.next_target_offset for to, it in readables.items()})
    far |= {at: hidden_copies(at, to, hidden[to]) for at, to in copied.items() if to in hidden}
    copied = {at: to for at, to in copied.items() if to not in hidden}
    bounds = {
        "source": (clusters.source.offsets(copied, end=False), clusters.source.offsets(copied, end=True)),
        "target": (starts, clusters.target.offsets(copied.values(), end=True, committed_only=True)),
    }
    stable = clusters.source.offsets(copied, end=True, committed_only=True)
    facts = [
        PairFacts(
            source=at,
            target=to,
            source_topic=sources[at.topic],
            target_topic=targets[to.topic],
            source_cluster=source_cluster,
            position=_known(positions[to]),
            source_bounds=(bounds["source"][0][at], bounds["source"][1][at]),
            source_stable=stable[at],
            target_bounds=(bounds["target"][0][to], bounds["target"][1][to]),
            target_end_before=before[to],
        )
        for at, to in sorted(copied.items())
    ]
    if not facts:
        if unclear or far:
            raise [*unclear, *far.values()][0]
        raise Incident(
            "nothing_to_reconcile",
            f"flow {flow.name} has no position yet for any partition of {', '.join(sorted(sources)) or 'its topics'}",
        )
    pairs, not_compared = pairs_of(flow, with_claims(facts, claimed, former))
    left_out = {Partition(it.topic, it.partition) for it in (*unclear, *far.values())}
    waiting = _waiting(clusters, wanted.keys() - copied.keys() - left_out)
    without = (*not_compared, *unclear, *far.values())
    taken_ms = time.time_ns() // 1_000_000
    notes = () if topics else tuple(map(known_partitions.not_asked, known_partitions.taken_out(flow, claimed)))
    return Snapshot(_cut_to(flow, pairs, window), waiting, taken_ms, without, window, notes=notes)


def _sources(flow: Flow, topics: Collection[str], clusters: ControlPlane) -> tuple[Mapping[str, TopicInfo], list[str]]:
    """List the source's topics that are wanted, of the flow; without `topics` all; and the names of those that the flow
    names, or `topics`, and that aren't there."""
    listed = clusters.list_source()
    wanted = set(topics) or listed.keys() | clusters.named()
    return {name: info for name, info in listed.items() if name in wanted}, sorted(wanted - listed.keys())


def _absent(
    flow: Flow, absent: Collection[str], topics: Collection[str], gone: Collection[Incident]
) -> Iterator[Incident]:
    """Yield an incident for each topic that isn't at the source and of which nothing was ever copied. Those that were
    copied are named partition by partition (`gone`). Raises ConfigError for one that was typed."""
    unknown = [name for name in absent if name not in {it.topic for it in gone}]
    if unknown and topics:
        raise ConfigError(f"cluster {flow.source.name!r} has no topic {', '.join(unknown)}")
    for name in unknown:
        yield Incident("unknown_source_topic", f"cluster {flow.source.name!r} has no topic {name}", topic=name)


def _only_on_target(
    flow: Flow, clusters: ControlPlane, sources: Mapping[str, TopicInfo], targets: Mapping[str, TopicInfo]
) -> list[Incident]:
    more = known_partitions.more_on_target(flow, sources, targets)
    first, end = (clusters.target.offsets(more, end=end) for end in (False, True))
    found = [known_partitions.not_copied(at, source, (first[at], end[at])) for at, source in sorted(more.items())]
    return [incident for incident in found if incident is not None]


def _waiting(clusters: ControlPlane, ats: Collection[Partition]) -> tuple[WaitingPair, ...]:
    first, end = (clusters.source.offsets(ats, end=end, committed_only=end) for end in (False, True))
    return tuple(WaitingPair(at, (first[at], max(first[at], end[at]))) for at in sorted(ats))


def _beyond_time(
    clusters: ControlPlane, copied: Mapping[Partition, Partition], window: Window, time_ms_max: int | None
) -> dict[Partition, Incident]:
    """Find the partitions with a timestamp that whoever compares can't read. A window that ends before such times
    leaves their records out: it ends at the first record of that time or a later one."""
    found: dict[Partition, Incident] = {}
    if time_ms_max is None or (window.to_ms is not None and window.to_ms <= time_ms_max):
        return found
    for cluster, ats in ((clusters.source, {at: at for at in copied}), (clusters.target, copied)):
        latest = cluster.latest_records(ats.values())
        for source, at in ats.items():
            if (time_ms := latest[at][1]) > time_ms_max:
                why = f"{at} on cluster {cluster.cluster.name!r} has a record with timestamp {time_ms} ms"
                found[source] = Incident("timestamp_out_of_range", why, topic=source.topic, partition=source.partition)
    return found


def _cut_to(flow: Flow, pairs: tuple[Pair, ...], window: Window) -> tuple[Pair, ...]:
    """Return the part of each pair that lies in the window: the same records on both sides, found by their time."""
    if not window:
        return pairs
    for cluster, of_source in ((flow.source, True), (flow.target, False)):
        ats = [pair.source if of_source else pair.target for pair in pairs]
        with reading_topics(flow, cluster) as reader:
            first = reader.committed_at_time(ats, window.from_ms) if window.from_ms is not None else {}
            last = reader.committed_at_time(ats, window.to_ms) if window.to_ms is not None else {}
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
        return replace(pair, source_range=offsets, count=None)
    return replace(pair, target_range=offsets, count=None)


def after_reading(flow: Flow, pairs: Sequence[Pair]) -> list[Pair]:
    """Return the pairs with the beginnings of their logs as they are now: what retention removed while they were read
    is bounded as what it had removed before.

    Raises:
        Incident: a topic was deleted or created again meanwhile.
        Unreachable, NotAllowed, Retriable: see `ControlPlane`.
    """
    with ControlPlane(flow) as clusters:
        clusters.connect()
        for incident in _gone(clusters, pairs).values():
            raise incident
        starts = [
            admin.offsets([pair.at(of_source) for pair in pairs], end=False)
            for admin, of_source in ((clusters.source, True), (clusters.target, False))
        ]
    return [pair.beginning_at(starts[0][pair.source], starts[1][pair.target]) for pair in pairs]


def gone_meanwhile(
    flow: Flow, pairs: Sequence[Pair], *, connect_timeout_ms: int | None = None
) -> dict[Partition, Incident]:
    """Find the pairs of which a topic was deleted or created again since the snapshot, by source partition.

    Raises Unreachable, NotAllowed, Retriable: see `ControlPlane`.
    """
    with ControlPlane(flow, connect_timeout_ms=connect_timeout_ms) as clusters:
        clusters.connect()
        return _gone(clusters, pairs)


def _gone(clusters: ControlPlane, pairs: Sequence[Pair]) -> dict[Partition, Incident]:
    found: dict[Partition, Incident] = {}
    for admin, of_source in ((clusters.source, True), (clusters.target, False)):
        there = admin.topics({pair.at(of_source).topic for pair in pairs})
        for pair in sorted(pairs, key=lambda one: one.source):
            at, topic_id = pair.at(of_source), pair.source_id if of_source else pair.target_id
            if at.topic not in there or there[at.topic].topic_id != topic_id:
                why = f"cluster {admin.cluster.name!r} has no topic {at.topic} any more, or another one"
                found.setdefault(pair.source, Incident("topic_gone", why, topic=at.topic, partition=at.partition))
    return found


def _routes(flow: Flow, sources: Mapping[str, TopicInfo]) -> Iterable[tuple[Partition, Partition]]:
    for name, info in sources.items():
        target = routing.target_topic(flow, name)
        for number in range(info.partitions):
            yield Partition(name, number), Partition(target, number)


def _partitions(topics: Mapping[str, TopicInfo], name: str) -> int:
    return topics[name].partitions if name in topics else 0


def _known(found: Stored | None) -> Stored:
    assert found is not None, "partitions without a position are left out before"
    return found


def await_applied(clusters: ControlPlane, ends: Mapping[Partition, int]) -> dict[Partition, tuple[int, int]]:
    """Wait until the target's committed ends reach what the positions cover: markers are applied one by one.

    A log that ends below has lost records, and no wait brings them back. Returns the partitions in which a transaction
    doesn't end, with their committed ends and the ends of their logs.
    """
    there = clusters.target.offsets(ends, end=True)
    wanted = {at: min(end, there[at]) for at, end in ends.items()}
    hidden = dict[Partition, tuple[int, int]]()

    def applied() -> bool:
        stable = clusters.target.offsets(wanted, end=True, committed_only=True)
        hidden.clear()
        hidden.update({at: (stable[at], there[at]) for at, end in wanted.items() if stable[at] < end})
        return not hidden

    clusters.target.until(applied)
    return hidden


def hidden_copies(source: Partition, target: Partition, bounds: tuple[int, int]) -> Incident:
    """Say that a transaction hides copies of a partition. `bounds`: the target's committed end, and its log's end."""
    why = f"{target} is stable up to {bounds[0]} of {bounds[1]}: an open transaction hides copies"
    return Incident("target_transaction_open", why, topic=source.topic, partition=source.partition)
