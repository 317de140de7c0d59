"""What a look beyond the opened chunks says about missing and extra records. Pure DataFrame functions, at any scale.

Removed by retention: it stands before the first record that both sides have, and that side's log was cut. Moved far:
missing in one place and extra in another. Compacted: that side's topic is compacted, and a later record of the key
exists; or it is a tombstone, and nothing older of the key is left there (a cleaner removes that first). Doubled: the
source has an equal record anywhere in the compared range.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from replicator.spark.reconcile import verdicts
from replicator.spark.reconcile.transforms import PARTITION

PLACES = (
    "topic string, partition int, head_source long, head_target long, source_cut boolean, target_cut boolean, "
    "source_compacted boolean, target_compacted boolean"
)
"""What is known of a partition: ranks of the first record that both sides have (null: none), whose log was cut, and
whose topic is compacted."""
_FIRST = ("records", "fields", "timestamp_ms", "digest", "key_hash", "tombstone", "key")


def expired(findings: DataFrame, places: DataFrame) -> DataFrame:
    """Names what retention explains.

    Args:
        findings: missing and extra records.
        places: schema PLACES, one row for each partition.
    """
    found = findings.join(F.broadcast(places), list(PARTITION))
    removed_there = _missing() & F.col("target_cut") & _before("source_rank", "head_source")
    removed_here = _extra() & F.col("source_cut") & _before("target_rank", "head_target")
    verdict = (
        F.when(removed_there, F.lit(verdicts.EXPIRED))
        .when(removed_here, F.lit(verdicts.NEVER_MINE))
        .otherwise(F.col("verdict"))
    )
    return found.withColumn("verdict", verdict).select(findings.columns)


def moved(findings: DataFrame) -> DataFrame:
    """Makes one finding of a missing and an extra record of one partition with one digest; as many as there are."""
    place = F.coalesce("source_rank", "target_rank")
    before = (
        Window.partitionBy(*PARTITION, "digest").orderBy(place, "verdict").rowsBetween(Window.unboundedPreceding, 0)
    )
    nth = F.when(_missing(), F.count_if(_missing()).over(before)).when(_extra(), F.count_if(_extra()).over(before))
    # Others are numbered from -1 down, so that each stays alone.
    other = -F.count_if(~(_missing() | _extra())).over(before)
    sides = ("source_offset", "target_offset", "source_rank", "target_rank")
    return (
        findings.withColumn("nth", F.coalesce(nth, other))
        .groupBy(*PARTITION, "digest", "nth")
        .agg(
            F.when(F.count(F.lit(1)) == 2, F.lit(verdicts.REORDERED)).otherwise(F.min("verdict")).alias("verdict"),
            *(F.first(name, ignorenulls=True).alias(name) for name in _FIRST if name != "digest"),
            *(F.max(name).alias(name) for name in sides),
        )
        .select(findings.columns)
    )


def explained(
    findings: DataFrame, places: DataFrame, source: DataFrame | None, target: DataFrame | None, *, few: bool = False
) -> DataFrame:
    """Names what compaction explains, and which extra records the source has too.

    Args:
        places: schema PLACES, one row for each partition.
        source, target: records of the partitions where it may matter, with `topic`, `partition` (the source's),
            `offset`, `digest`, `key_hash`; None: it matters nowhere.
        few: the findings fit into every executor's memory; then no record of a side is shuffled.
    """
    small = F.broadcast if few else _as_it_is
    found = findings.join(F.broadcast(places), list(PARTITION))
    keys = found.where(_open_question() & F.isnotnull("key_hash")).select(*PARTITION, "key_hash")
    for side, records in (("source", source), ("target", target)):
        name = f"{side}_last"
        if records is None:
            found = found.withColumn(name, F.lit(None).cast("long"))
            continue
        last = records.join(small(keys), [*PARTITION, "key_hash"], "left_semi").groupBy(*PARTITION, "key_hash")
        found = found.join(last.agg(F.max("offset").alias(name)), [*PARTITION, "key_hash"], "left")
    copy = F.lit(False)
    if source is not None:
        wanted = findings.where(_extra()).select(*PARTITION, "digest")
        there = source.select(*PARTITION, "digest").join(small(wanted), [*PARTITION, "digest"], "left_semi").distinct()
        found = found.join(there.withColumn("copied", F.lit(True)), [*PARTITION, "digest"], "left")
        copy = F.coalesce("copied", F.lit(False))
    verdict = (
        F.when(_missing() & F.col("target_compacted") & _cleaned("source", "target"), F.lit(verdicts.COMPACTED))
        .when(_extra() & F.col("source_compacted") & _cleaned("target", "source"), F.lit(verdicts.COMPACTED_SOURCE))
        .when(_extra() & copy, F.lit(verdicts.DOUBLED))
        .otherwise(F.col("verdict"))
    )
    return found.withColumn("verdict", verdict).select(findings.columns)


def _as_it_is(frame: DataFrame) -> DataFrame:
    return frame


def _missing() -> Column:
    return F.col("verdict") == verdicts.MISSING


def _extra() -> Column:
    return F.col("verdict") == verdicts.EXTRA


def _before(rank: str, head: str) -> Column:
    return F.isnull(head) | (F.col(rank) < F.col(head))


def _open_question() -> Column:
    return (_missing() & F.col("target_compacted")) | (_extra() & F.col("source_compacted"))


def _cleaned(own: str, other: str) -> Column:
    """Whether compaction may have removed from the other side a record that this side still has."""
    later = F.coalesce(F.col(f"{own}_last") > F.col(f"{own}_offset"), F.lit(False))
    tombstone = F.col("tombstone") & F.isnull(f"{other}_last")
    return F.isnotnull("key_hash") & (later | tombstone)
