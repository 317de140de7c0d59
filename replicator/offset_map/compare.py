"""Compares both sides of a partition by the map: offsets decide, and content only where the map leaves a doubt. Pure.

Compared are source offsets from where the map begins to what its reader has passed, and target offsets below the next
one (invariant M4). Each record is looked for at its place. What is left over on both sides is matched by content, one
to one; then each verdict follows from what else is known. Memory is for what is left over and for what was repaired.

Can't be told: which of several equal records is meant; somebody else's record in the place of a lost one from an
altered one; a loss that retention or compaction has overtaken.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable

from replicator.offset_map.mapped import PartitionMap
from replicator.offset_map.places import LeftOver, at_their_places, is_compared
from replicator.offset_map.verdicts import (
    ComparedRecord,
    LastOfKey,
    MapComparison,
    MapFinding,
    MapVerdict,
    Rows,
    SidesEvidence,
)

NAMED = {
    "aside": MapVerdict.SET_ASIDE,
    "dropped": MapVerdict.DROPPED,
    "gap": MapVerdict.SIGNED_GAP,
    "expired": MapVerdict.EXPIRED,
}


def compare(
    mapped: PartitionMap,
    source: Rows,
    target: Rows,
    evidence: Callable[[], SidesEvidence],
    *,
    for_repair: bool = True,
    left_max: int | None = None,
) -> MapComparison:
    """Compare the committed records of both sides.

    Args:
        evidence: asked for after all rows were read once.
        for_repair: whether `not_compared` and `last_on_target` are wanted, for which the target is read again.
        left_max: how many records may be kept in memory that don't stand where the map says. Raises TooManyLeft.
    """
    found = MapComparison()
    left = at_their_places(mapped, source(), target(), left_max)
    found.counts[MapVerdict.SAME], found.behind = left.same, left.behind
    known = evidence()
    again = _ReadAgain(left)
    if left.source or left.target:
        again.source(row for row in source() if row.offset < mapped.passed)
        if for_repair or (known.target_compacted and again.asks_target):
            again.target(mapped, target())
        if for_repair and known.target_compacted and again.last_on_target:
            again.source_of_last(row for row in source() if row.offset < mapped.passed)
    match_by_content(mapped, left, found, lambda row, place: is_explained(row, place, known, again))
    found.target_compacted = known.target_compacted
    found.last_of_key, found.not_compared = again.last_of_key, again.not_compared
    found.last_on_target = again.last_on_target
    for row in left.source.values():
        found.records[row.offset] = row
        found.say(_of_source(mapped, row, left, known, again, found))
    for row in left.target.values():
        found.left[row.offset] = row
        found.say(_of_target(mapped, row, left, known, again, found))
    found.findings.sort(key=lambda one: (one.source is None, one.source or 0, one.target or 0))
    return found


def is_explained(row: ComparedRecord, place: int, known: SidesEvidence, again: _ReadAgain) -> bool:
    """Return whether retention or compaction explains that the place of a source record is empty."""
    return place < known.target_start or is_compacted(row, place, known, again)


def is_compacted(row: ComparedRecord, place: int, known: SidesEvidence, again: _ReadAgain) -> bool:
    """Return whether log compaction has taken a source record's copy from its place, as it may."""
    return known.target_compacted and known.emptied(place) and may_be_compacted(row, again)


def match_by_content(
    mapped: PartitionMap, left: LeftOver, found: MapComparison, explained: Callable[[ComparedRecord, int], bool]
) -> None:
    """Match what is left over on both sides, one to one, in the order of offsets.

    Of equal source records those come last whose lack is explained: their copies are gone, so what stands isn't theirs.
    """

    def comes_last(offset: int) -> tuple[bool, int]:
        place = mapped.by_source.place(offset)
        return (mapped.said(offset) in NAMED if place is None else explained(left.source[offset], place)), offset

    standing: defaultdict[bytes, deque[int]] = defaultdict(deque)
    for offset in sorted(left.target):
        if digest := left.target[offset].digest:
            standing[digest].append(offset)
    for offset in sorted(left.source, key=comes_last):
        copies = standing.get(left.source[offset].digest)
        if not copies:
            continue
        place = copies.popleft()
        del left.source[offset], left.target[place]
        if mapped.by_source.place(offset) is None and mapped.said(offset) == "unmapped":
            found.counts[MapVerdict.SAME] += 1
            found.same_by_content += 1
        else:
            found.doubts["displaced"] += 1
            found.say(MapFinding(MapVerdict.DISPLACED, offset, place))


class _ReadAgain:
    """What both sides have besides of contents and keys that are left over."""

    def __init__(self, left: LeftOver) -> None:
        self._contents = {row.digest for row in left.target.values() if row.digest}
        self._lost = {row.digest for row in left.source.values() if row.digest}
        self._keys = {row.key for row in left.source.values() if row.key is not None}
        self._tombstones = {row.key for row in left.source.values() if row.tombstone and row.key is not None}
        self.equal: set[bytes] = set()
        """Contents of the target's that the source has, too."""
        self.last_of_key: dict[bytes, int] = {}
        self.standing: set[bytes] = set()
        """Keys of tombstones of which the target has any record."""
        self.not_compared: defaultdict[bytes, int] = defaultdict(int)
        self.last_on_target: dict[bytes, LastOfKey] = {}

    @property
    def asks_target(self) -> bool:
        """Whether a verdict depends on what else the target has."""
        return bool(self._tombstones)

    def source(self, rows: Iterable[ComparedRecord]) -> None:
        for row in rows:
            if row.digest in self._contents:
                self.equal.add(row.digest)
            if row.key is not None and row.key in self._keys:
                self.last_of_key[row.key] = row.offset

    def target(self, mapped: PartitionMap, rows: Iterable[ComparedRecord]) -> None:
        for row in rows:
            if row.digest in self._lost and not is_compared(mapped, row.offset) and row.offset not in mapped.others:
                self.not_compared[row.digest] += 1
            if row.key is not None and row.key in self._tombstones:
                self.standing.add(row.key)
            if row.key is not None and row.key in self._keys:
                self.last_on_target[row.key] = LastOfKey(row.offset, row.digest)

    def source_of_last(self, rows: Iterable[ComparedRecord]) -> None:
        for row in rows:
            last = self.last_on_target.get(row.key) if row.key is not None else None
            if row.key is not None and last is not None and last.source is None and last.equals(row.digest):
                self.last_on_target[row.key] = last._replace(source=row.offset)


def _of_source(
    mapped: PartitionMap,
    row: ComparedRecord,
    left: LeftOver,
    known: SidesEvidence,
    again: _ReadAgain,
    found: MapComparison,
) -> MapFinding:
    """Give the verdict over a source record that has no copy."""
    offset, place = row.offset, mapped.by_source.place(row.offset)
    if place is not None:
        if left.target.pop(place, None) is not None:
            fits = known.digest_fits(place)
            return MapFinding(MapVerdict.SOURCE_CHANGED if fits else MapVerdict.ALTERED, offset, place, by_digest=fits)
        if place < known.target_start:
            return MapFinding(MapVerdict.EXPIRED, offset, place)
        if is_compacted(row, place, known, again):
            return MapFinding(MapVerdict.COMPACTED, offset, place)
        return MapFinding(MapVerdict.MISSING, offset, place)
    said = mapped.said(offset)
    if said in NAMED:
        return MapFinding(NAMED[said], offset, None)
    if said == "":
        found.doubts["unclaimed"] += 1
    return MapFinding(MapVerdict.MISSING, offset, None, by_content=said == "unmapped")


def may_be_compacted(row: ComparedRecord, again: _ReadAgain) -> bool:
    """Return whether log compaction may have taken a record: it is not its key's last one, it has no key, or it is a
    tombstone and nothing of its key stands any more (org.apache.kafka.storage.internals.log.Cleaner).

    Otherwise it took the record for another one of its key, which must not stand behind it.
    """
    if row.key is None or again.last_of_key.get(row.key, row.offset) > row.offset:
        return True
    return row.tombstone and row.key not in again.standing


def _of_target(
    mapped: PartitionMap,
    row: ComparedRecord,
    left: LeftOver,
    known: SidesEvidence,
    again: _ReadAgain,
    found: MapComparison,
) -> MapFinding:
    """Give the verdict over a target record that no source record stands for."""
    claimed = mapped.by_target.place(row.offset)
    if claimed is not None and row.offset in left.gone:
        if claimed < known.source_start:
            why = "retention"
        elif known.source_compacted:
            why = "compaction"
        else:
            why = "unknown"
            found.doubts["source_unknown"] += 1
        fits = known.digest_fits(row.offset)
        return MapFinding(MapVerdict.SOURCE_GONE, claimed, row.offset, why, by_digest=fits)
    if row.offset in mapped.truncated:
        return MapFinding(
            MapVerdict.SOURCE_GONE, None, row.offset, "truncation", by_digest=known.digest_fits(row.offset)
        )
    by_content = any(one.target_first <= row.offset < one.target_end for one in mapped.unmapped)
    verdict = MapVerdict.DOUBLED if row.digest in again.equal else MapVerdict.EXTRA
    return MapFinding(verdict, None, row.offset, by_content=by_content)
