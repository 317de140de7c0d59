"""Reconciliation of one flow: both sides read by Spark's own reader, compared, and every difference named.

Alignment is by rank. With an exact offset map it could be by offset: `chunks.Stretch` is where that would come in.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from replicator.config import Flow
from replicator.spark.reconcile import resolve, summary, transforms, verdicts
from replicator.spark.reconcile.outcome import DIFFERS, Mode, Outcome, PartitionOutcome
from replicator.spark.reconcile.passes import Compared, Passes
from replicator.spark.reconcile.segments import OPENED_MAX
from replicator.spark.reconcile.snapshot import Pair, Snapshot

_SCHEMA = f"topic string, partition int, {transforms.FINDING}"
_UNSETTLED = (verdicts.MISSING, verdicts.EXTRA)
FEW_MAX = 250_000
"""Missing and extra records that are sent to every executor; with more, the records among which they are looked for
are shuffled."""
GUESSED = (
    f"more than {OPENED_MAX} records differ here or repeat each other, and no record of its own says where to divide "
    "them: some that are called missing, extra or reordered may be neither"
)
Say = Callable[[str], None]


def reconcile(spark: SparkSession, flow: Flow, snapshot: Snapshot, mode: Mode, say: Say) -> tuple[Outcome, DataFrame]:
    """Compares both sides of `snapshot`.

    Args:
        mode: quick: which chunks differ, not which records; only the heads of partitions that retention has cut are
            opened. full: which records, and how. deep: chunks with equal digests are compared too, field by field.
        say: told in a few words what begins.

    Returns:
        The outcome, and all findings besides the records that are the same (persisted until Spark stops).
    """
    passes = Passes(spark, flow, snapshot.pairs)
    say("reading both sides")
    compared = passes.digests()
    intervals = {item.pair: _to_open(item, mode) for item in compared}
    differ = [item for item in compared if intervals[item.pair]]
    notes: dict[Pair, str] = {}
    findings = None
    if differ:
        say(f"opening {sum(len(numbers) for item in differ for numbers in intervals[item.pair])} chunks")
        opened, guessed = passes.opened((item, intervals[item.pair]) for item in differ)
        notes = dict.fromkeys(guessed, GUESSED)
        findings = _resolved(passes, differ, opened.persist())
    if mode == "deep":
        say("comparing every field of every record")
        unequal = passes.unequal(compared)
        findings = unequal if findings is None else findings.unionByName(unequal) if unequal is not None else findings
    places, examples = {}, {}
    if findings is not None:
        findings = findings.persist()
        places, examples = summary.places(findings, compared), summary.examples(findings)
    partitions = tuple(
        replace(
            _outcome(item, intervals[item.pair], places.get(item.pair.source, {}), mode),
            places=places.get(item.pair.source, {}),
            examples=examples.get(item.pair.source, ()),
            notes=(*item.pair.notes, *_foreign(item), *([notes[item.pair]] if item.pair in notes else [])),
        )
        for item in compared
    )
    outcome = Outcome(
        flow=flow.name,
        source=flow.source.name,
        target=flow.target.name,
        mode=mode,
        snapshot_ms=snapshot.taken_ms,
        finished_ms=time.time_ns() // 1_000_000,
        partitions=partitions,
        waiting=snapshot.waiting,
        not_compared=snapshot.not_compared,
    )
    return outcome, spark.createDataFrame([], _SCHEMA) if findings is None else findings


def _to_open(item: Compared, mode: Mode) -> list[list[int]]:
    """Lists of chunks to be opened. In the quick pass only heads: else retention would look like a difference."""
    if mode != "quick":
        return item.differing.intervals
    if not (item.pair.source_cut or item.pair.target_cut):
        return []
    head_end = min(item.source.keys() & item.target.keys(), default=0)
    return [numbers for numbers in item.differing.intervals if numbers[0] <= head_end]


def _resolved(passes: Passes, differ: Sequence[Compared], opened: DataFrame) -> DataFrame:
    """The findings with missing and extra records looked for beyond their stretch."""
    unsettled = opened.where(F.col("verdict").isin(*_UNSETTLED))
    settled = opened.where(~F.col("verdict").isin(*_UNSETTLED, verdicts.SAME))
    firsts = summary.firsts(opened)
    open_questions = sum(
        first.records for found in firsts.values() for name, first in found.items() if name in _UNSETTLED
    )
    if not open_questions:
        return settled
    rows = [(*item.pair.source, *_place(item, firsts)) for item in differ]
    places = passes.spark.createDataFrame(rows, resolve.PLACES)
    found = resolve.moved(resolve.expired(unsettled, places))
    compacted = [
        item.pair
        for item in differ
        if (item.pair.target_compacted and verdicts.MISSING in firsts.get(item.pair.source, {}))
        or (item.pair.source_compacted and verdicts.EXTRA in firsts.get(item.pair.source, {}))
    ]
    grown = [item.pair for item in differ if verdicts.EXTRA in firsts.get(item.pair.source, {})]
    sides = (
        passes.named(dict.fromkeys([*compacted, *grown]), of_source=True),
        passes.named(compacted, of_source=False),
    )
    source, target = (None if side is None else transforms.by_field(side) for side in sides)
    if source is not None or target is not None:
        found = resolve.explained(found, places, source, target, few=open_questions <= FEW_MAX)
    return settled.unionByName(found)


def _place(item: Compared, firsts: summary.Firsts) -> tuple[int | None, int | None, bool, bool, bool, bool]:
    """A row of `resolve.PLACES`: the part that both sides have begins in an equal chunk, or in an opened one."""
    opened = {number for numbers in item.differing.intervals for number in numbers}
    known = [
        (item.source[number].first_rank, item.target[number].first_rank)
        for number in sorted(item.source.keys() & item.target.keys() - opened)
    ][:1]
    same = firsts.get(item.pair.source, {}).get(verdicts.SAME)
    if same is not None and same.source_rank is not None and same.target_rank is not None:
        known.append((same.source_rank, same.target_rank))
    source_rank, target_rank = min(known, default=(None, None))
    pair = item.pair
    cut = (pair.source_cut, pair.target_cut)
    return source_rank, target_rank, *cut, pair.source_compacted, pair.target_compacted


def _outcome(
    item: Compared, opened: Sequence[Sequence[int]], places: Mapping[str, Sequence[int]], mode: Mode
) -> PartitionOutcome:
    """One partition's row, without what only people look at. Counts agree where they can be compared."""
    pair, differing, unlike = item.pair, item.differing, item.unlike
    source_records = sum(chunk.records for chunk in item.source.values())
    target_records = sum(chunk.records for chunk in item.target.values())
    found = {name: sum(records) for name, records in places.items() if any(records)}
    for name, records in (
        (verdicts.EXPIRED, differing.expired_target),
        (verdicts.NEVER_MINE, differing.expired_source),
    ):
        if records:
            found[name] = found.get(name, 0) + records
    closed: set[int] = set()
    if mode == "quick":
        closed = unlike & {n for numbers in differing.intervals if numbers not in opened for n in numbers}
        differs = sum(max(0 if side is None else side.records for side in item.both(n)) for n in closed)
        if differs:
            found[DIFFERS] = differs
    source_only = (verdicts.MISSING, verdicts.ALTERED, verdicts.REORDERED, verdicts.EXPIRED, verdicts.COMPACTED)
    same = source_records - sum(found.get(name, 0) for name in source_only)
    same -= sum(item.source[n].records for n in closed if n in item.source)
    position = pair.count
    source_known = position is not None and not pair.source_cut and not pair.source_compacted
    target_known = position is not None and not pair.target_cut and not pair.target_compacted
    return PartitionOutcome(
        source=pair.source,
        target=pair.target,
        source_offsets=pair.source_range,
        target_offsets=pair.target_range,
        source_records=source_records,
        target_records=target_records,
        position_records=position if source_known or target_known else None,
        source_counts_agree=not source_known or source_records == position,
        target_counts_agree=not target_known or target_records == position,
        chunks=len(item.source.keys() | item.target.keys()),
        chunks_differing=len(unlike),
        verdicts={verdicts.SAME: same, **found},
    )


def _foreign(item: Compared) -> list[str]:
    last = max((chunk.last_offset for chunk in item.target.values()), default=-1)
    if last < item.pair.covered_end:
        return []
    return [f"records at target offsets {item.pair.covered_end} to {last} were not written by this flow"]
