"""Reconciliation of one flow: both sides read by Spark's own reader, compared, and every difference named.

What the flow's offset map covers is compared by that (`by_map`), whatever it doesn't cover by content:

1 read      chunks, cut by content                                            (cutting, passes)
2 align     equal chunks correspond; what lies between is a gap                             (alignment)
3 open      records of the gaps, compared one by one                          (opened_chunks, verdicts)
4 explain   what is there twice, was altered or has moved, what retention and compaction removed      (explain)
5 sum up    every record of both sides has exactly one verdict; findings as ranges        (summed_up)
6 show      some altered records side by side                                               (altered)
7 digest    the last block of each position, as the target has it                       (last_blocks)
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession

from replicator.config import Flow
from replicator.model.counting import counted
from replicator.proof import altered, verdicts
from replicator.proof.by_content.record_verdicts import ONLY_ALTERATIONS
from replicator.proof.by_content.retention import OneSided, RetainedPrefix, retained_prefix
from replicator.proof.last_blocks import look_at_last_blocks
from replicator.proof.outcome import ClusterFacts, Mode, Outcome, PartitionOutcome
from replicator.proof.pairs import Pair
from replicator.proof.snapshot import Snapshot, after_reading
from replicator.spark.reconcile import arrow, kafka, opened_chunks
from replicator.spark.reconcile.by_map.compare import ByMap, compare_by_map
from replicator.spark.reconcile.explain import explain
from replicator.spark.reconcile.opened_chunks import FOUND, Firsts
from replicator.spark.reconcile.passes import Compared, Passes, ToOpen
from replicator.spark.reconcile.summed_up.partitions import all_summed_up

PREFIX_TIMES, PREFIX_RECORDS = 2, 4_096
"""Where a log was cut at its beginning, so many times as many records as the other side has before the first common one
are compared with those, and so many more."""


class Say(Protocol):
    """Told in a few words which step begins, and how many offsets its tasks read, where that is known."""

    def __call__(self, step: str, offsets: int = 0, /) -> object:
        """Say that a step begins."""


@dataclass(frozen=True, slots=True)
class Reconciled:
    """The outcome; all findings besides the records that are the same, persisted until Spark stops; what was found by
    the offset map; and the `pairs` that were compared."""

    outcome: Outcome
    findings: DataFrame
    by_map: ByMap
    pairs: Sequence[Pair] = ()


def reconcile(
    spark: SparkSession,
    flow: Flow,
    snapshot: Snapshot,
    mode: Mode,
    say: Say,
    *,
    values: bool = True,
    for_repair: bool = False,
) -> Reconciled:
    """Compare both sides of `snapshot`.

    Args:
        mode: quick: which chunks differ, not which records; only the retained prefixes of partitions that retention
            has cut are opened. full: which records, and how. deep: as full, and records are told apart by 128 bits of
            digest.
        say: told in a few words what begins.
        values: whether the outcome may hold parts of the fields of altered records.
        for_repair: whether `by_map` is asked what a repair would copy.

    Raises as `compare_by_map`, and `look_at_last_blocks`.
    """
    mapped = compare_by_map(spark, flow, snapshot, mode, say, values=values, for_repair=for_repair)
    found = mapped.outcomes
    frames = [mapped.findings] if mapped.findings is not None else []
    pairs = [pair for pair in snapshot.pairs if pair.source in mapped.by_content]
    if pairs:
        by_content, findings = _by_content(spark, flow, pairs, mode, say, values=values)
        frames += [findings] if findings is not None else []
        for one in by_content:
            found[one.source] = replace(one, by_content=mapped.by_content[one.source])
    found, stopped = look_at_last_blocks(flow, snapshot.pairs, found, say)
    outcome = Outcome(
        flow=flow.name,
        source=ClusterFacts(flow.source.name, snapshot.cluster_ids[0], flow.source.bootstrap_servers),
        target=ClusterFacts(flow.target.name, snapshot.cluster_ids[1], flow.target.bootstrap_servers),
        mode=mode,
        snapshot_ms=snapshot.taken_ms,
        finished_ms=time.time_ns() // 1_000_000,
        partitions=tuple(found[pair.source] for pair in snapshot.pairs if pair.source in found),
        waiting=snapshot.waiting,
        not_compared=(*snapshot.not_compared, *mapped.stopped, *stopped),
        window=(snapshot.window.from_ms, snapshot.window.to_ms),
        spark_version=spark.version,
        values=values,
        notes=(*mapped.notes, *snapshot.notes),
    )
    kept = [frame.drop(*ONLY_ALTERATIONS) for frame in frames] or [arrow.frame(spark, (), FOUND)]
    both = kafka.union(kept)
    assert both is not None, "there is a frame"
    return Reconciled(outcome, both, mapped, snapshot.pairs)


def _by_content(
    spark: SparkSession, flow: Flow, pairs: Sequence[Pair], mode: Mode, say: Say, *, values: bool
) -> tuple[Sequence[PartitionOutcome], DataFrame | None]:
    """Compare pairs by what their records hold; findings are None where nothing was opened."""
    passes = Passes(spark, flow, pairs, deep=mode == "deep")
    offsets = sum(end - first for pair in pairs for first, end in (pair.source_range, pair.target_range))
    say("comparing both sides by content", offsets)
    aligned = passes.aligned()
    compared = [Compared(pair, found) for pair, found in zip(after_reading(flow, pairs), aligned, strict=True)]
    wanted = {item.pair.source: _to_open(item, mode) for item in compared}
    differ = [item for item in wanted.values() if item.gaps]
    firsts: Firsts = {}
    removed: dict[Pair, RetainedPrefix] = {}
    findings = None
    if differ:
        ranges = sum(len(item.gaps) for item in differ)
        say(f"opening {counted(ranges, 'range that differs', 'ranges that differ')}")
        opened = passes.opened(differ).persist()
        firsts = opened_chunks.firsts(opened)
        # Asked once more: what went before a gap was opened was not seen there.
        now = after_reading(flow, [item.pair for item in differ])
        done, findings, removed = explain(flow, passes, differ, opened, firsts, {pair.source: pair for pair in now})
        wanted |= {item.pair.source: item for item in done}
    if findings is not None:
        say("summing up what was found")
    partitions = all_summed_up(list(wanted.values()), findings, firsts, removed)
    if values and any(verdicts.ALTERED in partition.verdicts for partition in partitions):
        say("reading some of the altered records again")
        partitions = altered.with_fields(flow, {pair.source: pair for pair in pairs}, partitions)
    return partitions, findings


def _to_open(item: Compared, mode: Mode) -> ToOpen:
    """Decide what to look at of one pair. In the quick pass only retained prefixes: else retention would look like a
    difference."""
    aligned, pair = item.aligned, item.pair
    cut = pair.source_cut or pair.target_cut
    skipped = _skipped(item) if cut else (0, 0)
    gaps = aligned.gaps
    if cut:
        first, target_first = aligned.source.holding(skipped[0]), aligned.target.holding(skipped[1])
        gaps = [
            gap._replace(source=_from(gap.source, first), target=_from(gap.target, target_first))
            for gap in gaps
            if gap.source[1] > first or gap.target[1] > target_first
        ]
    if mode == "quick":
        gaps = [gap for gap in gaps if cut and gap.source[1] <= aligned.prefix_end[0]]
    # What retention takes, and what a cleaner takes of equal records, are the earlier ones.
    return ToOpen(item, gaps, *skipped, from_end=cut or pair.source_compacted or pair.target_compacted)


def _from(numbers: tuple[int, int], first: int) -> tuple[int, int]:
    return min(max(numbers[0], first), numbers[1]), numbers[1]


def _skipped(item: Compared) -> tuple[int, int]:
    """Say below which ranks of either side the copies of records need not be looked for: retention has removed them, or
    may have, and the other side has too few records before the first common one that could be theirs."""
    source_end = item.aligned.source.ranks[item.aligned.prefix_end[0]]
    target_end = item.aligned.target.ranks[item.aligned.prefix_end[1]]
    # At most the smaller number of records can be in both prefixes.
    at_least = OneSided(max(0, source_end - target_end), max(0, target_end - source_end))
    removed = retained_prefix(item.pair, item.aligned.source.records, at_least)
    return (
        min(removed.source, max(0, source_end - PREFIX_TIMES * target_end - PREFIX_RECORDS)),
        min(removed.target, max(0, target_end - PREFIX_TIMES * source_end - PREFIX_RECORDS)),
    )
