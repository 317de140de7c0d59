"""Reconciliation of one flow: both sides read by Spark's own reader, compared, and every difference named.

1 read      whole partitions; of those that differ, chunks cut by content     (whole_partitions, cutting, passes)
2 align     equal chunks correspond; what lies between is a gap                             (alignment)
3 open      records of the gaps, compared one by one                          (opened_chunks, verdicts)
4 explain   what is there twice, what was altered    (resolve, alterations); what retention and compaction removed, and
            what moved                                                                      (retention, resolve)
5 count     every record of both sides has exactly one verdict                              (outcomes)
6 show      findings as ranges, altered records side by side                                (summary, altered)
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from replicator.config import Flow
from replicator.model.counting import counted
from replicator.model.partition import Partition
from replicator.spark.reconcile import (
    altered,
    arrow,
    evidence,
    left_out,
    opened_chunks,
    outcomes,
    resolve,
    summary,
    transforms,
    verdicts,
)
from replicator.spark.reconcile.opened_chunks import FOUND
from replicator.spark.reconcile.outcome import ClusterFacts, Mode, Outcome, PartitionOutcome
from replicator.spark.reconcile.pairs import Pair
from replicator.spark.reconcile.passes import Compared, Passes, ToOpen
from replicator.spark.reconcile.retention import Heads, OneSided, heads
from replicator.spark.reconcile.snapshot import Snapshot, after_reading

_ONE_SIDED = (verdicts.MISSING, verdicts.EXTRA, verdicts.DOUBLED)
ON_DRIVER_MAX = 20_000
"""Findings that the driver keeps: what explains them then takes one small stage a step, where each of some thirty
shuffles of a few rows would cost more than the rows."""
FEW_MAX = 250_000
"""Missing and extra records that are sent to every executor; with more, the records among which they are looked for
are shuffled."""
HEAD_TIMES, HEAD_RECORDS = 2, 4_096
"""Where a head was cut, so many times as many records as the other side has before the first common one are compared
with those, and so many more."""


Keep = Callable[[DataFrame], DataFrame]
"""Has a frame that is used more than once computed once."""


class Say(Protocol):
    """Told in a few words which step begins, and how many offsets its tasks read, where that is known."""

    def __call__(self, step: str, offsets: int = 0, /) -> object:
        """A step begins."""


def reconcile(
    spark: SparkSession, flow: Flow, snapshot: Snapshot, mode: Mode, say: Say, *, values: bool = True
) -> tuple[Outcome, DataFrame]:
    """Compares both sides of `snapshot`.

    Args:
        mode: quick: which chunks differ, not which records; only the heads of partitions that retention has cut are
            opened. full: which records, and how. deep: as full, and records are told apart by 128 bits of digest.
        say: told in a few words what begins.
        values: whether the outcome may hold parts of the fields of altered records.

    Returns:
        The outcome, and all findings besides the records that are the same (persisted until Spark stops).
    """
    passes = Passes(spark, flow, snapshot.pairs, deep=mode == "deep")
    offsets = iter([_offsets_of_first_read(snapshot.pairs)])
    aligned = passes.digests(lambda step: say(step, next(offsets, 0)))
    pairs = after_reading(flow, snapshot.pairs)
    compared = [Compared(pair, found) for pair, found in zip(pairs, aligned, strict=True)]
    wanted = {item.pair.source: _to_open(item, mode) for item in compared}
    differ = [item for item in wanted.values() if item.gaps]
    firsts: summary.Firsts = {}
    removed: dict[Pair, Heads] = {}
    findings = None
    if differ:
        stretches = sum(len(item.gaps) for item in differ)
        say(f"opening {counted(stretches, 'stretch that differs', 'stretches that differ')}")
        opened = passes.opened(differ).persist()
        firsts = summary.firsts(opened)
        # Asked once more: what went before a gap was opened was not seen there.
        now = after_reading(flow, [item.compared.pair for item in differ])
        done, findings, removed = _resolved(flow, passes, differ, opened, firsts, {pair.source: pair for pair in now})
        wanted |= {item.compared.pair.source: item for item in done}
    partitions = _summed(spark, flow, list(wanted.values()), findings, firsts, removed, say, values=values)
    outcome = Outcome(
        flow=flow.name,
        source=ClusterFacts(flow.source.name, snapshot.cluster_ids[0], flow.source.bootstrap_servers),
        target=ClusterFacts(flow.target.name, snapshot.cluster_ids[1], flow.target.bootstrap_servers),
        mode=mode,
        snapshot_ms=snapshot.taken_ms,
        finished_ms=time.time_ns() // 1_000_000,
        partitions=partitions,
        waiting=snapshot.waiting,
        not_compared=snapshot.not_compared,
        window=(snapshot.window.from_ms, snapshot.window.to_ms),
        spark_version=spark.version,
        values=values,
    )
    return outcome, arrow.frame(spark, (), FOUND) if findings is None else findings


def _offsets_of_first_read(pairs: Sequence[Pair]) -> int:
    """Offsets of both sides that the first read passes: of partitions that were neither cut nor compacted, if there are
    any. What must be read again is another stage, whose offsets aren't known before."""
    whole = [
        pair
        for pair in pairs
        if not (pair.source_cut or pair.target_cut or pair.source_compacted or pair.target_compacted)
    ]
    return sum(end - first for pair in whole or pairs for first, end in (pair.source_range, pair.target_range))


def _summed(
    spark: SparkSession,
    flow: Flow,
    wanted: Sequence[ToOpen],
    findings: DataFrame | None,
    firsts: summary.Firsts,
    removed: Mapping[Pair, Heads],
    say: Say,
    *,
    values: bool,
) -> tuple[PartitionOutcome, ...]:
    """What became of each partition, with what a reader is shown of its findings."""
    counts: summary.Counts = {}
    ranges: dict[Partition, summary.Ranges] = {}
    reasons: dict[Partition, dict[str, int]] = {}
    if findings is not None:
        say("summing up what was found")
        compared = [item.compared for item in wanted]
        left = {item.compared.pair.source: outcomes.left_out(item, removed.get(item.compared.pair)) for item in wanted}
        counts, ranges = summary.counts(findings, compared), summary.ranges(findings, left)
        found = {name for of_partition in counts.values() for name in of_partition}
        if verdicts.UNPROVEN in found:
            reasons = summary.reasons(findings)
        if verdicts.ALTERED in found and values:
            say("reading some of the altered records again")
            ranges = altered.with_fields(spark, flow, [item.pair for item in compared], ranges)
    return tuple(
        outcomes.partition_outcome(
            item,
            firsts.get(at, {}),
            counts.get(at, {}),
            ranges.get(at, summary.Ranges((), {})),
            reasons.get(at, {}),
            removed.get(item.compared.pair),
        )
        for item in wanted
        for at in [item.compared.pair.source]
    )


def _to_open(item: Compared, mode: Mode) -> ToOpen:
    """What to look at of one pair. In the quick pass only heads: else retention would look like a difference."""
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
        gaps = [gap for gap in gaps if cut and gap.source[1] <= aligned.head_end[0]]
    # What goes from the head, and what a cleaner takes of equal records, are the earlier ones.
    return ToOpen(item, gaps, *skipped, from_end=cut or pair.source_compacted or pair.target_compacted)


def _from(numbers: tuple[int, int], first: int) -> tuple[int, int]:
    return min(max(numbers[0], first), numbers[1]), numbers[1]


def _skipped(item: Compared) -> tuple[int, int]:
    """Below which ranks of either side the copies of records need not be looked for: retention has removed them, or may
    have, and the other side has too few records before the first common one that could be theirs."""
    source_end = item.aligned.source.ranks[item.aligned.head_end[0]]
    target_end = item.aligned.target.ranks[item.aligned.head_end[1]]
    # At most the smaller number of records can be in both heads.
    at_least = OneSided(max(0, source_end - target_end), max(0, target_end - source_end))
    removed = heads(item.pair, item.aligned.source.records, at_least)
    return (
        min(removed.source, max(0, source_end - HEAD_TIMES * target_end - HEAD_RECORDS)),
        min(removed.target, max(0, target_end - HEAD_TIMES * source_end - HEAD_RECORDS)),
    )


def _resolved(
    flow: Flow,
    passes: Passes,
    differ: Sequence[ToOpen],
    opened: DataFrame,
    firsts: summary.Firsts,
    now: Mapping[Partition, Pair],
) -> tuple[list[ToOpen], DataFrame, dict[Pair, Heads]]:
    """What was opened, as `left_out` completes it, the findings with missing and extra records looked for beyond their
    gap, and what retention explains. `now`: the pairs with the beginnings of their logs after the last read."""
    differing = opened.where(F.col("verdict") != verdicts.SAME)
    found_of = Counter[str]()
    for of_partition in firsts.values():
        found_of.update({name: first.records for name, first in of_partition.items() if name != verdicts.SAME})
    open_questions = sum(found_of[name] for name in _ONE_SIDED)
    few = open_questions <= FEW_MAX
    keep = arrow.on_driver if found_of.total() <= ON_DRIVER_MAX else DataFrame.persist
    differing = keep(differing)
    again = {at: (pair.copied_again, pair.source_start) for at, pair in now.items()}
    differing = resolve.expired_originals(differing, again)
    opened_now, differing = left_out.looked_up(passes, differ, differing, firsts)
    differing = _alterations(passes, differ, differing, firsts, keep, few=few)
    common = {item.compared.pair: _first_common(item, firsts) for item in differ}
    one_sided = F.col("verdict").isin(*_ONE_SIDED)
    settled, found = differing.where(~one_sided), keep(resolve.moved(differing.where(one_sided)))
    numbers = _one_sided(passes.spark, opened_now, common, settled.unionByName(found), firsts)
    removed = {
        pair: heads(pair, item.compared.aligned.source.records, numbers.get(pair.source, OneSided()))
        for item in differ
        for pair in [item.compared.pair]
    }
    if not open_questions:
        return opened_now, keep(_shown(differing)), removed
    rows = [_place(now[item.compared.pair.source], item, common, removed) for item in opened_now]
    places = arrow.frame(passes.spark, rows, resolve.PLACES)
    found = resolve.expired(found, places)
    found = _compacted(flow, passes, [item.compared.pair for item in differ], found, places, firsts, keep, few=few)
    found = resolve.removed_meanwhile(settled.unionByName(found), places)
    return opened_now, keep(_shown(found)), removed


def _compacted(
    flow: Flow,
    passes: Passes,
    pairs: Sequence[Pair],
    found: DataFrame,
    places: DataFrame,
    firsts: summary.Firsts,
    keep: Keep,
    *,
    few: bool,
) -> DataFrame:
    """The findings with what compaction explains, proven by the logs of compacted topics."""
    compacted = [
        pair
        for pair in pairs
        if (pair.target_compacted and verdicts.MISSING in firsts.get(pair.source, {}))
        or (pair.source_compacted and firsts.get(pair.source, {}).keys() & {verdicts.EXTRA, verdicts.DOUBLED})
    ]
    source = passes.named(compacted, of_source=True)
    target = passes.named(compacted, of_source=False)
    if source is not None or target is not None:
        found = resolve.explained(found, places, source, target, few=few)
    if not compacted:
        return found
    found = keep(found)
    moved = found.where(F.col("verdict") == verdicts.REORDERED).select("topic", "partition").distinct().collect()
    reordered = {at for at, kinds in firsts.items() if verdicts.REORDERED in kinds}
    return evidence.settled(found, flow, compacted, reordered | {Partition(*row) for row in moved}, few=few)


def _shown(findings: DataFrame) -> DataFrame:
    """Without what nobody asks any more once altered records are known."""
    return findings.drop(*transforms.ONLY_ALTERATIONS)


def _alterations(
    passes: Passes, differ: Sequence[ToOpen], differing: DataFrame, firsts: summary.Firsts, keep: Keep, *, few: bool
) -> DataFrame:
    """The findings with extra records that the source has named as doubled, and missing and extra records that are one
    altered record as one finding: only where neither has an equal on the other side."""
    grown = [item.compared.pair for item in differ if verdicts.EXTRA in firsts.get(item.compared.pair.source, {})]
    source = passes.named(grown, of_source=True)
    if source is not None:
        differing = resolve.doubled(differing, source, few=few)
    both = [
        (*pair.source, sum(records) > FEW_MAX)
        for pair in grown
        if verdicts.MISSING in firsts[pair.source]
        for records in [[firsts[pair.source][name].records for name in (verdicts.MISSING, verdicts.EXTRA)]]
    ]
    if both:
        asked = F.broadcast(arrow.frame(passes.spark, both, "topic string, partition int, large boolean"))
        marked = keep(
            differing.join(asked, ["topic", "partition"], "left").withColumn(
                "alone", F.isnotnull("large") & resolve.alone()
            )
        )
        together = F.when(F.col("large"), F.col("place")).otherwise(F.lit(-1))
        paired = opened_chunks.altered(marked.where("alone").withColumn("together", together))
        differing = marked.where(~F.col("alone")).select(differing.columns).unionByName(paired)
    return keep(differing)


def _first_common(item: ToOpen, firsts: summary.Firsts) -> tuple[int, int] | None:
    """Ranks of the first record that both sides have, in an equal chunk or in an opened one."""
    aligned = item.compared.aligned
    known = []
    here, there = aligned.head_end
    if here < len(aligned.source.chunks) and there < len(aligned.target.chunks):
        known.append((aligned.source.ranks[here], aligned.target.ranks[there]))
    same = firsts.get(item.compared.pair.source, {}).get(verdicts.SAME)
    if same is not None and same.source_rank is not None and same.target_rank is not None:
        known.append((same.source_rank, same.target_rank))
    return min(known, default=None)


def _one_sided(
    spark: SparkSession,
    differ: Sequence[ToOpen],
    common: Mapping[Pair, tuple[int, int] | None],
    found: DataFrame,
    firsts: summary.Firsts,
) -> dict[Partition, OneSided]:
    """What only one side has of partitions whose heads were cut. A record that stands elsewhere on the other side is
    none of it, wherever the two stand. `found`: all findings after `resolve.moved`."""
    cut = [item for item in differ if item.compared.pair.source_cut or item.compared.pair.target_cut]
    numbers = {item.compared.pair.source: OneSided(*item.left_out) for item in cut}
    asked: list[tuple[object, ...]] = [
        (*pair.source, *(common[pair] or (None, None)))
        for item in cut
        for pair in [item.compared.pair]
        if firsts.get(pair.source, {}).keys() & {*_ONE_SIDED}
    ]
    if not asked:
        return numbers
    again = F.col("verdict") == verdicts.NEVER_MINE
    ranks = F.broadcast(arrow.frame(spark, asked, "topic string, partition int, head_source long, head_target long"))
    asked_of = found.where(F.col("verdict").isin(*_ONE_SIDED, verdicts.NEVER_MINE)).join(ranks, ["topic", "partition"])
    counts = asked_of.groupBy("topic", "partition").agg(
        F.count_if(resolve.before("source_rank", "head_source")).alias("source"),
        F.count_if(resolve.before("target_rank", "head_target") & ~again).alias("target"),
        F.count_if(F.col("source_rank") >= F.col("head_source")).alias("missing"),
        F.count_if(again).alias("copied_again"),
    )
    for row in counts.collect():
        at = Partition(row["topic"], row["partition"])
        skipped = numbers[at]
        numbers[at] = OneSided(
            skipped.source + row["source"], skipped.target + row["target"], row["missing"], row["copied_again"]
        )
    return numbers


def _place(
    pair: Pair, item: ToOpen, common: Mapping[Pair, tuple[int, int] | None], removed: Mapping[Pair, Heads]
) -> tuple[object, ...]:
    """A row of `resolve.PLACES`. Of the records that retention explains, those that were left out are the first.

    Args:
        pair: with the beginnings of its logs after the last read.
    """
    known = item.compared.pair
    gone = [
        start if start > first else 0
        for start, first in ((pair.source_start, pair.source_range[0]), (pair.target_start, pair.target_range[0]))
    ]
    heads_ = removed[known]
    return (
        *pair.source,
        *(common[known] or (None, None)),
        heads_.source - item.left_out[0],
        heads_.target - item.left_out[1],
        heads_.proven,
        pair.source_compacted,
        pair.target_compacted,
        pair.source_copied_end,
        *gone,
    )
