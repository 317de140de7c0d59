"""What a repair needs of a reconciliation: spans of source offsets whose records are missing on the target."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from replicator.jobs.repair import RepairSummary
from replicator.jobs.repair_plan import PlannedPartition
from replicator.jobs.repair_spans import Damage, Missing, outside
from replicator.model.errors import Incident
from replicator.model.partition import Partition
from replicator.proof import verdicts
from replicator.proof.by_content.record_verdicts import FINDING
from replicator.proof.outcome import Outcome
from replicator.proof.pairs import Pair
from replicator.proof.repair_report import RepairFacts
from replicator.proof.snapshot import Snapshot
from replicator.spark.reconcile.summed_up.partitions import GUESSED, PAIRED_BY_GUESS

SPANS_MAX = 100_000
"""Spans that one repair takes: each may cost it a transaction, and all are held in memory."""
REFUSED = "which records are missing was partly guessed here (see the notes): copying them could double some"


def spans(findings: DataFrame, pairs: Iterable[Pair] = ()) -> dict[Partition, tuple[Missing, ...]]:
    """Return missing records by source partition, of those that were compared by content. Those that follow one another
    on the source are one span, without what operators have decided to leave out between them, as `pairs` say.

    Raises Incident when there are too many spans for one repair.
    """
    order = Window.partitionBy("topic", "partition").orderBy(FINDING.source_rank)
    rows = (
        findings.where((F.col(FINDING.verdict) == verdicts.MISSING) & F.isnotnull(FINDING.source_rank))
        .withColumn("island", F.col(FINDING.source_rank) - F.row_number().over(order))
        .groupBy("topic", "partition", "island")
        .agg(
            F.min(FINDING.source_offset).alias("first"),
            F.max(FINDING.source_offset).alias("last"),
            F.count("*").alias(FINDING.records),
            F.min(FINDING.other_after).alias("after"),
        )
        .orderBy("topic", "partition", "first")
        .limit(SPANS_MAX + 1)
        .collect()
    )
    if len(rows) > SPANS_MAX:
        raise Incident("repair_too_large", f"more than {SPANS_MAX} ranges of records are missing")
    found: dict[Partition, list[Missing]] = {}
    for row in rows:
        at = Partition(row["topic"], row["partition"])
        found.setdefault(at, []).append(Missing(row["first"], row["last"] + 1, row[FINDING.records], row["after"]))
    gaps = {pair.source: [(gap.first, gap.end) for gap in pair.signed_gaps] for pair in pairs}
    return {at: tuple(outside(items, gaps.get(at, ()))) for at, items in found.items()}


def damage(
    outcome: Outcome, snapshot: Snapshot, found: Mapping[Partition, tuple[Missing, ...]]
) -> dict[Partition, Damage]:
    """Return what a repair can copy again, by source partition: not where alignment was guessed, see `unsure`."""
    pairs, guessed = {pair.source: pair for pair in snapshot.pairs}, unsure(outcome)
    unproven = {one.source for one in outcome.partitions if one.unproven}
    return {at: _damage(pairs[at], items, unproven=at in unproven) for at, items in found.items() if at not in guessed}


def _damage(pair: Pair, missing: tuple[Missing, ...], *, unproven: bool) -> Damage:
    return Damage(
        missing,
        pair.source_range[1],
        pair.target_range[1],
        compacted=pair.target_compacted,
        source_origin=0 if pair.target_origin else pair.source_origin,
        unproven=unproven,
    )


def unsure(outcome: Outcome) -> set[Partition]:
    """Return the source partitions whose records may be called missing although they are not: copying them could
    double.
    """
    return {one.source for one in outcome.partitions if {GUESSED, PAIRED_BY_GUESS} & {*one.notes}}


def repair_facts(
    outcome: Outcome,
    found: Mapping[Partition, tuple[Missing, ...]],
    summary: RepairSummary | None,
    planned: Mapping[Partition, PlannedPartition],
) -> RepairFacts:
    """Return the plan, with what became of it when it was applied.

    Args:
        summary: of partitions that were compared by the map, too.
        planned: what a plan was told by both sides; empty when it was applied.
    """
    done = summary.of(found).partitions if summary is not None else {}
    return RepairFacts(
        missing={at: [(span.first, span.end, span.records) for span in spans] for at, spans in found.items()},
        asked=done or planned,
        generation=summary.generation if summary is not None else None,
        copied_before={at: one.done_before for at, one in done.items()},
        refused=dict.fromkeys(unsure(outcome), REFUSED),
    )
