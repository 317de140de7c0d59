"""A few rows that the driver keeps are one partition: windows, groups and joins of them shuffle nothing."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from replicator.proof import verdicts
from replicator.proof.by_content.record_verdicts import Finding
from replicator.spark.reconcile import arrow, resolve
from replicator.spark.reconcile.opened_chunks import FOUND_TYPES


def findings(spark: SparkSession) -> DataFrame:
    """A record that moved, and others that only one side has, of two partitions, in several partitions of Spark's."""
    rows = [
        ("t", number % 2, *Finding(verdict, 1, source_rank=at, target_rank=there, digest=digest))
        for number, (verdict, at, there, digest) in enumerate(
            [
                (verdicts.MISSING, 3, None, 7),
                (verdicts.MISSING, 4, None, 8),
                (verdicts.EXTRA, None, 9, 7),
                (verdicts.EXTRA, None, 11, 9),
            ]
        )
    ]
    return spark.createDataFrame(arrow.table(rows, FOUND_TYPES)).repartition(4)


def test_what_is_made_of_them_takes_one_stage(spark: SparkSession) -> None:
    shuffled = findings(spark)
    kept = arrow.on_driver(shuffled)
    assert kept.schema == shuffled.schema
    assert sorted(map(str, kept.collect())) == sorted(map(str, shuffled.collect()))
    moved = resolve.moved(kept)
    marked = kept.withColumn("alone", resolve.alone())
    counted = moved.join(F.broadcast(kept.select("digest").distinct()), "digest").groupBy("verdict").count()
    for frame in (moved, marked, counted):
        assert "Exchange hashpartitioning" not in _plan(frame)
    assert "Exchange hashpartitioning" in _plan(resolve.moved(shuffled))
    assert {row["verdict"]: row["count"] for row in counted.collect()} == {"missing": 1, "extra": 1, "reordered": 1}


def _plan(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())
