"""From the verdicts on opened records to the findings: what explains each record that the two sides don't have alike.

Called by `reconcile`, once. The steps, in this order; each takes the findings and gives them with more of them settled:

1 expired_originals   what a repair copied again, and whose original the source has lost since          (resolve)
2 looked_up           records that were left out, where the other side has too many of their kind       (left_out)
3 doubled, altered    extra records that the source has, too; two that are one record that was altered  (resolve,
                      only where neither has an equal on the other side                                 alterations)
4 moved               missing in one place, and extra or doubled in another                             (resolve)
5 expired             what retention took, by the numbers of what is left of both sides                 (retention)
6 explained, settled  what compaction took, proven by the log                                  (compaction_proof)
7 removed_meanwhile   what retention may have taken while both sides were read                          (resolve)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from replicator.config import Flow
from replicator.model.partition import Partition
from replicator.proof import verdicts
from replicator.proof.by_content.record_verdicts import FINDING, ONLY_ALTERATIONS
from replicator.proof.by_content.retention import OneSided, RetainedPrefix, retained_prefix
from replicator.proof.pairs import Pair
from replicator.spark.reconcile import arrow, compaction_proof, left_out, opened_chunks, resolve
from replicator.spark.reconcile.opened_chunks import Firsts
from replicator.spark.reconcile.passes import Passes, ToOpen
from replicator.spark.reconcile.resolve import KNOWN, PartitionFacts

_ONE_SIDED = (verdicts.MISSING, verdicts.EXTRA, verdicts.DOUBLED)
ON_DRIVER_MAX = 20_000
"""Findings that the driver keeps: what explains them then takes one small stage a step, where each of some thirty
shuffles of a few rows would cost more than the rows."""
FEW_MAX = 250_000
"""Missing and extra records that are sent to every executor; with more, the records among which they are looked for
are shuffled."""
Keep = Callable[[DataFrame], DataFrame]
"""Has a frame that is used more than once computed once."""


def explain(
    flow: Flow,
    passes: Passes,
    differ: Sequence[ToOpen],
    opened: DataFrame,
    firsts: Firsts,
    now: Mapping[Partition, Pair],
) -> tuple[list[ToOpen], DataFrame, dict[Pair, RetainedPrefix]]:
    """Return what was opened, as `left_out` completes it, the findings with missing and extra records looked for beyond
    their gap, and what retention explains. `now`: the pairs with the beginnings of their logs after the last read."""
    differing = opened.where(F.col(FINDING.verdict) != verdicts.SAME)
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
    common = {item.pair: _first_common(item, firsts) for item in differ}
    one_sided = F.col(FINDING.verdict).isin(*_ONE_SIDED)
    settled, found = differing.where(~one_sided), keep(resolve.moved(differing.where(one_sided)))
    numbers = _one_sided(passes.spark, opened_now, common, settled.unionByName(found), firsts)
    removed = {
        item.pair: retained_prefix(item.pair, item.aligned.source.records, numbers.get(item.pair.source, OneSided()))
        for item in differ
    }
    if not open_questions:
        return opened_now, keep(_shown(differing)), removed
    rows = [_place(now[item.pair.source], item, common, removed) for item in opened_now]
    places = arrow.frame(passes.spark, rows, resolve.PLACES)
    found = resolve.expired(found, places)
    found = _compacted(flow, passes, [item.pair for item in differ], found, places, firsts, keep, few=few)
    found = resolve.removed_meanwhile(settled.unionByName(found), places)
    return opened_now, keep(_shown(found)), removed


def _compacted(
    flow: Flow,
    passes: Passes,
    pairs: Sequence[Pair],
    found: DataFrame,
    places: DataFrame,
    firsts: Firsts,
    keep: Keep,
    *,
    few: bool,
) -> DataFrame:
    """Return the findings with what compaction explains, proven by the logs of compacted topics."""
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
    moved = found.where(F.col(FINDING.verdict) == verdicts.REORDERED).select("topic", "partition").distinct().collect()
    reordered = {at for at, kinds in firsts.items() if verdicts.REORDERED in kinds}
    return compaction_proof.settled(found, flow, compacted, reordered | {Partition(*row) for row in moved}, few=few)


def _shown(findings: DataFrame) -> DataFrame:
    """Return the findings without what nobody asks any more once altered records are known."""
    return findings.drop(*ONLY_ALTERATIONS)


def _alterations(
    passes: Passes, differ: Sequence[ToOpen], differing: DataFrame, firsts: Firsts, keep: Keep, *, few: bool
) -> DataFrame:
    """Return the findings with extra records that the source has named as doubled, and missing and extra records that
    are one altered record as one finding: only where neither has an equal on the other side."""
    grown = [item.pair for item in differ if verdicts.EXTRA in firsts.get(item.pair.source, {})]
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
        together = F.when(F.col("large"), F.col(FINDING.place)).otherwise(F.lit(-1))
        paired = opened_chunks.altered(marked.where("alone").withColumn("together", together))
        differing = marked.where(~F.col("alone")).select(differing.columns).unionByName(paired)
    return keep(differing)


def _first_common(item: ToOpen, firsts: Firsts) -> tuple[int, int] | None:
    """Return the ranks of the first record that both sides have, in an equal chunk or in an opened one."""
    aligned = item.aligned
    known = []
    here, there = aligned.prefix_end
    if here < len(aligned.source.chunks) and there < len(aligned.target.chunks):
        known.append((aligned.source.ranks[here], aligned.target.ranks[there]))
    same = firsts.get(item.pair.source, {}).get(verdicts.SAME)
    if same is not None and same.source_rank is not None and same.target_rank is not None:
        known.append((same.source_rank, same.target_rank))
    return min(known, default=None)


def _one_sided(
    spark: SparkSession,
    differ: Sequence[ToOpen],
    common: Mapping[Pair, tuple[int, int] | None],
    found: DataFrame,
    firsts: Firsts,
) -> dict[Partition, OneSided]:
    """Return what only one side has of partitions whose logs were cut at their beginning. A record that stands
    elsewhere on the other side is none of it, wherever the two stand. `found`: all findings after `resolve.moved`."""
    cut = [item for item in differ if item.pair.source_cut or item.pair.target_cut]
    numbers = {item.pair.source: OneSided(*item.left_out) for item in cut}
    asked: list[tuple[object, ...]] = [
        (*item.pair.source, *(common[item.pair] or (None, None)))
        for item in cut
        if firsts.get(item.pair.source, {}).keys() & {*_ONE_SIDED}
    ]
    if not asked:
        return numbers
    again = F.col(FINDING.verdict) == verdicts.NEVER_MINE
    common_ranks = arrow.columns(PartitionFacts, KNOWN.common_source, KNOWN.common_target)
    ranks = F.broadcast(arrow.frame(spark, asked, f"topic string, partition int, {common_ranks}"))
    asked_of = found.where(F.col(FINDING.verdict).isin(*_ONE_SIDED, verdicts.NEVER_MINE)).join(
        ranks, ["topic", "partition"]
    )
    counts = asked_of.groupBy("topic", "partition").agg(
        F.count_if(resolve.before(FINDING.source_rank, KNOWN.common_source)).alias("source"),
        F.count_if(resolve.before(FINDING.target_rank, KNOWN.common_target) & ~again).alias("target"),
        F.count_if(F.col(FINDING.source_rank) >= F.col(KNOWN.common_source)).alias("missing"),
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
    pair: Pair, item: ToOpen, common: Mapping[Pair, tuple[int, int] | None], removed: Mapping[Pair, RetainedPrefix]
) -> tuple[object, ...]:
    """Make a row of `resolve.PLACES`. Of the records that retention explains, those that were left out are the first.

    Args:
        pair: with the beginnings of its logs after the last read.
    """
    known = item.pair
    gone = [
        start if start > first else 0
        for start, first in ((pair.source_start, pair.source_range[0]), (pair.target_start, pair.target_range[0]))
    ]
    prefix = removed[known]
    ranks = common[known] or (None, None)
    facts = PartitionFacts(
        common_source=ranks[0],
        common_target=ranks[1],
        expired_source=prefix.source - item.left_out[0],
        expired_target=prefix.target - item.left_out[1],
        proven=prefix.proven,
        source_compacted=pair.source_compacted,
        target_compacted=pair.target_compacted,
        source_copied_end=pair.source_copied_end,
        source_gone=gone[0],
        target_gone=gone[1],
    )
    return (*pair.source, *facts)
