"""Translates offsets between both sides, by the map. Pure; to be used for consumer groups and by commands.

A consumer that goes on at the translated offset skips no record; what it reads again is counted, and is none wherever
nothing was repaired. MirrorMaker 2 keeps at most 64 points a partition instead (KIP-545, OffsetSyncStore).
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from replicator.offset_map.mapped import ExpiredRange, PartitionMap
from replicator.offset_map.varints import OFFSET_MAX

TranslationNote = Literal["ahead", "another_topic", "before_map", "before_start", "expired", "lost", "unmapped"]


class TranslatedOffset(NamedTuple):
    """Where a consumer goes on in the other log. Without notes it is exact.

    Attributes:
        offset: None where the map can't say it.
        again: how many records it reads again; None: not known.
        notes: `ahead`: beyond what is copied, which is where it goes on, and reads again what it has read beyond.
            `before_start`: below where the flow began, which is where it goes on. `before_map`: what was copied there,
            no map tells; see `bounds`. `expired`: below the log start, where it goes on. `lost`: the other log has
            lost its end, and with it what would be next; it goes on where that log ends now. `unmapped`: the chain of
            the map is broken there; nothing is skipped, but more may be read again. `another_topic`: the offset is of
            another incarnation of the topic.
        bounds: with `before_map`: between which offsets it lies.
    """

    offset: int | None
    again: int | None = None
    notes: tuple[TranslationNote, ...] = ()
    bounds: tuple[int, int] | None = None


class ClaimedStart(NamedTuple):
    """Where the flow began in the partition, as its claim says: on the source, and the target's end at that time."""

    offset: int
    target_end: int


def to_target(
    mapped: PartitionMap,
    offset: int,
    *,
    topic_id: bytes | None = None,
    target_start: int = 0,
    target_end: int = OFFSET_MAX,
    position: int | None = None,
    claim: ClaimedStart | None = None,
) -> TranslatedOffset:
    """Translate the next source offset to be consumed: the smallest place of all records at or above it.

    Args:
        topic_id: of the source topic that the offset belongs to; None: that of the map.
        target_start: the target's log start now.
        target_end: where the target's log ends, asked for after the map was read. Where that is below the place, the
            copies there are lost, and what others write there is not to be skipped.
        position: up to where the flow has copied; None: where the map ends. Beyond the map's end it says nothing.
        claim: None: the flow's claim is where the map begins.
    """
    found = _place_at_target(mapped, offset, topic_id, target_start, position, claim)
    return _within(target_end, found)


def _within(end: int, found: TranslatedOffset) -> TranslatedOffset:
    """Go on no further than where the log ends."""
    if found.offset is None or found.offset <= end:
        return found
    return TranslatedOffset(end, None, (*found.notes, "lost"))


def _place_at_target(
    mapped: PartitionMap,
    offset: int,
    topic_id: bytes | None,
    target_start: int,
    position: int | None,
    claim: ClaimedStart | None,
) -> TranslatedOffset:
    if topic_id is not None and topic_id != mapped.source_topic_id:
        return TranslatedOffset(None, None, ("another_topic",))
    notes: list[TranslationNote] = []
    position = mapped.passed if position is None else position
    if offset > position:
        notes.append("ahead")
    if offset > mapped.passed:
        if position > mapped.passed:
            notes.append("unmapped")
        offset = mapped.passed
    claim = claim or ClaimedStart(mapped.begin, mapped.begin_target)
    if offset < claim.offset:
        notes.append("before_start")
        offset = claim.offset
    if offset < mapped.begin:
        return TranslatedOffset(None, None, (*notes, "before_map"), (claim.target_end, mapped.begin_target))
    smallest = mapped.by_source.smallest_place(offset)
    found = mapped.next_target if smallest is None else smallest
    start = max(target_start, mapped.pruned_to)
    guess, pruned = found, list[ExpiredRange]()
    if mapped.unmapped or mapped.expired:
        guess = min((one.target_first for one in mapped.unmapped if one.end > offset), default=found)
        pruned = [one for one in mapped.expired if one.end > offset]
    if guess < found and not pruned:
        return TranslatedOffset(max(guess, start), None, (*notes, "unmapped"))
    if found < start or pruned:
        found = max(start, mapped.begin_target)
        notes.append("expired")
        if pruned and all(one.copies is None for one in pruned):  # perhaps there is nothing in what is left of them
            return TranslatedOffset(found, None, tuple(notes))
    beyond = "ahead" in notes or "unmapped" in notes
    again = None if beyond else mapped.by_source.below_at_or_behind(offset, found)
    return TranslatedOffset(found, again, tuple(notes))


def to_source(
    mapped: PartitionMap,
    offset: int,
    *,
    source_start: int = 0,
    source_end: int = OFFSET_MAX,
    target_start: int = 0,
    copied_end: int | None = None,
    claim: ClaimedStart | None = None,
    native: PartitionMap | None = None,
) -> TranslatedOffset:
    """Translate the next target offset to be consumed: the smallest source offset of all records at or above it.

    Args:
        source_start, target_start: log starts now.
        source_end: where the source's log ends, asked for after the position was read. Where that is below the place,
            the source has lost records, and what others write there is not to be skipped.
        copied_end: up to which target offset the flow has copied; None: where the map ends.
        claim: as of `to_target`; where the map begins with the flow, what stands on the target before is nobody's.
        native: the map of the flow in the other direction, if there is one: records that were written to the target by
            others stand on the source where it says, and are not skipped either.
    """
    found = _place_at_source(mapped, offset, source_start, target_start, copied_end, claim, native)
    return _within(source_end, found)


def _place_at_source(
    mapped: PartitionMap,
    offset: int,
    source_start: int,
    target_start: int,
    copied_end: int | None,
    claim: ClaimedStart | None,
    native: PartitionMap | None,
) -> TranslatedOffset:
    notes: list[TranslationNote] = []
    if offset < mapped.begin_target:
        if claim is None or claim.offset < mapped.begin:
            return TranslatedOffset(None, None, ("before_map",), (claim.offset if claim else 0, mapped.begun))
        notes.append("before_start")
        offset = mapped.begin_target
    start = max(target_start, mapped.pruned_to)
    if offset < start:
        notes.append("expired")
        offset = start
    copied_end = mapped.next_target if copied_end is None else copied_end
    if offset > copied_end:
        notes.append("ahead")
    if offset > mapped.next_target and copied_end > mapped.next_target:
        return TranslatedOffset(max(mapped.passed, source_start), None, (*notes, "unmapped"))
    smallest = mapped.by_target.smallest_place(offset)
    found = mapped.passed if smallest is None else smallest
    unmapped = min((one.first for one in mapped.unmapped if one.target_end > offset), default=found)
    if unmapped < found:
        return TranslatedOffset(max(unmapped, source_start), None, (*notes, "unmapped"))
    if native is not None:
        other = to_target(native, offset, target_start=source_start)
        if other.offset is None or other.again is None:
            return TranslatedOffset(other.offset, None, (*notes, *other.notes), other.bounds)
        if other.offset < found:
            return TranslatedOffset(other.offset, None, (*notes, *other.notes))
    if found < source_start:
        found = source_start
        notes.append("expired")
    return TranslatedOffset(found, None if "ahead" in notes else _again_at_source(mapped, offset, found), tuple(notes))


def _again_at_source(mapped: PartitionMap, offset: int, found: int) -> int | None:
    """Count copies below the target offset whose source offsets are at or above the one found; None if pruning hides
    them.
    """
    again = mapped.by_target.below_at_or_behind(offset, found)
    for expired in mapped.expired:
        if expired.end <= found:
            continue
        if expired.first < found or expired.copies is None:
            return None
        again += expired.copies
    return again
