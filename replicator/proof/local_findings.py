"""What a comparison by the map says of records, in the words of the reports. Pure; used by `summed_up`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from replicator.offset_map.mapped import PartitionMap
from replicator.offset_map.order import out_of_order
from replicator.offset_map.runs import runs_of
from replicator.offset_map.verdicts import MapComparison, MapFinding, MapVerdict
from replicator.proof import verdicts
from replicator.proof.outcome import OffsetRange

V = MapVerdict
KEY_BYTES_MAX = 64
_LEFT_OUT = {
    V.SIGNED_GAP: "skipped by a decision",
    V.SET_ASIDE: "set aside by a decision",
    V.DROPPED: "left out by a rule",
}
_PLAIN = {
    V.ALTERED: verdicts.ALTERED,
    V.SOURCE_CHANGED: verdicts.ALTERED,
    V.EXPIRED: verdicts.EXPIRED,
    V.COMPACTED: verdicts.COMPACTED,
    V.MISSING: verdicts.MISSING,
    V.EXTRA: verdicts.EXTRA,
    V.DOUBLED: verdicts.DOUBLED,
}
_GONE = {
    "retention": (verdicts.NEVER_MINE, ""),
    "compaction": (verdicts.COMPACTED_SOURCE, ""),
    "truncation": (verdicts.EXTRA, "the source has lost it by truncation"),
    "unknown": (verdicts.EXTRA, "the map names a source record that isn't there, and nothing says why"),
}
MissingSpans = list[tuple[int, int, int]]
"""Source offsets [first, end), and how many records are missing there; see `repair_report`."""
SOURCE_CHANGED = "what was copied fits the map's digest: the source's record is another one since"


class ReportedRecord(NamedTuple):
    """The verdict over one record that isn't the same on both sides. Offsets are None on a side that hasn't got it."""

    verdict: str
    source: int | None
    target: int | None
    fields: str = ""
    reason: str = ""
    timestamp_ms: int | None = None
    key: bytes | None = None


@dataclass(slots=True)
class Reported:
    """All of one partition. `same`: how many are; `left_out`: source records that the map says were, and how."""

    records: list[ReportedRecord] = field(default_factory=list)
    same: int = 0
    left_out: dict[str, int] = field(default_factory=dict)


def reported(
    mapped: PartitionMap, found: MapComparison, fields: Mapping[int, str], unproven: Mapping[int, str]
) -> Reported:
    """Name what was found. What the map doesn't cover is no record here: see `coverage`.

    Args:
        fields: which ones of an altered record differ, by source offset.
        unproven: why it can't be told whether a missing record is a loss, by source offset.
    """
    said = Reported()
    pairs = list(found.behind)
    elsewhere = []
    for one in found.findings:
        if one.source is not None:
            elsewhere.append(one.source)
        if one.verdict is V.DISPLACED:
            assert one.source is not None, "a displaced record is on both sides"
            assert one.target is not None
            pairs.append((one.source, one.target))
        elif one.verdict in _LEFT_OUT:
            what = _LEFT_OUT[one.verdict]
            said.left_out[what] = said.left_out.get(what, 0) + 1
        elif not one.by_content:
            said.records.append(_named(one, found, fields, unproven))
    moved = out_of_order(mapped, pairs, sorted(elsewhere))
    said.same = found.counts[V.SAME] - found.same_by_content + found.counts[V.DISPLACED] - len(moved)
    said.records += [ReportedRecord(verdicts.REORDERED, source, target) for source, target in moved]
    said.records.sort(key=lambda it: (it.source is None, it.source or 0, it.target or 0))
    return said


def _named(
    one: MapFinding, found: MapComparison, fields: Mapping[int, str], unproven: Mapping[int, str]
) -> ReportedRecord:
    source, target = one.source, one.target
    if one.verdict is V.SOURCE_GONE:
        verdict, reason = _GONE[one.why]
        source = None
    else:
        verdict = _PLAIN[one.verdict]
        reason = SOURCE_CHANGED if one.verdict is V.SOURCE_CHANGED else ""
        if one.verdict not in (V.ALTERED, V.SOURCE_CHANGED) and source is not None:
            target = None  # its place, where it doesn't stand
    if verdict == verdicts.MISSING and source is not None and source in unproven:
        verdict, reason = verdicts.UNPROVEN, unproven[source]
    row = found.records.get(source) if source is not None else found.left.get(target) if target is not None else None
    return ReportedRecord(
        verdict,
        source,
        target,
        fields.get(source, "") if source is not None and verdict == verdicts.ALTERED else "",
        reason,
        row.timestamp_ms if row is not None else None,
        row.key[:KEY_BYTES_MAX] if row is not None and row.key is not None else None,
    )


def missing_spans(records: Iterable[ReportedRecord]) -> MissingSpans:
    """Return the source offsets of missing records, as spans of consecutive ones."""
    lost = sorted(one.source for one in records if one.verdict == verdicts.MISSING and one.source is not None)
    return [(first, end, end - first) for first, end in runs_of(lost)]


def ranges_of(records: Iterable[ReportedRecord], mapped: PartitionMap | None) -> Iterator[OffsetRange]:
    """Yield records of one kind that follow one another as ranges, by verdict in the order of their offsets."""
    open_: dict[tuple[str, str, str, bool], list[ReportedRecord]] = {}
    for one in records:
        kind = one.verdict, one.fields, one.reason, one.source is None
        last = open_.get(kind)
        if last is not None and _follows(last[-1], one, mapped):
            last.append(one)
            continue
        if last is not None:
            yield _range(last)
        open_[kind] = [one]
    for last in open_.values():
        yield _range(last)


def _follows(one: ReportedRecord, other: ReportedRecord, mapped: PartitionMap | None) -> bool:
    """Return whether no offset between two records is one that the map has a record at."""
    both = one.source is not None and one.target is not None
    if both and (other.target or 0) <= (one.target or 0):
        return False
    here = one.source is None or other.source is None or _adjacent(one.source, other.source, mapped, of_source=True)
    there = one.target is None or other.target is None or _adjacent(one.target, other.target, mapped, of_source=False)
    return here and there


def _adjacent(one: int, other: int, mapped: PartitionMap | None, *, of_source: bool) -> bool:
    if other == one + 1 or mapped is None:
        return True
    return (mapped.by_source if of_source else mapped.by_target).nothing_between(one + 1, other)


def _range(records: list[ReportedRecord]) -> OffsetRange:
    first, last = records[0], records[-1]
    times = [one.timestamp_ms for one in records if one.timestamp_ms is not None]
    return OffsetRange(
        verdict=first.verdict,
        records=len(records),
        fields=first.fields,
        reason=first.reason,
        source_offsets=None if first.source is None or last.source is None else (first.source, last.source),
        target_offsets=None if first.target is None or last.target is None else (first.target, last.target),
        timestamps_ms=(min(times), max(times)) if times else None,
        key=first.key,
    )
