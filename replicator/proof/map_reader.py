"""Reads the flow's offset map: the committed sections of the partitions that are asked for, in their order. Used by
`local`, `verify`, `map_repair` and `translation`.

First the map's index has what was consolidated. Then come the blocks that it doesn't cover: the sixteen partitions of
their topic are read side by side, one fetch of each in memory, and merged by generation: a source partition has one
lane in a generation, so one partition of the map, and lanes of a generation are fenced before those of the next one
begin. Where blocks are deleted meanwhile, the index has them, and is read again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from heapq import merge
from typing import NamedTuple

from kafka_records.batch import CorruptBatch
from kafka_records.records import decode
from replicator.config import Flow
from replicator.model.counting import counted
from replicator.model.errors import Incident, Retriable
from replicator.model.partition import Partition, Span
from replicator.offset_map.block import NewerBlock, decode_block
from replicator.offset_map.delivered import PrunedMeanwhile, SectionDelivery, TakesSections
from replicator.offset_map.directory import IndexRoot
from replicator.offset_map.newest import SectionKey
from replicator.offset_map.section import MapSection, topic_id_bytes
from replicator.offset_map.topic import MAP_PARTITIONS
from replicator.offset_map.varints import BadBlock
from replicator.proof.map_place import MapPlace
from replicator.wire.committed_log import CommittedLog, corrupt
from replicator.wire.map_index import IndexMoved, MapIndexLog
from replicator.wire.partition_log import CommittedFetch, PartitionLog

FETCH_BYTES = 256 * 1024
BLOCK_BYTES_MAX = 16 * 1024 * 1024  # of one batch, decompressed
TRIES_MAX = 20
"""How often the index is read again before it is given up: it is written once in some seconds at most."""


class RawSection(NamedTuple):
    """A section with generation and time (ms) of its block."""

    generation: int
    commit_ms: int
    section: MapSection


class BlocksGone(Exception):
    """Blocks were deleted that were to be read: the index covers them by now, or they are lost."""


@dataclass(slots=True)
class MapRead:
    """How a reading of the map went.

    `unreadable`: how many blocks say nothing, and the offset of the first, by partition of the map. `gone`: where a
    partition of the map begins although nothing has what was below.
    """

    blocks: int = 0
    sections: int = 0
    unreadable: dict[int, tuple[int, int]] = field(default_factory=dict)
    gone: dict[int, int] = field(default_factory=dict)

    def note_unreadable(self, partition: int, offset: int) -> None:
        """Count one more."""
        blocks, first = self.unreadable.get(partition, (0, offset))
        self.unreadable[partition] = blocks + 1, first

    def notes(self, topic: str) -> Iterator[str]:
        """Say what of the map's topic could not be read."""
        for partition, (number, first) in sorted(self.unreadable.items()):
            blocks = counted(number, "block")
            yield f"{topic}[{partition}] has {blocks} that can't be read, the first at offset {first}"
        for partition, start in sorted(self.gone.items()):
            yield f"{topic}[{partition}] begins at offset {start}: blocks below are gone, and the index hasn't got them"


def read_sections(flow: Flow, place: MapPlace, wanted: Mapping[tuple[str, int], TakesSections]) -> MapRead:
    """Give each section of the map to the one that wants it.

    Args:
        place: where the map stands, and from where to where it is read.
        wanted: by source topic id, as positions have it, and partition.

    Raises:
        Incident: newer_format: a block was written by a newer version; batch_corrupt, topic_gone; map_lost: the index
            can't be read.
        Unreachable, NotAllowed, Retriable, Unsupported: as of `CommittedLog`.
    """
    takers = {(topic_id_bytes(topic_id), number): it for (topic_id, number), it in wanted.items()}
    delivery = SectionDelivery(takers)
    covered_before: list[int] | None = None
    for _ in range(TRIES_MAX):
        read = MapRead()
        covered = [0] * MAP_PARTITIONS
        try:
            if place.index is not None:
                with MapIndexLog(flow, *place.index) as index:
                    covered = _from_index(index, place, delivery, takers, read)
            _from_blocks(flow, place, delivery, (covered, covered == covered_before), read)
        except (IndexMoved, BlocksGone):
            if place.index is None or (covered == covered_before and delivery.ahead):
                break
            covered_before = covered
            continue
        except PrunedMeanwhile:
            break
        return read
    raise Retriable(f"{place.topic} is consolidated again and again while it is read: try again")


def _from_index(
    index: MapIndexLog,
    place: MapPlace,
    delivery: SectionDelivery,
    takers: Mapping[SectionKey, TakesSections],
    read: MapRead,
) -> list[int]:
    """Give what the index has; from where on blocks are to be read."""
    root = index.root()
    if root is None:
        return [0] * MAP_PARTITIONS
    for number, entries in index.entries(root, takers):
        load = partial(index.decoded_page, number)
        for key, entry in sorted(entries.items(), key=lambda it: it[1][0].offset if it[1] else 0):
            delivery.from_index(key, entry, load)
    read.unreadable = dict(root.unreadable)
    return covered_of(root, place)


def covered_of(root: IndexRoot, place: MapPlace) -> list[int]:
    """Return up to which offsets of the map's topic the index has all: nothing of it, where it is another one."""
    return list(root.covered) if root.is_of(place.topic_id) else [0] * MAP_PARTITIONS


def _from_blocks(
    flow: Flow, place: MapPlace, delivery: SectionDelivery, known: tuple[list[int], bool], read: MapRead
) -> None:
    """Give what blocks have. `known`: from where on, and whether that is all that can be known of it."""
    for one in raw_sections(flow, place, known, read):
        read.sections += 1
        delivery.from_block(*one)


def raw_sections(flow: Flow, place: MapPlace, known: tuple[list[int], bool], read: MapRead) -> Iterator[RawSection]:
    """Yield the sections of raw blocks behind what is covered.

    Args:
        known: from which offset on in each partition, and whether what is gone there is lost. Raises BlocksGone if not.

    Raises as `read_sections`.
    """
    covered, lost = known
    with ExitStack() as stack:
        streams = []
        for number, (begin, end) in sorted(place.bounds.items()):
            first = covered[number]
            at = Partition(place.topic, number)
            if first >= end:
                continue
            log = PartitionLog(flow, flow.target, at, place.topic_id)
            stack.enter_context(closing(log))
            start = begin if place.index is None else log.start()
            if start > first:
                if not lost and place.index is not None:
                    raise BlocksGone
                read.gone[number], first = start, start
            streams.append(_sections(flow, at, _Whole(log), (first, end), read))
        yield from merge(*streams, key=lambda it: it.generation)


class _Whole:
    """A log of which nothing is passed over that was deleted meanwhile: implements `CommittedSource`."""

    def __init__(self, log: PartitionLog) -> None:
        self.fetch_committed: Callable[[int, int], CommittedFetch] = log.fetch_committed

    def start(self) -> int:
        """Raise BlocksGone: this is asked for where the offset isn't there any more."""
        raise BlocksGone


def _sections(flow: Flow, at: Partition, log: _Whole, span: Span, read: MapRead) -> Iterator[RawSection]:
    patience_s = flow.limits.request_timeout_ms / 1000
    for batch in CommittedLog(at, log, patience_s=patience_s, fetch_bytes=FETCH_BYTES).batches(*span):
        try:
            records = decode(batch.data, BLOCK_BYTES_MAX)
        except CorruptBatch as error:
            raise corrupt(at, batch.first_offset, error) from error
        for record in records:
            if not span[0] <= record.offset < span[1]:
                continue
            try:
                block = decode_block(record.value or b"")
            except NewerBlock as error:
                raise Incident(error.incident, str(error), topic=at.topic, partition=at.partition) from error
            except BadBlock:  # what it would have said is missing in the chain, and named there
                read.note_unreadable(at.partition, record.offset)
                continue
            read.blocks += 1
            for section in block.sections:
                yield RawSection(block.generation, block.commit_ms, section)
