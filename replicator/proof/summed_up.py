"""Each partition's outcome, made of a comparison by the map and of what the map doesn't cover. Pure; used by `local`.

Conservation: where the map covers all of it, each record of either side has one verdict. Where the numbers don't add up
the log has changed between two reads, and that is said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from replicator.model.counting import counted
from replicator.offset_map.mapped import PartitionMap
from replicator.offset_map.verdicts import MapComparison
from replicator.proof import verdicts
from replicator.proof.coverage import AHEAD, OTHERS, Coverage, SideCount
from replicator.proof.local_findings import Reported, ReportedRecord, ranges_of
from replicator.proof.outcome import BUCKETS, OffsetRange, PartitionOutcome
from replicator.proof.pairs import Pair

RANGES_OF_VERDICT = 20
DOUBTS = {
    "displaced": "the offset map is doubted: {} stand elsewhere than it says",
    "unclaimed": "the offset map is doubted: of {} on the source it says nothing, though it has what is around them",
    "source_unknown": "the offset map is doubted: it has copies of {} that the source doesn't have",
}
CHANGED = "the log changed while it was read: {} records were counted and {} compared; run it again"
WHOLE = "the offset map is whole from source offset {} on, since {}"
CONTENT = "the offset map doesn't cover all of it: eos-replicate reconcile without --local compares contents"


def summed_up(
    pair: Pair,
    mapped: PartitionMap | None,
    found: MapComparison,
    said: Reported,
    coverage: Coverage,
    notes: Sequence[str] = (),
    provable: tuple[int, int] | None = None,
    *,
    whole: bool = True,
) -> PartitionOutcome:
    """Sum up one partition. `provable`: see `PartitionOutcome`; `whole`: whether `said` has all that was found."""
    totals: dict[str, int] = {verdicts.SAME: said.same}
    reasons: dict[str, int] = {}
    places: dict[str, list[int]] = {}
    for one in said.records:
        totals[one.verdict] = totals.get(one.verdict, 0) + 1
        places.setdefault(one.verdict, [0] * BUCKETS)[_bucket(pair, one)] += 1
        if one.verdict == verdicts.UNPROVEN:
            reasons[one.reason] = reasons.get(one.reason, 0) + 1
    all_ranges = list(ranges_of(said.records, mapped))
    for why, records, span in _untold(pair, coverage):
        totals[verdicts.UNPROVEN] = totals.get(verdicts.UNPROVEN, 0) + records
        reasons[why] = reasons.get(why, 0) + records
        all_ranges.append(span)
    all_ranges.sort(key=_place)
    notes = [*pair.notes, *notes, *_notes(found, said)]
    if any(one.source.records or one.target.records for one in coverage.uncovered):
        notes.append(CONTENT)
        notes += [WHOLE.format(provable[0], _utc(provable[1]))] if provable is not None else []
    source_records = coverage.source_records - sum(said.left_out.values())
    for counted_, compared in _compared(said, coverage, source_records) if whole else ():
        changed = CHANGED.format(counted_, compared)
        notes.append(changed)
        totals[verdicts.UNPROVEN] = totals.get(verdicts.UNPROVEN, 0) + abs(counted_ - compared)
        reasons[changed] = abs(counted_ - compared)
    return replace(
        outcome_of(pair, source_records, coverage.target_records, totals),
        reasons=reasons,
        places=places,
        ranges=_first_ones(all_ranges),
        ranges_found=_counts(all_ranges),
        notes=tuple(notes),
        provable=provable,
    )


def outcome_of(
    pair: Pair, source_records: int, target_records: int, found: Mapping[str, int], chunks: tuple[int, int] = (0, 0)
) -> PartitionOutcome:
    """Make an outcome with what the pair itself says, however it was compared. `found`: records by verdict; `chunks`:
    how many there are, and how many of them differ."""
    source_known = pair.count is not None and not pair.source_cut and not pair.source_compacted
    target_known = pair.count is not None and not pair.target_cut and not pair.target_compacted
    return PartitionOutcome(
        source=pair.source,
        target=pair.target,
        source_offsets=pair.source_range,
        target_offsets=pair.target_range,
        source_records=source_records,
        target_records=target_records,
        position_records=pair.count if source_known or target_known else None,
        position=pair.source_copied_end,
        lag=max(0, pair.source_log_end - pair.source_copied_end),
        source_counts_agree=not source_known or source_records == pair.count,
        target_counts_agree=not target_known or target_records == pair.count,
        chunks=chunks[0],
        chunks_differing=chunks[1],
        verdicts=found,
        signed_gaps=pair.signed_gaps,
        adopted=pair.adopted,
    )


def _untold(pair: Pair, coverage: Coverage) -> list[tuple[str, int, OffsetRange]]:
    """Return what nothing is said of but how many records there are: why, how many, where."""
    told = [(one.why, one.source, one.target) for one in coverage.uncovered]
    told += [(OTHERS, SideCount(), coverage.others), (AHEAD, SideCount(), coverage.ahead)]
    found = []
    for why, source, target in told:
        records = max(source.records, target.records)
        if records:
            times = [time for span in (source.times_ms, target.times_ms) if span is not None for time in span]
            span = OffsetRange(
                verdict=verdicts.UNPROVEN,
                records=records,
                reason=why,
                source_offsets=source.offsets,
                target_offsets=target.offsets,
                timestamps_ms=(min(times), max(times)) if times else None,
            )
            found.append((why, records, span))
    return found


def _notes(found: MapComparison, said: Reported) -> list[str]:
    notes = [
        DOUBTS[name].format(counted(records, "record")) for name, records in sorted(found.doubts.items()) if records
    ]
    notes += [f"{counted(records, 'record')} of the source {what}" for what, records in sorted(said.left_out.items())]
    return notes


def _compared(said: Reported, coverage: Coverage, source_records: int) -> list[tuple[int, int]]:
    """Return how many records of a side were counted, and how many have a verdict, where that differs."""
    if any(one.source.records or one.target.records for one in coverage.uncovered):
        return []
    of_source = said.same + sum(one.source is not None for one in said.records)
    of_target = said.same + sum(one.target is not None for one in said.records)
    of_target += coverage.others.records + coverage.ahead.records
    sides = ((source_records, of_source), (coverage.target_records, of_target))
    return [(counted_, compared) for counted_, compared in sides if counted_ != compared]


def _utc(time_ms: int) -> str:
    return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _bucket(pair: Pair, one: ReportedRecord) -> int:
    (first, end), offset = (
        (pair.source_range, one.source) if one.source is not None else (pair.target_range, one.target or 0)
    )
    return min(BUCKETS - 1, max(0, (offset - first) * BUCKETS // max(1, end - first)))


def _place(one: OffsetRange) -> tuple[bool, int]:
    span = one.source_offsets or one.target_offsets or (0, 0)
    return one.source_offsets is None, span[0]


def _first_ones(ranges: Sequence[OffsetRange]) -> tuple[OffsetRange, ...]:
    shown: dict[str, int] = {}
    found = []
    for one in ranges:
        shown[one.verdict] = shown.get(one.verdict, 0) + 1
        if shown[one.verdict] <= RANGES_OF_VERDICT:
            found.append(one)
    return tuple(found)


def _counts(ranges: Sequence[OffsetRange]) -> Mapping[str, int]:
    found: dict[str, int] = {}
    for one in ranges:
        found[one.verdict] = found.get(one.verdict, 0) + 1
    return found
