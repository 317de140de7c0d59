"""Reads what translating needs of a flow's partitions: positions, claims, the map's sections, log starts. Nothing is
changed.

Of the map's index directories are read, and of each partition its first page; which of the others an answer needs
follows from the offset. Then come the blocks that the index doesn't cover. The whole map is read where there is no
index, and of a partition in which something turns back (`offset_map.looked_up`).

The order makes it safe beside a running flow. First the positions, then the map up to them: whatever one lane had
committed by then is in it, though the map's partitions are asked for their ends one after the other. Then the target's
stable offsets, below which copies are visible, and its ends, above which copies are lost. At last log starts: what
expired meanwhile is named.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from replicator.config import Flow, routing
from replicator.flow.topics import ControlPlane
from replicator.kafka import offset_reader
from replicator.kafka.admin import ClusterAdmin
from replicator.kafka.offset_questions import EARLIEST, LATEST
from replicator.kafka.topic_questions import TopicInfo, raised
from replicator.model.checkpoint import Position, Stored
from replicator.model.contradictions import compare
from replicator.model.errors import ReplicatorError
from replicator.model.partition import LogEnds, Partition
from replicator.offset_map.directory import IndexRoot, PageRef
from replicator.offset_map.fold import PlacedSection
from replicator.offset_map.looked_up import PassedOver
from replicator.offset_map.mapped import PartitionMap
from replicator.offset_map.newest import SectionKey
from replicator.offset_map.run_index import RunIndex
from replicator.offset_map.section import topic_id_bytes
from replicator.offset_map.translate import ClaimedStart
from replicator.offset_map.varints import OFFSET_MAX
from replicator.proof.former_targets import Generations, OwnSections, former_targets
from replicator.proof.map_cut import MapUpTo
from replicator.proof.map_place import MapPlace, TargetLog, connected, place_of_map, refuse_delivery, target_logs
from replicator.proof.map_reader import TRIES_MAX, BlocksGone, MapRead, covered_of, raw_sections, read_sections
from replicator.state.claims import Claim
from replicator.state.signed_gaps import Adoption, adoptions
from replicator.wire.map_index import IndexMoved, MapIndexLog

Side = Literal["source", "target"]
NOT_COPIED = "not_copied"
"""The problem of a partition that the flow has not begun to copy."""
UNANSWERED = "unanswered"
"""The problem of a partition about which a cluster doesn't answer."""
NOT_KNOWN = ClaimedStart(0, 0)
"""Where nothing says where the flow began: perhaps before its map."""


@dataclass(frozen=True, slots=True)
class MappedPartition:
    """A partition of which the map tells.

    Attributes:
        pages: those of the index of which `mapped` has the first copy only.
        position, next_target: up to where the flow has copied, on both sides; `start`: where it began.
        source_start, target_start: where the logs begin; `source_end`, `target_end`: where they end.
        leader_epoch: of the source, under which the position was reached; -1: not known.
    """

    source: Partition
    target: Partition
    mapped: PartitionMap
    key: SectionKey
    pages: Sequence[PageRef]
    position: int
    next_target: int
    start: ClaimedStart
    source_start: int
    source_end: int
    target_start: int
    target_end: int
    leader_epoch: int

    def start_of(self, side: Side) -> int:
        """Say where the log begins on a side."""
        return self.source_start if side == "source" else self.target_start


@dataclass(frozen=True, slots=True)
class Untold:
    """A partition of which nothing can be said: the name of an incident, `not_copied` or `unanswered`; and a
    sentence."""

    source: Partition
    target: Partition
    problem: str
    said: str


@dataclass(frozen=True, slots=True)
class _Known:
    source_id: str
    target_id: str
    position: Position
    start: ClaimedStart
    generations: Generations


class _SourceLog(NamedTuple):
    """Where a source partition ends and begins."""

    end: int
    start: int


class _Logs(NamedTuple):
    """Of a partition."""

    target: TargetLog
    source: _SourceLog


@dataclass(frozen=True, slots=True)
class MappedFlow:
    """By source partition; and where the map stands."""

    partitions: dict[Partition, MappedPartition | Untold]
    place: MapPlace | None = None

    def pages(self, flow: Flow) -> MapIndexLog:
        """Connect to read pages of the index."""
        assert self.place is not None
        assert self.place.index is not None
        return MapIndexLog(flow, *self.place.index)


def read_partitions(
    flow: Flow, *, connect_timeout_ms: int | None = None, clusters: ControlPlane | None = None, each: bool = False
) -> MappedFlow:
    """Read the maps of the flow's partitions, by source partition. Arguments as of `map_place.connected`.

    Args:
        each: whether a partition that has no leader, or may not be seen, keeps none of the others from being read.

    Raises:
        ConfigError: the flow's delivery has no map.
        Incident: map_lost, map_topic_unfit, newer_format, batch_corrupt.
        Unsupported: a cluster's login isn't spoken here.
        Unreachable, NotAllowed, Retriable: as for other clients.
    """
    refuse_delivery(flow)
    known, found = _known(flow, connect_timeout_ms, clusters, each=each)
    if not known:
        return MappedFlow(found)
    place = place_of_map(flow, connect_timeout_ms=connect_timeout_ms, clusters=clusters)
    maps = _looked_up(flow, place, known)
    routes = {at: _route(flow, at) for at in known}
    with connected(flow, connect_timeout_ms, clusters) as asked:
        logs, silent = _logs(asked, routes, each=each)
    for at, why in silent.items():
        found[at] = Untold(at, routes[at], UNANSWERED, str(why))
        del known[at]
        maps.pop(at, None)
    mapped = {at: it.finished(logs[at].target.reached) for at, it in maps.items()}
    whole = {
        at: MapUpTo(topic_id_bytes(it.source_id), topic_id_bytes(it.target_id), it.position.offset)
        for at, it in known.items()
        if at not in maps or maps[at].turns
    }
    if whole:
        own = {(known[at].source_id, at.partition): OwnSections(known[at].generations, it) for at, it in whole.items()}
        read_sections(flow, place, own)
    for at, it in known.items():
        found[at] = MappedPartition(
            at,
            routes[at],
            (whole[at].finished(logs[at].target.reached) if at in whole else mapped[at]) or _without_sections(it),
            (topic_id_bytes(it.source_id), at.partition),
            [] if at in whole else maps[at].pages,
            it.position.offset,
            max(it.position.evidence.next_target_offset, it.start.target_end),
            it.start,
            logs[at].source.start,
            logs[at].source.end,
            logs[at].target.start,
            logs[at].target.end,
            it.position.evidence.leader_epoch,
        )
    return MappedFlow(found, place)


def _looked_up(flow: Flow, place: MapPlace, known: Mapping[Partition, _Known]) -> dict[Partition, PassedOver]:
    """Return what is read of partitions by the index; nothing where there is none, and of partitions that were copied
    elsewhere, too: what a page has of both can't be told apart without reading it."""
    known = {at: it for at, it in known.items() if not it.generations.former}
    if place.index is None or not known:
        return {}
    for _ in range(TRIES_MAX):
        maps = {
            at: PassedOver(topic_id_bytes(it.source_id), topic_id_bytes(it.target_id), it.position.offset)
            for at, it in known.items()
        }
        by_key = {(topic_id_bytes(known[at].source_id), at.partition): it for at, it in maps.items()}
        try:
            with MapIndexLog(flow, *place.index) as index:
                if (root := index.root()) is None:
                    return {}
                _directories(index, root, by_key)
            for one in raw_sections(flow, place, (covered_of(root, place), False), MapRead()):
                section = one.section
                if (it := by_key.get((section.source_topic_id, section.partition))) is not None:
                    it.add(PlacedSection(one.generation, 0, 0, b"", section), one.commit_ms)
        except (IndexMoved, BlocksGone):
            continue
        return maps
    return {}


def _directories(index: MapIndexLog, root: IndexRoot, by_key: Mapping[SectionKey, PassedOver]) -> None:
    for number, entries in index.entries(root, by_key):
        for key, entry in entries.items():
            if entry is None:
                continue
            it = by_key[key]
            for ref, needed in zip(entry, it.needed(entry), strict=True):
                it.add_page(ref, index.decoded_page(number, ref.offset) if needed and not it.turns else None)


def _known(
    flow: Flow, connect_timeout_ms: int | None, clusters: ControlPlane | None, *, each: bool
) -> tuple[dict[Partition, _Known], dict[Partition, MappedPartition | Untold]]:
    """Return partitions that have a position, and those of which nothing can be said."""
    with connected(flow, connect_timeout_ms, clusters) as asked:
        here, _ = asked.connect()
        sources, hidden = _seen(asked.source, asked.selected(), each=each)
        targets, hidden_there = _seen(asked.target, asked.possible_targets(sources), each=each)
        routes = {
            at: to
            for name, info in sources.items()
            for at, to in ((one, _route(flow, one)) for one in (Partition(name, n) for n in range(info.partitions)))
            if to.topic in targets and to.partition < targets[to.topic].partitions
        }
        positions = offset_reader.positions(flow, routes.values())
        claimed = asked.state.claims_if_any()
    claims, former = claimed.claims if claimed else {}, former_targets(flow, routes, claimed)
    adopted = adoptions(claimed.occurrences) if claimed else ()
    known: dict[Partition, _Known] = {}
    untold: dict[Partition, MappedPartition | Untold] = {}
    for name, info in sources.items():
        for at in (Partition(name, number) for number in range(info.partitions)):
            to = _route(flow, at)
            if to.topic in hidden_there:
                untold[at] = Untold(at, to, UNANSWERED, str(hidden_there[to.topic]))
                continue
            claim = claims.get(to)
            told = _told(at, to, positions.get(to), claim, here.cluster_id, info, targets.get(to.topic))
            if isinstance(told, Untold):
                untold[at] = told
            else:
                generations = told.generations._replace(former=former.get(at, ()))
                known[at] = replace(told, generations=generations, start=_start(claim, adopted))
    for claim in claims.values():
        if claim.source.topic in hidden:
            said = str(hidden[claim.source.topic])
            untold[claim.source] = Untold(claim.source, claim.target, UNANSWERED, said)
    return known, untold


def _seen(
    cluster: ClusterAdmin, topics: Iterable[str], *, each: bool
) -> tuple[dict[str, TopicInfo], dict[str, ReplicatorError]]:
    """Describe topics; of `each` that may not be seen return why, else raise that of the first."""
    described = cluster.describe(topics)
    hidden = {name: it for name, it in described.items() if isinstance(it, ReplicatorError)}
    if hidden and not each:
        raise hidden[min(hidden)]
    return {name: it for name, it in described.items() if isinstance(it, TopicInfo)}, hidden


def _logs(
    clusters: ControlPlane, routes: Mapping[Partition, Partition], *, each: bool
) -> tuple[dict[Partition, _Logs], dict[Partition, ReplicatorError]]:
    """Ask for the logs of these partitions, by source partition. Of `each` that a cluster doesn't tell of return why,
    having waited only for a moment; else raise that of the first."""
    there = target_logs(clusters, routes.values(), patient=not each)
    silent = {at: it for at, to in routes.items() if isinstance(it := there[to], ReplicatorError)}
    asked = [at for at in routes if at not in silent]
    here = clusters.source.several_offset_answers(asked, (LATEST, EARLIEST), patient=not each)
    silent |= {at: it for at, it in here.items() if isinstance(it, ReplicatorError)}
    told = [at for at in routes if at not in silent or not each]
    return {at: _Logs(raised(there[routes[at]]), _SourceLog(*raised(here[at]))) for at in told}, silent


def _told(
    at: Partition,
    to: Partition,
    position: Stored | None,
    claim: Claim | None,
    cluster: str,
    here: TopicInfo,
    there: TopicInfo | None,
) -> _Known | Untold:
    """Return what is known of one partition."""
    if position is None and claim is None:
        return Untold(at, to, NOT_COPIED, "the flow has not begun to copy this partition")
    if position is None or there is None:
        name = (claim.without_position(there.topic_id if there else None)) if claim else "target_topic_deleted"
        return Untold(at, to, name, "the flow has copied this partition before, and its position is gone")
    if not isinstance(position, Position):
        return Untold(at, to, position.incident, position.why)
    source, target = (LogEnds(info.topic_id, 0, OFFSET_MAX, OFFSET_MAX) for info in (here, there))
    if wrong := compare(position, cluster, at.topic, source, target, position.evidence.generation):
        return Untold(at, to, *wrong)
    generations = Generations(-1 if claim is None else claim.generation, position.evidence.generation, ())
    return _Known(here.topic_id, there.topic_id, position, NOT_KNOWN, generations)


def _start(claim: Claim | None, adopted: Iterable[Adoption]) -> ClaimedStart:
    """Return where copying began: none of the source's records before that offset stands on the target.

    A target that isn't empty is claimed only because of a decision. The records that it has are copies of those before
    the offset, which MirrorMaker 2 has made, or this flow before its position was set: no map tells where they stand.
    They are not where a topic was copied from its beginning after it was created again.
    """
    if claim is None:
        return NOT_KNOWN
    start = ClaimedStart(claim.offset, claim.target_end)
    of_former = any(
        it.former_topic_id and it.copied_to(claim.target) and (it.offset, it.target_end) == start for it in adopted
    )
    return start if of_former or not start.target_end else NOT_KNOWN


def _route(flow: Flow, at: Partition) -> Partition:
    return Partition(routing.target_topic(flow, at.topic), at.partition)


def _without_sections(known: _Known) -> PartitionMap:
    """Return the map of a partition of which it says nothing: it begins, as far as is known, at the position."""
    offset, nothing = known.position.offset, RunIndex(array("q"), array("q"), array("q"), ())
    place = max(known.position.evidence.next_target_offset, known.start.target_end)
    return PartitionMap(
        source_topic_id=topic_id_bytes(known.source_id),
        begun=offset,
        begin=offset,
        begin_target=place,
        passed=offset,
        next_target=place,
        by_source=nothing,
        by_target=nothing,
    )


def by_target(found: Mapping[Partition, MappedPartition | Untold]) -> dict[Partition, MappedPartition | Untold]:
    """Return the same by target partition."""
    return {it.target: it for it in found.values()}
