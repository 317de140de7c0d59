"""Translates offsets of a flow between its sides: single ones, those of a consumer group, those of a time.

Sources: KIP-545 for what MirrorMaker 2 does (OffsetSyncStore keeps at most 64 pairs of offsets a partition). A flow's
map has all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial

from replicator.config import Cluster, Flow
from replicator.config.messages import suggestion
from replicator.flow.topics import ControlPlane, reading_topics
from replicator.kafka.group_offsets import committed_offsets
from replicator.kafka.topic_questions import raised
from replicator.model.errors import ConfigError, Retriable
from replicator.model.partition import Partition
from replicator.offset_map.looked_up import page_of_source, page_of_target, with_page
from replicator.offset_map.mapped import PartitionMap
from replicator.offset_map.newest import SectionKey
from replicator.offset_map.page import MapPage
from replicator.offset_map.topic import index_partition
from replicator.offset_map.translate import TranslatedOffset, to_source, to_target
from replicator.proof.map_reader import TRIES_MAX
from replicator.translation.answers import OffsetAnswer, OffsetToTranslate
from replicator.translation.partition_maps import (
    MappedFlow,
    MappedPartition,
    Side,
    Untold,
    by_target,
    read_partitions,
)
from replicator.wire.map_index import IndexMoved

PageKey = tuple[int, int]
"""Partition of the index and offset of a page."""
PAGES_KEPT_MAX = 1_000
"""From one question to the next."""
_NOTHING = TranslatedOffset(None)


class Translator:
    """The maps of a flow as they stood when they were read."""

    def __init__(self, flow: Flow, read: Callable[[], MappedFlow], side: Side) -> None:
        """`read`: reads the maps, now and where pages of them are gone; `side`: whose offsets are asked about."""
        self._flow, self._read, self._side = flow, read, side
        self._take(read())
        self._empty_to: dict[Partition, int] = {}  # from the end of what is copied on there is no record below

    def answers(self, asked: Collection[OffsetToTranslate]) -> list[OffsetAnswer]:
        """Translate offsets, each for itself.

        A consumer that has read all stands behind the last transaction's marker, and what is copied may end before it:
        where an offset lies beyond, the log is asked whether there is any record between.

        Raises:
            ConfigError: the flow doesn't have a partition, or an offset is below 0.
            Unreachable, NotAllowed, Retriable: as for other clients.
        """
        self._read_pages(asked)
        found = [self._answer(one) for one in asked]
        beyond = {it.asked.at for it in found if "ahead" in it.translated.notes} - self._empty_to.keys()
        if not beyond:
            return found
        ends = {at: max(self._end(it), it.start_of(self._side)) for at, it in self._mapped(beyond)}
        with reading_topics(self._flow, _cluster(self._flow, self._side)) as reader:
            logs = {at: raised(it) for at, it in reader.bounds(ends).items()}
            # a log that has lost its end has nothing to read there, and no such offset
            first = reader.first_records({at: end for at, end in ends.items() if end <= logs[at][1]})
        for at in ends:
            self._empty_to[at] = first[at][0] if at in first else logs[at][1]
        return [self._answer(it.asked) if it.asked.at in ends else it for it in found]

    def partitions(self) -> list[Partition]:
        """Return the partitions of the side that is asked about, in their order."""
        return sorted(self._found)

    def mapped_partitions(self) -> list[MappedPartition]:
        """Return the partitions of which the map tells."""
        return [it for it in self._found.values() if isinstance(it, MappedPartition)]

    def untold_partitions(self) -> list[Untold]:
        """Return the others, of which it doesn't."""
        return [it for it in self._found.values() if isinstance(it, Untold)]

    def nothing_between(self, at: Partition, first: int, end: int) -> bool:
        """Tell whether no record of a partition, of the side that is asked about, stands on the other one in
        [first, end): whoever goes on at either of these reads the same. False where what was read of the map doesn't
        tell."""
        it = self._found.get(at)
        if not isinstance(it, MappedPartition) or it.mapped.unmapped or any(ref.target_end > first for ref in it.pages):
            return False
        return (it.mapped.by_target if self._side == "source" else it.mapped.by_source).nothing_between(first, end)

    def _take(self, read: MappedFlow) -> None:
        self._flow_read = read
        self._found = dict(read.partitions) if self._side == "source" else by_target(read.partitions)
        self._has_pages = any(isinstance(it, MappedPartition) and it.pages for it in self._found.values())
        self._pages: dict[PageKey, MapPage] = {}
        self._paged: dict[SectionKey, tuple[PageKey, PartitionMap]] = {}  # the last one with a page

    def _read_pages(self, asked: Collection[OffsetToTranslate]) -> None:
        """Read the pages that answers need; all of it again where they are gone."""
        if len(self._pages) > PAGES_KEPT_MAX:
            self._pages.clear()
        for _ in range(TRIES_MAX):
            if not self._has_pages:
                return
            wanted = {one for each in asked if (one := self._page_of(each)) is not None} - self._pages.keys()
            if not wanted:
                return
            try:
                with self._flow_read.pages(self._flow) as index:
                    for number, offset in sorted(wanted):
                        self._pages[number, offset] = index.decoded_page(number, offset)
            except IndexMoved:
                self._take(self._read())
        raise Retriable("the offset map is consolidated again and again while it is read: try again")

    def _page_of(self, asked: OffsetToTranslate) -> PageKey | None:
        it = self._found.get(asked.at)
        if not isinstance(it, MappedPartition) or not it.pages:
            return None
        find = page_of_source if self._side == "source" else page_of_target
        ref = find(it.pages, asked.offset)
        return (index_partition(it.key), ref.offset) if ref is not None else None

    def _map_for(self, it: MappedPartition, asked: OffsetToTranslate) -> PartitionMap:
        page = self._page_of(asked)
        if page is None:
            return it.mapped
        last = self._paged.get(it.key)
        if last is None or last[0] != page:
            last = self._paged[it.key] = page, with_page(it.mapped, self._pages[page])
        return last[1]

    def _mapped(self, ats: Iterable[Partition]) -> Iterator[tuple[Partition, MappedPartition]]:
        for at in ats:
            it = self._found[at]
            if isinstance(it, MappedPartition):
                yield at, it

    def _end(self, it: MappedPartition) -> int:
        """Say where what is copied ends, on the side that is asked about."""
        return it.position if self._side == "source" else it.next_target

    def _answer(self, asked: OffsetToTranslate) -> OffsetAnswer:
        if asked.offset < 0:
            raise ConfigError(f"{asked.at}: offset {asked.offset}: an offset is 0 or more")
        it = self._found.get(asked.at)
        if it is None:
            raise ConfigError(self._unknown(asked.at))
        other = it.target if self._side == "source" else it.source
        if isinstance(it, Untold):
            return OffsetAnswer(asked, other, _NOTHING, it.problem, it.said)
        offset, mapped = asked.offset, self._map_for(it, asked) if it.pages else it.mapped
        if self._end(it) < offset <= self._empty_to.get(asked.at, 0):
            offset = self._end(it)
        if self._side == "source":
            found = to_target(
                mapped,
                offset,
                target_start=it.target_start,
                target_end=it.target_end,
                position=it.position,
                claim=it.start,
            )
        else:
            found = to_source(
                mapped,
                offset,
                source_start=it.source_start,
                source_end=it.source_end,
                target_start=it.target_start,
                copied_end=it.next_target,
                claim=it.start,
            )
        return OffsetAnswer(asked, other, found)

    def _unknown(self, at: Partition) -> str:
        topics = {one.topic for one in self._found}
        if at.topic in topics:
            count = sum(one.topic == at.topic for one in self._found)
            return f"topic {at.topic} has {count} partitions: there is no {at}"
        reverse = {one.source.topic if self._side == "target" else one.target.topic for one in self._found.values()}
        if at.topic in reverse:
            other = "with" if self._side == "source" else "without"
            return f"{at.topic} is a topic of the other side: ask {other} --reverse"
        to = "to " if self._side == "target" else ""
        return f"flow {self._flow.name} does not copy {to}topic {at.topic}{suggestion(at.topic, topics)}"


def translator(flow: Flow, side: Side, *, connect_timeout_ms: int | None = None) -> Translator:
    """Read the maps of the flow's partitions, see `read_partitions`. `side`: the one whose offsets will be asked about.

    Offsets that move, such as those of a group, are to be read before: what a consumer has passed is copied by then,
    or is said to be ahead.
    """
    return Translator(flow, partial(read_partitions, flow, connect_timeout_ms=connect_timeout_ms), side)


def translate(flow: Flow, offsets: Iterable[OffsetToTranslate], *, reverse: bool = False) -> list[OffsetAnswer]:
    """Translate offsets from source to target; with `reverse` from target to source.

    Raises:
        ConfigError: an offset is of a partition that the flow doesn't copy; the flow's delivery has no map.
        Incident: map_lost, map_topic_unfit, newer_format, batch_corrupt.
        Unreachable, NotAllowed, Retriable, Unsupported: as for other clients.
    """
    asked = list(offsets)
    return translator(flow, "target" if reverse else "source").answers(asked)


def group_offsets(flow: Flow, side: Side, group: str) -> list[OffsetToTranslate]:
    """Read the committed offsets of a consumer group in the flow's topics of a side; partitions without one are left
    out.
    """
    with ControlPlane(flow) as clusters:
        clusters.connect()
        partitions = _partitions(clusters, side)
    found = committed_offsets(flow, _cluster(flow, side), group, partitions)
    return [OffsetToTranslate(at, offset) for at, offset in sorted(found.items()) if offset is not None]


def time_offsets(flow: Flow, side: Side, time_ms: int) -> list[OffsetToTranslate]:
    """Find the first committed record at or after a time in each of the flow's partitions of a side; the stable end
    where there is none."""
    with ControlPlane(flow) as clusters:
        clusters.connect()
        partitions = _partitions(clusters, side)
        admin = clusters.source if side == "source" else clusters.target
        ends = admin.offsets(partitions, end=True, committed_only=True)
    with reading_topics(flow, _cluster(flow, side)) as reader:
        found = reader.committed_at_time(partitions, time_ms)
    return [OffsetToTranslate(at, found[at] if found[at] >= 0 else ends[at]) for at in partitions]


def _partitions(clusters: ControlPlane, side: Side) -> list[Partition]:
    listed = clusters.list_source(configs=False)
    if side == "target":
        listed = clusters.list_target(listed)
    return [Partition(name, number) for name, info in sorted(listed.items()) for number in range(info.partitions)]


def _cluster(flow: Flow, side: Side) -> Cluster:
    return flow.source if side == "source" else flow.target
