"""What is read of a history, and a repair of it by the map: after the fence, in transactions of its own."""

from __future__ import annotations

import random
from collections.abc import Collection

from replicator.offset_map.compare import compare
from replicator.offset_map.fold import PartitionFold
from replicator.offset_map.mapped import PartitionMap
from replicator.offset_map.repair_rule import records_to_copy
from replicator.offset_map.varints import OFFSET_MAX
from replicator.offset_map.verdicts import MapVerdict, Rows, SidesEvidence
from tests.model.map_world import MapWorld, runs_of_copies


def mapped_of(world: MapWorld, stable: int, drawn: random.Random | None = None) -> PartitionMap:
    """The fold of all sections; with `drawn`, pruned at some time by a log start that was known by then."""
    folding = PartitionFold(world.source.topic_id, world.target.topic_id)
    ordered = sorted(world.sections, key=lambda placed: placed[:3])
    prune = drawn.randrange(len(ordered)) if drawn is not None else -1
    for number, placed in enumerate(ordered):
        folding.add(placed)
        if number == prune:
            folding.prune(world.target.start)
    if prune >= 0:
        folding.prune(world.target.start)
    return folding.finished(stable)


def evidence_of(world: MapWorld) -> SidesEvidence:
    """What can be known besides of both sides."""
    return SidesEvidence(
        source_start=world.source.start,
        target_start=world.target.start,
        source_compacted=world.compacted_source,
        target_compacted=world.compacted_target,
        emptied=lambda offset: offset < world.target.end and world.target.entries[offset].kind == "empty",
        digest_fits=world.digest_fits,
    )


def rows_of(world: MapWorld, stable: int) -> tuple[Rows, Rows]:
    """Readers of both sides."""
    return lambda: world.source.rows(world.source.end), lambda: world.target.rows(stable)


def can_repair(world: MapWorld) -> bool:
    """Whether the newest block ends at the position (M3). Where it ends before, the start writes a `base`; a position
    that was set back is an incident."""
    ends = mapped_of(world, OFFSET_MAX).passed
    if world.position > ends:
        world.base = True
        world.claim()
    return world.position >= ends


def repair(world: MapWorld, also: Collection[MapVerdict] = ()) -> list[int]:
    """Fence, compare, copy what the rule says, in transactions of their own; returns the source offsets."""
    source, target = rows_of(world, world.target.end)
    found = compare(mapped_of(world, OFFSET_MAX), source, target, lambda: evidence_of(world))
    chosen = records_to_copy(found, also).copied
    made = dict(world.source.records(world.source.end))
    left = [(offset, made[offset]) for offset in chosen]
    while left:
        count = world.drawn.randrange(1, len(left) + 1)
        part, left = left[:count], left[count:]
        first = world.write(part)
        before = world.copied
        section = world.section(world.position, runs_of_copies(part), first, count=before)
        world.copied = before
        world.commit(section, tuple(one.content for _, one in part))
    return chosen
