"""Each partition's outcome from all that was found of it.

Conservation: each record of either side is in an equal chunk, or has one verdict, or is known to have lost its copy to
retention. Where the numbers don't add up the log has changed between the two reads, and that is said.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pyspark.sql import DataFrame

from replicator.proof import verdicts
from replicator.proof.by_content.retention import RetainedPrefix
from replicator.proof.outcome import BUCKETS, DIFFERS, PartitionOutcome
from replicator.proof.pairs import Pair
from replicator.proof.summed_up import CHANGED, outcome_of
from replicator.spark.reconcile.opened_chunks import First, Firsts
from replicator.spark.reconcile.passes import ToOpen
from replicator.spark.reconcile.resolve import BY_RETENTION
from replicator.spark.reconcile.summed_up.found import Found, LeftOut, found

GUESSED = (
    "more records differ here in a row than are compared with one another at a time, and none of them says where to "
    "divide them: some that are called missing, extra or reordered may be neither"
)
PAIRED_BY_GUESS = (
    "several records here have their key, value or time in common: which of them were altered, and which are missing "
    "or extra, is partly a guess (findings.parquet has them as guessed)"
)


def all_summed_up(
    wanted: Sequence[ToOpen], findings: DataFrame | None, firsts: Firsts, removed: Mapping[Pair, RetainedPrefix]
) -> tuple[PartitionOutcome, ...]:
    """Say what became of each partition, with what a reader is shown of its findings.

    Args:
        wanted: what was opened of each partition.
        findings: all of them; None where nothing was opened.
        firsts: verdicts on the opened records, before anything was explained.
        removed: what retention explains, of partitions of which something was opened.
    """
    left = {item.pair.source: left_out(item, removed.get(item.pair)) for item in wanted}
    known = {} if findings is None else found(findings, [item.compared for item in wanted], left)
    return tuple(
        summed_up(item, firsts.get(at, {}), known.get(at, Found()), left[at])
        for at, item in {item.pair.source: item for item in wanted}.items()
    )


def summed_up(item: ToOpen, firsts: Mapping[str, First], known: Found, left: Sequence[LeftOut]) -> PartitionOutcome:
    """Say what became of one partition. Pure.

    Args:
        firsts: as of `all_summed_up`, by verdict.
        known: the findings, besides the records that are the same.
        left: records that nobody looked at.
    """
    pair, aligned = item.pair, item.aligned
    source, target = aligned.source.records, aligned.target.records
    same = aligned.matched_records + (firsts[verdicts.SAME].records if verdicts.SAME in firsts else 0)
    counts, why = known.counts, Counter(known.reasons)
    totals = Counter({name: count.records for name, count in counts.items()})
    places = {name: list(count.places) for name, count in counts.items()}
    for one in left:
        if one.reason:
            why[one.reason] += one.records
        totals[one.verdict] += one.records
        _add(places.setdefault(one.verdict, [0] * BUCKETS), one, max(1, source, target))
    closed_source, closed_target = _closed(item)
    if closed_source or closed_target:
        totals[DIFFERS] = max(closed_source, closed_target)
    notes = [*pair.notes, *_foreign(item), *([GUESSED] if any(gap.divided for gap in item.gaps) else [])]
    notes += [PAIRED_BY_GUESS] if any(count.guessed for count in counts.values()) else []
    of_source = same + item.left_out[0] + closed_source + sum(count.of_source for count in counts.values())
    of_target = same + item.left_out[1] + closed_target + sum(count.of_target for count in counts.values())
    for counted, compared in ((source, of_source), (target, of_target)):
        if counted != compared:
            changed = CHANGED.format(counted, compared)
            notes.append(changed)
            why[changed] += abs(counted - compared)
            totals[verdicts.UNPROVEN] += abs(counted - compared)
    differing = max(
        sum(gap.source[1] - gap.source[0] for gap in aligned.gaps),
        sum(gap.target[1] - gap.target[0] for gap in aligned.gaps),
    )
    chunks = max(len(aligned.source.chunks), len(aligned.target.chunks)), differing
    return replace(
        outcome_of(pair, source, target, {verdicts.SAME: same, **totals}, chunks),
        opened=_opened(item),
        reasons=why,
        places=places,
        ranges=known.ranges,
        ranges_found=known.ranges_found,
        notes=tuple(notes),
    )


def left_out(item: ToOpen, removed: RetainedPrefix | None) -> list[LeftOut]:
    """Return the records that nobody looked at, with what retention says of them."""
    proven = removed is None or removed.proven
    aligned = item.aligned
    sides = (
        (verdicts.EXPIRED, aligned.source, item.source_skipped, item.left_out[0]),
        (verdicts.NEVER_MINE, aligned.target, item.target_skipped, item.left_out[1]),
    )
    return [
        LeftOut(
            name if proven else verdicts.UNPROVEN,
            "" if proven else BY_RETENTION,
            of is aligned.source,
            records,
            end,
            (chunks[0].first_offset, chunks[-1].last_offset),
            (min(chunk.first_ms for chunk in chunks), max(chunk.last_ms for chunk in chunks)),
        )
        for name, of, end, records in sides
        if records
        for chunks in [of.chunks[: max(1, of.holding(end))]]
    ]


def _add(places: list[int], one: LeftOut, length: int) -> None:
    """Count these records where they lie. Of those that were found elsewhere only the number is known."""
    edges = [min(one.end, -(-bucket * length // BUCKETS)) for bucket in range(BUCKETS + 1)]
    elsewhere = one.end - one.records
    for bucket, (first, end) in reversed([*enumerate(itertools.pairwise(edges))]):
        fewer = min(elsewhere, end - first)
        elsewhere -= fewer
        places[bucket] += end - first - fewer


def _opened(item: ToOpen) -> int:
    """Count the records of both sides in the gaps that were opened."""
    source, target = item.aligned.source.ranks, item.aligned.target.ranks
    return sum(
        source[gap.source[1]] - source[gap.source[0]] + target[gap.target[1]] - target[gap.target[0]]
        for gap in item.gaps
    )


def _closed(item: ToOpen) -> tuple[int, int]:
    """Count the records of either side in gaps that were not opened, but for those that were left out."""
    aligned = item.aligned
    sides = []
    for of_source, skipped in ((True, item.source_skipped), (False, item.target_skipped)):
        ranks = (aligned.source if of_source else aligned.target).ranks
        all_, opened = (
            sum(ranks[end] - ranks[first] for first, end in (gap.source if of_source else gap.target for gap in gaps))
            for gaps in (aligned.gaps, item.gaps)
        )
        opened_first = next((gap.source[0] if of_source else gap.target[0] for gap in item.gaps), None)
        within = 0 if opened_first is None else max(0, skipped - ranks[opened_first])
        sides.append(max(0, all_ - (opened - within) - skipped))
    return sides[0], sides[1]


def _foreign(item: ToOpen) -> list[str]:
    chunks, covered = item.aligned.target.chunks, item.pair.covered_end
    last = chunks[-1].last_offset if chunks else -1
    return [] if last < covered else [f"records at target offsets {covered} to {last} were not written by this flow"]
