"""Small summaries of all findings, made by Spark: counts, where they lie, and a few to look at."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from replicator.model.partition import Partition
from replicator.spark.reconcile import transforms
from replicator.spark.reconcile.outcome import BUCKETS, Example
from replicator.spark.reconcile.passes import Compared

EXAMPLES_MAX = 10
"""Examples of each verdict in each partition."""


class First(NamedTuple):
    """So many records have a verdict, and the first ranks on either side."""

    records: int
    source_rank: int | None
    target_rank: int | None


Firsts = Mapping[Partition, Mapping[str, First]]
"""By partition and verdict."""


def firsts(opened: DataFrame) -> Firsts:
    """Which verdicts there are, and where each begins."""
    found: dict[Partition, dict[str, First]] = {}
    for row in transforms.firsts(opened).collect():
        first = First(row["records"], row["source_rank"], row["target_rank"])
        found.setdefault(Partition(row["topic"], row["partition"]), {})[row["verdict"]] = first
    return found


class Count(NamedTuple):
    """So many findings of a verdict, how many of them are of records of either side, and how many lie in each of
    BUCKETS parts of the partition, by rank."""

    records: int
    of_source: int
    of_target: int
    places: list[int]


Counts = Mapping[Partition, Mapping[str, Count]]
"""By partition and verdict."""


def counts(findings: DataFrame, compared: Iterable[Compared]) -> Counts:
    """How many findings of each verdict there are, and where."""
    lengths = [
        (*item.pair.source, max(1, item.aligned.source.records, item.aligned.target.records)) for item in compared
    ]
    sizes = findings.sparkSession.createDataFrame(lengths, "topic string, partition int, length long")
    rank = F.coalesce("source_rank", "target_rank")
    bucket = F.least(F.floor(rank * BUCKETS / F.col("length")), F.lit(BUCKETS - 1)).cast("int")
    rows = (
        findings.join(F.broadcast(sizes), ["topic", "partition"])
        .groupBy("topic", "partition", "verdict", bucket.alias("bucket"))
        .agg(F.sum("records"), F.count("source_rank"), F.count("target_rank"))
        .collect()
    )
    found: dict[Partition, dict[str, Count]] = {}
    for topic, partition, verdict, at, records, of_source, of_target in rows:
        verdicts = found.setdefault(Partition(topic, partition), {})
        before = verdicts.get(verdict, Count(0, 0, 0, [0] * BUCKETS))
        before.places[at] = records
        verdicts[verdict] = Count(
            before.records + records, before.of_source + of_source, before.of_target + of_target, before.places
        )
    return found


def examples(findings: DataFrame) -> dict[Partition, tuple[Example, ...]]:
    """The first EXAMPLES_MAX findings of each verdict in each partition, in order of their place."""
    place = F.coalesce("source_rank", "target_rank")
    order = Window.partitionBy("topic", "partition", "verdict").orderBy(place)
    first = findings.withColumn("place", place).withColumn("row", F.row_number().over(order))
    rows = first.where(F.col("row") <= EXAMPLES_MAX).orderBy("topic", "partition", "place").collect()
    found: dict[Partition, list[Example]] = {}
    for row in rows:
        key = None if row["key"] is None else bytes(row["key"])
        example = Example(
            row["verdict"], row["fields"], row["source_offset"], row["target_offset"], row["timestamp_ms"], key
        )
        found.setdefault(Partition(row["topic"], row["partition"]), []).append(example)
    return {at: tuple(items) for at, items in found.items()}
