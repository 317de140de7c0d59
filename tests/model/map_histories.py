"""Histories of a seed, and the plainest reading of the map that they leave: one offset at a time, no runs."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from replicator.offset_map.fold import PlacedSection
from tests.model.map_acts import ALWAYS, CLASSES, MIXED, Act, clean_source, clean_target, copy, lose_block, size
from tests.model.map_world import MapWorld

NAMES = (*CLASSES, "all")


def drawn_world(seed: int, name: str) -> MapWorld:
    """What came of the acts of one class, or of all, in an order drawn by the seed."""
    drawn = random.Random(f"{name} {seed}")
    acts = MIXED if name == "all" else CLASSES[name]
    keyed = clean_source in acts or clean_target in acts or drawn.random() < 0.3
    world = MapWorld(
        drawn,
        keys=drawn.choice((2, 5, 12)) if keyed else 0,
        contents=drawn.choice((0, 0, 0, 3, 20)),
        scale=1 if drawn.random() < 0.98 else 4,
    )
    world.produce(size(world, 10))
    if drawn.random() < 0.15:
        lose_block(world)  # the map begins later than the flow
    world.claim()
    for _ in range(size(world, 25)):
        _act(world, acts, drawn)
    if not any(placed.section.runs for placed in world.sections):
        copy(world)
    return world


def _act(world: MapWorld, acts: Sequence[Act], drawn: random.Random) -> None:
    act = drawn.choice(ALWAYS) if drawn.random() < 0.55 else drawn.choice(acts)
    act(world)
    world.acts.append(act.__name__)


@dataclass
class PlainMap:
    """What the map says, by its letter. `claims`: by target offset, the source topic and offset."""

    claims: dict[int, tuple[bytes, int]] = field(default_factory=dict)
    truncated: set[int] = field(default_factory=set)
    begin: int = -1
    begun: int = -1
    begin_target: int = 0
    position: int = 0
    next_target: int = 0
    ends: list[int] = field(default_factory=list)
    unmapped: list[tuple[int, int, int]] = field(default_factory=list)

    def places(self, topic_id: bytes) -> dict[int, int]:
        """The last place of each source offset below the position."""
        found: dict[int, int] = {}
        for target in sorted(self.claims):
            topic, source = self.claims[target]
            if topic == topic_id and target < self.next_target:
                found[source] = target
        return {source: target for source, target in found.items() if source < self.position}


def read_plainly(world: MapWorld, stable: int) -> PlainMap:
    """The sections up to the last one such that the stable offset has reached it and all before it, which it may have
    voided."""
    ordered = sorted(
        (one for one in world.sections if one.target_topic_id == world.target.topic_id), key=lambda one: one[:3]
    )
    for number in range(len(ordered), 0, -1):
        last = ordered[number - 1].section
        if last.source_topic_id != world.source.topic_id:
            continue
        read = _read(world, ordered[:number])
        if any(one.section.runs and one.section.first_target < read.next_target for one in ordered[number:]):
            continue  # voided by what hasn't been reached
        later = [one for one in ordered[number:] if one.section.source_topic_id == world.source.topic_id]
        if any(one[:3] in world.truncations and one.section.before < read.position for one in later):
            continue  # the source has lost what was judged, and has other records there
        if all(end <= stable for end in read.ends):
            return read
    first = next(n for n, one in enumerate(ordered) if one.section.source_topic_id == world.source.topic_id)
    none = _read(world, ordered[: first + 1])
    voiding = [one.section.first_target for one in ordered[first + 1 :] if one.section.runs]
    begin_target = min([none.begin_target, *voiding])
    return PlainMap(
        begun=none.begin, begin=none.begin, begin_target=begin_target, position=none.begin, next_target=begin_target
    )


def _read(world: MapWorld, ordered: Sequence[PlacedSection]) -> PlainMap:
    read = PlainMap()
    ours = world.source.topic_id
    for placed in ordered:
        section, first = placed.section, placed.section.first_target
        if section.runs:
            read.claims = {target: source for target, source in read.claims.items() if target < first}
            read.truncated = {target for target in read.truncated if target < first}
            read.ends = [end for end in read.ends if end <= first]
            read.next_target = min(read.next_target, first)
            read.begin_target = min(read.begin_target, first)
            read.unmapped = [(one, end, min(low, first)) for one, end, low in read.unmapped]
        if section.source_topic_id == ours:
            if read.begin < 0:
                read.begun = read.begin = section.before
                read.begin_target = max(first, read.next_target)
                read.next_target = read.begin_target
            elif section.before > read.position:
                read.unmapped.append((read.position, section.before, read.next_target))
            elif section.before < read.position and section.base:
                read.begin = min(read.begin, section.before)
            if placed[:3] in world.truncations:
                gone = {t for t, (topic, source) in read.claims.items() if topic == ours and source >= section.before}
                read.truncated |= gone
                read.claims = {target: source for target, source in read.claims.items() if target not in gone}
                read.unmapped = [
                    (one, min(end, section.before), low) for one, end, low in read.unmapped if one < section.before
                ]
            read.position = section.after
        offsets = [source for begin, end in section.runs for source in range(begin, end)]
        for target, source in enumerate(offsets, first):
            read.claims[target] = section.source_topic_id, source
        read.next_target = max(read.next_target, first + len(offsets))
        if section.source_topic_id == ours:
            read.ends.append(read.next_target)
    return read
