"""The second pass as a DataFrame: opened records of both sides in, findings out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from replicator.model.partition import Partition
from replicator.spark.reconcile import verdicts
from replicator.spark.reconcile.transforms import FINDING
from replicator.spark.reconcile.verdicts import Record

_COLUMNS = ("rank", "offset", "timestamp_ms", "digest", "key_hash", "value_hash", "headers_hash", "key_shown")


def findings(source: DataFrame, target: DataFrame, from_end: frozenset[Partition] = frozenset()) -> DataFrame:
    """Verdicts on all opened records. Records of one interval meet in one task; nothing else is shuffled.

    Args:
        source, target: with `topic`, `partition` (the source's), `interval` and the columns of `verdicts.Record`.
        from_end: partitions whose head was cut on a side: repeated records are aligned from the end on.
    """
    both = _packed(source, True).unionByName(_packed(target, False))
    grouped = both.rdd.map(_keyed).groupByKey().flatMap(partial(_compared, from_end))
    return both.sparkSession.createDataFrame(grouped, f"topic string, partition int, {FINDING}")


def _packed(records: DataFrame, of_source: bool) -> DataFrame:
    return records.select("topic", "partition", "interval", F.lit(of_source).alias("of_source"), *_COLUMNS)


def _keyed(row: Row) -> tuple[tuple[str, int, int], tuple[Any, ...]]:
    return (row[0], row[1], row[2]), tuple(row[3:])


def _compared(
    from_end: frozenset[Partition], group: tuple[tuple[str, int, int], Iterable[tuple[Any, ...]]]
) -> Iterator[tuple[Any, ...]]:
    (topic, partition, _), rows = group
    sides: dict[bool, list[Record]] = {True: [], False: []}
    for of_source, *fields, key in rows:
        sides[of_source].append(Record._make([*fields, None if key is None else bytes(key)]))
    for finding in verdicts.compare(sides[True], sides[False], from_end=Partition(topic, partition) in from_end):
        yield (topic, partition, *finding)
