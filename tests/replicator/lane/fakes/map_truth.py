"""What the offset map of a simulated flow says, beside what stands in both logs."""

from __future__ import annotations

from collections.abc import Iterator

from replicator.model.checkpoint import Position
from replicator.model.partition import Partition
from replicator.offset_map.block import decode_block
from replicator.offset_map.fold import PartitionFold, PlacedSection, reached
from replicator.offset_map.mapped import PartitionMap
from replicator.offset_map.section import MapSection, topic_id_bytes
from tests.replicator.lane.fakes.log import Fate
from tests.replicator.lane.fakes.plane import MAP
from tests.replicator.lane.fakes.world import World


def target_of(at: Partition) -> Partition:
    """Where a source partition goes."""
    return Partition(f"{at.topic}.copy", at.partition)


def stored(world: World, at: Partition) -> Position:
    """The committed position of a source partition."""
    found = world.target.position(target_of(at))
    assert isinstance(found, Position)
    return found


def committed_blocks(world: World) -> Iterator[tuple[int, int, int, MapSection]]:
    """Generation, map offset, number in the block, and section, of all that a read_committed reader sees."""
    for partition in range(len(world.target.topics[MAP].logs)):
        for offset, entry in world.target.log(Partition(MAP, partition)).committed():
            block = decode_block(entry.block)
            for number, section in enumerate(block.sections):
                yield block.generation, offset, number, section


def sections_of(world: World, at: Partition) -> list[MapSection]:
    """The committed sections of a source partition, in their order."""
    topic_id = topic_id_bytes(world.source.topics[at.topic].topic_id)
    found = sorted(committed_blocks(world), key=lambda placed: placed[:3])
    return [it for *_, it in found if (it.source_topic_id, it.partition) == (topic_id, at.partition)]


def bases(world: World, at: Partition) -> list[bool]:
    """Of each committed section, whether it begins the map anew."""
    return [section.base for section in sections_of(world, at)]


def map_of(world: World, at: Partition) -> PartitionMap:
    """Fold the map of a source partition as it stands."""
    target = target_of(at)
    source_id = topic_id_bytes(world.source.topics[at.topic].topic_id)
    target_id = topic_id_bytes(world.target.topics[target.topic].topic_id)
    fold = PartitionFold(source_id, target_id)
    for generation, offset, number, section in sorted(committed_blocks(world), key=lambda placed: placed[:3]):
        if section.partition == at.partition and section.source_topic_id == source_id:
            fold.add(PlacedSection(generation, offset, number, target_id, section))
    log = world.target.log(target)
    return fold.finished(reached(log.stable, log.end))


def check_map(
    world: World, at: Partition, *, hidden: bool = False, others: bool = False, ends: bool = True
) -> PartitionMap:
    """Every place that the map gives is the record's, and every copy below `passed` has one where the map is whole.

    `hidden`: markers of the target were lost, so that what a position covers may have been aborted. `others`: it holds
    copies from a source topic that is there no more. `ends`: the map ends at the position.
    """
    found, log = map_of(world, at), world.target.log(target_of(at))
    there = dict(log.all())
    source = dict(world.source.log(at).all())
    for run in found.by_source:
        for number in range(run.length):
            offset, entry = run.first + number, there[run.place + number]
            assert entry.origin == offset, f"{at}: {offset} is said to be at {run.place + number}: {entry}"
            assert offset not in source or source[offset].value == entry.value
            assert hidden or entry.fate is Fate.COMMITTED, f"{at}: the copy of {offset} is not committed"
    unmapped = [span for one in found.unmapped for span in range(one.first, one.end)]
    for place, entry in log.committed():
        if others or entry.origin < 0 or not found.begin <= entry.origin < found.passed or entry.origin in unmapped:
            continue
        assert found.by_source.place(entry.origin) == place, f"{at}: the map doesn't have {entry.origin} at {place}"
    stored = world.target.position(target_of(at))
    if ends and isinstance(stored, Position) and stored.evidence.map_topic_id:
        assert found.passed == stored.offset, f"{at}: the map ends at {found.passed}, the position is {stored.offset}"
    return found
