"""Reads the flow's offset map: the committed sections of the partitions that are asked for, in their order. Used by
`local` and `verify`.

The sixteen partitions of its topic are read side by side, one fetch of each in memory, and merged by generation: a
source partition has one lane in a generation, so one partition of the map, and lanes of a generation are fenced before
those of the next one begin.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from heapq import merge

from kafka_records.batch import CorruptBatch
from kafka_records.records import decode
from replicator.config import Flow
from replicator.model.counting import counted
from replicator.model.errors import Incident
from replicator.model.partition import Partition, Span
from replicator.offset_map.block import NewerBlock, decode_block
from replicator.offset_map.delivered import TakesSections
from replicator.offset_map.fold import PlacedSection
from replicator.offset_map.section import topic_id_bytes
from replicator.offset_map.varints import BadBlock
from replicator.proof.map_place import MapPlace
from replicator.wire.committed_log import CommittedLog, corrupt
from replicator.wire.partition_log import PartitionLog

FETCH_BYTES = 256 * 1024
BLOCK_BYTES_MAX = 16 * 1024 * 1024  # of one batch, decompressed


@dataclass(slots=True)
class MapRead:
    """How a reading of the map went. `unreadable`: offsets of blocks that say nothing, by partition of the map."""

    blocks: int = 0
    sections: int = 0
    unreadable: dict[int, list[int]] = field(default_factory=dict)

    def notes(self, topic: str) -> Iterator[str]:
        """Say what of the map's topic could not be read."""
        for partition, offsets in sorted(self.unreadable.items()):
            blocks = counted(len(offsets), "block")
            yield f"{topic}[{partition}] has {blocks} that can't be read, the first at offset {offsets[0]}"


def read_sections(flow: Flow, place: MapPlace, wanted: Mapping[tuple[str, int], TakesSections]) -> MapRead:
    """Give each section of the map to the one that wants it.

    Args:
        place: where the map stands, and from where to where it is read.
        wanted: by source topic id, as positions have it, and partition.

    Raises:
        Incident: newer_format: a block was written by a newer version; batch_corrupt, topic_gone.
        Unreachable, NotAllowed, Retriable, Unsupported: as of `CommittedLog`.
    """
    read, takers = MapRead(), {(topic_id_bytes(topic_id), number): it for (topic_id, number), it in wanted.items()}
    with ExitStack() as stack:
        streams = []
        for number, (first, end) in sorted(place.bounds.items()):
            if first < end:
                at = Partition(place.topic, number)
                log = PartitionLog(flow, flow.target, at, place.topic_id)
                stack.enter_context(closing(log))
                streams.append(_sections(flow, at, log, (first, end), read))
        for section, commit_ms in merge(*streams, key=lambda it: it[0].generation):
            taker = takers.get((section.section.source_topic_id, section.section.partition))
            read.sections += 1
            if taker is not None:
                taker.add(section, commit_ms)
    return read


def _sections(
    flow: Flow, at: Partition, log: PartitionLog, span: Span, read: MapRead
) -> Iterator[tuple[PlacedSection, int]]:
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
                read.unreadable.setdefault(at.partition, []).append(record.offset)
                continue
            read.blocks += 1
            for number, section in enumerate(block.sections):
                yield PlacedSection(block.generation, record.offset, number, b"", section), block.commit_ms
