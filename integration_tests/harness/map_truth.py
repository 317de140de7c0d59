"""A flow's offset map beside both logs, as another client reads all three: each offset that it gives is checked."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from integration_tests.harness import clients
from integration_tests.harness.compare import READ_S_MAX, ReadRecord, assigned_reader
from replicator.offset_map.block import decode_block
from replicator.offset_map.fold import PartitionFold, PlacedSection
from replicator.offset_map.mapped import PartitionMap
from replicator.offset_map.section import MapSection
from replicator.offset_map.topic import MAP_PARTITIONS

TARGET_ID = bytes(16)  # of whatever target topic: the tests don't make it again
Log = Mapping[int, ReadRecord]


@dataclass(frozen=True, slots=True)
class CheckedMap:
    """The map of one partition, its sections in their order, and the first source offset and end of what it has."""

    map: PartitionMap
    sections: tuple[MapSection, ...]

    @property
    def holes(self) -> list[tuple[int, int]]:
        """Source offsets of which it says nothing, between its begin and its end."""
        return [(one.first, one.end) for one in self.map.unmapped]


def checked_map(
    source: str, topic: str, target: str, copy: str, partitions: int, offsets_topic: str
) -> list[CheckedMap]:
    """Compare each place that the map of each partition gives with the records of both sides.

    Raises AssertionError where another record stands there, and where a copy is missing in what the map has.
    """
    here, there, blocks = asyncio.run(_read_all(source, topic, target, copy, partitions, offsets_topic))
    placed: list[PlacedSection] = []
    for log in blocks:
        for offset, record in log.items():
            assert record.value is not None
            block = decode_block(record.value)
            placed += [
                PlacedSection(block.generation, offset, number, TARGET_ID, section)
                for number, section in enumerate(block.sections)
            ]
    placed.sort(key=lambda it: it[:3])
    source_id = clients.topic_id(source, topic).bytes  # the tests' source topics are made once
    found: list[CheckedMap] = []
    for number in range(partitions):
        key = source_id, number
        mine = [it for it in placed if (it.section.source_topic_id, it.section.partition) == key]
        fold = PartitionFold(source_id, TARGET_ID)
        for one in mine:
            fold.add(one)
        found.append(CheckedMap(fold.finished(), tuple(one.section for one in mine)))
        _check(f"{topic}[{number}]", found[-1], here[number], there[number])
    return found


def _check(at: str, found: CheckedMap, source: Log, target: Log) -> None:
    wrong = 0
    for run in found.map.by_source:
        for number in range(run.length):
            offset, place = run.first + number, run.place + number
            assert offset in source, f"{at}: the map has {offset}, where the source has no committed record"
            wrong += target.get(place) != source[offset]
    assert not wrong, f"{at}: {wrong} places are not those of their records"
    offsets = {record.name: offset for offset, record in source.items()}
    holes = [span for first, end in found.holes for span in range(first, end)]
    unknown = set(holes)
    for place, record in target.items():
        offset = offsets[record.name]
        if found.map.begin <= offset < found.map.passed and offset not in unknown:
            assert found.map.by_source.place(offset) == place, f"{at}: the map doesn't have {offset} at {place}"


async def _read_all(
    source: str, topic: str, target: str, copy: str, partitions: int, offsets_topic: str
) -> tuple[list[Log], list[Log], list[Log]]:
    async with asyncio.timeout(READ_S_MAX):
        return (
            await _read(source, topic, partitions),
            await _read(target, copy, partitions),
            await _read(target, offsets_topic, MAP_PARTITIONS),
        )


async def _read(bootstrap: str, topic: str, partitions: int) -> list[Log]:
    found: list[dict[int, ReadRecord]] = [{} for _ in range(partitions)]
    async for partition, offset, record in assigned_reader(bootstrap, topic, partitions):
        found[partition][offset] = record
    return list(found)
