"""The oracle: what was done to a history says what the fold, the verdicts, translation and repair must say of it."""

from __future__ import annotations

from collections import Counter

from replicator.offset_map.mapped import PartitionMap
from replicator.offset_map.verdicts import MapComparison, MapVerdict, Rows
from tests.model.map_histories import PlainMap
from tests.model.map_world import Made, MapWorld

V = MapVerdict
WITHOUT_COPY = {
    V.ALTERED,
    V.SOURCE_CHANGED,
    V.EXPIRED,
    V.COMPACTED,
    V.SIGNED_GAP,
    V.SET_ASIDE,
    V.DROPPED,
    V.MISSING,
}
LEFT_ON_TARGET = {V.EXTRA, V.DOUBLED, V.SOURCE_GONE, V.ALTERED, V.SOURCE_CHANGED}


def is_compared(mapped: PartitionMap, target: int) -> bool:
    """Whether the map speaks of this target offset, and of the source topic as it is now."""
    inside = mapped.begin_target <= target < mapped.next_target
    return inside and not any(first <= target < end for first, end in (*mapped.others.spans, *mapped.ahead.spans))


def check_fold(world: MapWorld, mapped: PartitionMap, plain: PlainMap) -> None:
    """Runs say what single offsets do, and the bounds are those of sections that were reached."""
    bounds = (mapped.begun, mapped.begin, mapped.begin_target, mapped.passed, mapped.next_target)
    assert bounds == (plain.begun, plain.begin, plain.begin_target, plain.position, plain.next_target), "bounds"
    places = plain.places(world.source.topic_id)
    if mapped.pruned_to:
        places = {source: target for source, target in places.items() if target >= mapped.pruned_to}
    for index, expected in (
        (mapped.by_source, places),
        (mapped.by_target, {target: source for source, target in places.items()}),
    ):
        assert {run.first + n: run.place + n for run in index for n in range(run.length)} == expected, "places"


def check_counts(mapped: PartitionMap, source: Rows, target: Rows, found: MapComparison) -> None:
    """By content: as many copies are found as both sides have, and nothing is called lost that stands."""
    here = {
        row.offset: row.digest
        for row in source()
        if row.offset < mapped.passed and (row.offset >= mapped.begin or mapped.by_source.place(row.offset) is not None)
    }
    there = {row.offset: row.digest for row in target() if is_compared(mapped, row.offset)}
    counted_here, counted_there = Counter(here.values()), Counter(there.values())
    lost, left = Counter[bytes](), Counter[bytes]()
    for finding in found.findings:
        if finding.source is not None and finding.verdict in WITHOUT_COPY:
            lost[here[finding.source]] += 1
        if finding.target is not None and finding.verdict in LEFT_ON_TARGET:
            assert finding.target in there, f"target offset {finding.target} isn't judged"
            left[there[finding.target]] += 1
    assert lost == counted_here - counted_there, "lost by content"
    assert left == counted_there - counted_here, "left by content"
    copies = found.counts[V.SAME] + found.counts[V.DISPLACED]
    assert copies == (counted_here & counted_there).total(), "copies by content"


def check_verdicts(world: MapWorld, mapped: PartitionMap, plain: PlainMap, found: MapComparison) -> None:
    """Each verdict is the one that what was done asks for, of records whose contents occur once."""
    places = plain.places(world.source.topic_id)
    by_source = {one.source: one for one in found.findings if one.source is not None and one.verdict != V.SOURCE_GONE}
    stands = dict(world.target.records(mapped.next_target))
    occurs = Counter(made.content for _, made in world.source.records(world.source.end))
    others = Counter(made.content for made in stands.values())
    for offset, made in world.source.records(mapped.passed):
        if offset < mapped.begin and places.get(offset, -1) < mapped.pruned_to:
            continue  # before the map, or at a place that was forgotten
        copies = [target for target, there in stands.items() if there is made and is_compared(mapped, target)]
        if occurs[made.content] > 1 or others[made.content] > len(copies):
            continue  # which of equal records is meant can't be told
        said = by_source[offset].verdict if offset in by_source else V.SAME
        allowed = allowed_verdicts(world, mapped, places.get(offset), offset, copies)
        assert said in allowed, f"source offset {offset} is {said}, not {allowed}"
    for finding in found.findings:
        if finding.verdict in (V.EXTRA, V.DOUBLED, V.SOURCE_GONE) and finding.target is not None:
            check_left(world, found, finding.target, finding.verdict)


def allowed_verdicts(
    world: MapWorld, mapped: PartitionMap, place: int | None, offset: int, copies: list[int]
) -> set[MapVerdict]:
    """What may be said of a source record."""
    if copies:
        unmapped = place is None and mapped.said(offset) == "unmapped"
        return {V.SAME} if place in copies or unmapped else {V.DISPLACED}
    if place is not None and place < world.target.start:
        return {V.EXPIRED}
    if place is None or place >= world.target.end:
        section = [one.section for one in world.sections if one.section.source_topic_id == world.source.topic_id]
        named: set[MapVerdict] = set()
        for one in section:
            named |= {V.SET_ASIDE} if any(entry.source == offset for entry in one.aside) else set()
            named |= {V.DROPPED} if any(entry.source == offset for entry in one.dropped) else set()
            named |= {V.SIGNED_GAP} if one.gap and one.before <= offset < one.after else set()
        expired = any(one.first <= offset < one.end for one in mapped.expired)  # retention has overtaken the loss
        return named or ({V.MISSING, V.EXPIRED} if expired else {V.MISSING})
    there = world.target.entries[place]
    if there.kind == "record" and is_compared(mapped, place):
        # The record there is another one: altered, or what the source had before. Or it is somebody's copy elsewhere.
        return {V.ALTERED, V.SOURCE_CHANGED, V.MISSING}
    if there.kind == "empty":
        return (
            {V.COMPACTED}
            if "write_by_others" not in world.acts and "alter" not in world.acts
            else {V.COMPACTED, V.MISSING}
        )
    return {V.MISSING}


def check_compacted(world: MapWorld, mapped: PartitionMap, found: MapComparison) -> None:
    """Compaction takes a key's last record only if that is a tombstone, with everything before it."""
    made = dict(world.source.records(mapped.passed))
    for one in found.findings:
        if one.verdict == V.COMPACTED and one.source is not None:
            _check_compacted(world, mapped, one.source, made[one.source])


def _check_compacted(world: MapWorld, mapped: PartitionMap, offset: int, made: Made) -> None:
    later = [at for at, one in world.source.records(mapped.passed) if one.key == made.key and at > offset]
    if later or made.key is None:
        return
    standing = [at for at, one in world.target.records(world.target.end) if one.key == made.key]
    assert made.tombstone, f"source offset {offset} was its key's last value"
    assert not standing, f"source offset {offset} deletes a key that stands at {standing}"


def check_left(world: MapWorld, found: MapComparison, target: int, said: MapVerdict) -> None:
    """A record of the target that is left has no source record, or another copy that counts."""
    made = world.target.entries[target].made
    source = world.target.entries[target].source
    assert made is not None
    stands = any(one is made for _, one in world.source.records(world.source.end))
    if said == V.SOURCE_GONE:
        if source is None:  # somebody else's record in the place of a lost one
            assert "truncate_target" in world.acts, f"target offset {target}: what others wrote has no source"

        assert not stands, f"target offset {target}: its source record stands"
