"""What follows from the map: a consumer that moves skips nothing, and a repair neither doubles nor revives."""

from __future__ import annotations

import random
from collections import Counter

from replicator.offset_map.compare import compare
from replicator.offset_map.mapped import PartitionMap
from replicator.offset_map.repair_rule import ON_REQUEST, records_to_copy
from replicator.offset_map.translate import ClaimedStart, to_source, to_target
from replicator.offset_map.varints import OFFSET_MAX
from replicator.offset_map.verdicts import MapVerdict
from tests.model.map_acts import ALTERED
from tests.model.map_histories import PlainMap
from tests.model.map_repair import can_repair, evidence_of, mapped_of, repair, rows_of
from tests.model.map_world import Made, MapWorld


def check_to_target(world: MapWorld, mapped: PartitionMap, plain: PlainMap) -> None:
    """Every source offset: the smallest place of all at or above it, and how many others are read again."""
    places = plain.places(world.source.topic_id)
    start = world.target.start
    for offset in range(plain.begin, plain.position + 3):
        found = to_target(mapped, offset, target_start=start)
        assert found.offset is not None
        above = [place for source, place in places.items() if source >= offset]
        expected = min(above, default=plain.next_target)
        guess = min(
            (low for first, end, low in plain.unmapped if first < plain.position and offset < min(end, plain.position)),
            default=expected,
        )
        assert ("ahead" in found.notes) == (offset > plain.position), "ahead"
        if guess < expected:
            beginning = "expired" in found.notes and found.offset == max(start, mapped.begin_target)
            assert "unmapped" in found.notes or beginning, "unmapped"
            check_nothing_skipped(world, mapped, offset, found.offset)
            continue
        assert "unmapped" not in found.notes, "unmapped"
        if "expired" in found.notes and found.again is None:  # of what was pruned a part was copied again
            assert found.offset == start <= max(expected, start), "place"
            continue
        assert ("expired" in found.notes) == (expected < start), "expired"
        assert found.offset == max(expected, start), "place"
        again = sum(source < offset and place >= found.offset for source, place in places.items())
        if offset > plain.position:  # what is to come will be read again, if it was read at the source
            assert found.again is None
            continue
        assert found.again == again, f"again {found.again}, not {again}"
        check_nothing_skipped(world, mapped, offset, found.offset)


def check_nothing_skipped(world: MapWorld, mapped: PartitionMap, offset: int, target: int) -> None:
    """Each copy of a record at or above the offset stands at or above the target offset, or another copy of it does."""
    unknown = {"lose_block", "map_off", "set_position_back", "adopt_below"}
    if world.map_wrong or ("truncate_target" in world.acts and unknown & set(world.acts)):
        return  # a loss of which only a block tells that was lost itself; or the target has lost the later copy of two
    last: dict[int, int] = {}
    for at, entry in enumerate(world.target.entries[: mapped.next_target]):
        if entry.source is None or entry.source[0] != world.source.number or entry.source[1] >= world.source.end:
            continue
        assert entry.made is not None
        if world.source.entries[entry.source[1]].made is entry.made or entry.made.content > ALTERED:
            last[entry.source[1]] = at
    for source, at in last.items():
        if offset <= source < mapped.passed and at >= max(world.target.start, mapped.begin_target):
            assert at >= target, f"source offset {source} at {at} is skipped"


def check_to_source(world: MapWorld, mapped: PartitionMap, plain: PlainMap) -> None:
    """The other direction, where nothing is expired or unmapped."""
    places = plain.places(world.source.topic_id)
    for offset in range(plain.begin_target, plain.next_target + 3):
        found = to_source(mapped, offset)
        if "unmapped" in found.notes or offset < mapped.pruned_to:
            continue
        expected = min((source for source, place in places.items() if place >= offset), default=plain.position)
        assert found.offset == expected, "source offset"
        again = sum(source >= expected and place < offset for source, place in places.items())
        if "ahead" in found.notes:
            assert found.again is None
            continue
        assert found.again in (again, None) if mapped.expired else found.again == again, "again at the source"


def check_beginning(mapped: PartitionMap) -> None:
    """Offsets below the map, and of another topic, are named."""
    if mapped.begin:
        before = to_target(mapped, mapped.begin - 1, claim=ClaimedStart(0, 0))
        assert before.offset is None, "before the map"
        assert before.bounds == (0, mapped.begin_target)
        started = to_target(mapped, mapped.begin - 1)
        assert "before_start" in started.notes
        assert started.offset == to_target(mapped, mapped.begin).offset, "the first mapped one"
    assert to_target(mapped, mapped.begin, topic_id=bytes(16)).notes == ("another_topic",)


def check_repair(world: MapWorld, drawn: random.Random) -> None:
    """It doubles nothing, harms no key, ends; and what was lost stands afterwards.

    The newest block must end at the position (M3). Where it ends before, the start has written a `base`; a position
    that was set back is an incident, and nothing is repaired.
    """
    if not can_repair(world):
        return
    also = ON_REQUEST if drawn.random() < 0.3 else frozenset[MapVerdict]()
    before, last_before = counted(world), last_of_keys(world.target.records(world.target.end))
    here = Counter(made.content for _, made in world.source.records(world.position))
    source_last = last_of_keys(world.source.records(world.position))
    places, others = mapped_of(world, OFFSET_MAX).by_source, last_of_others(world)
    copied = repair(world, also)
    for offset in copied if world.compacted_target else ():
        place, made = places.place(offset), world.source.entries[offset].made
        if made is not None and made.key in others:
            assert place is not None, f"source offset {offset} buries another's record of its key"
            assert others[made.key] < place, f"source offset {offset} buries another's record of its key"
    now, last_now = counted(world), last_of_keys(world.target.records(world.target.end))
    for content, count in now.items():
        assert count <= max(before[content], here[content]), f"content {content}: {count} of {here[content]} doubled"
    for key, made in last_now.items():
        if world.compacted_target and made is not last_before.get(key):
            assert source_last[key].content == made.content, f"key {key!r} was put back"
    assert repair(world, also) == [], "a second repair copies"
    source, target = rows_of(world, world.target.end)
    again = compare(mapped_of(world, OFFSET_MAX), source, target, lambda: evidence_of(world))
    kept = set(records_to_copy(again, also).left.values())
    if not world.compacted_target and "standing" not in kept:
        assert again.counts[MapVerdict.MISSING] == 0, f"{again.counts} after a repair of {copied}"


def counted(world: MapWorld) -> Counter[int]:
    """By content, without what was copied from the source topic before it was created again."""
    entries, number = world.target.entries, world.source.number
    return Counter(
        made.content
        for offset, made in world.target.records(world.target.end)
        if (entries[offset].source or (number, 0))[0] == number
    )


def last_of_others(world: MapWorld) -> dict[bytes, int]:
    """Where somebody else's record, which no record of the source equals, is its key's last one on the target."""
    here = {made.content for _, made in world.source.records(world.source.end)}
    last = {made.key: offset for offset, made in world.target.records(world.target.end) if made.key is not None}
    entries = world.target.entries
    return {
        key: offset
        for key, offset in last.items()
        if entries[offset].source is None and entries[offset].made.content not in here  # type: ignore[union-attr]
    }


def last_of_keys(records: object) -> dict[bytes, Made]:
    return {made.key: made for _, made in records if made.key is not None}  # type: ignore[attr-defined]
