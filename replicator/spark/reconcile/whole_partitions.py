"""One digest of all records of a range, in their order, computed in the JVM. Used by `passes` before it cuts anything.

Most partitions of a copy are equal to the last record, and to learn that no record has to leave the JVM. The digest is
the polynomial of `cutting`, with the same bases: a task gives one piece for the range that it read, and pieces are
joined on the driver.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from replicator.model.partition import Partition
from replicator.spark.reconcile.cutting import BASES, PRIME, Piece

_TABLE_BITS = 12
_TABLE = 1 << _TABLE_BITS
TASK_RECORDS_MAX = _TABLE * _TABLE
"""So many powers are known; `passes` gives a task far fewer records."""
_RANK = (1 << 33) - 1
"""The bits of `monotonically_increasing_id` that count the rows of a task."""


def ranges(records: DataFrame, digests: Sequence[str], *, of_source: bool) -> DataFrame:
    """One row for each range that a task read, see `pieces`.

    Args:
        records: as a task reads them, in the order of their offsets; with `timestamp_ms`.
        digests: the columns with 64 bits each.
    """
    rank = F.monotonically_increasing_id().bitwiseAND(F.lit(_RANK))
    powers = [f"power_{number}" for number in range(len(BASES))]
    # The rank is a column of its own: written into both powers it would be counted twice for each row.
    counted = records.withColumn("rank", rank).withColumn("task", F.spark_partition_id())
    known = counted.withColumns({name: _power(base, F.col("rank")) for name, base in zip(powers, BASES, strict=True)})
    sums = [
        F.sum(_half(name, high) * F.col(power) % F.lit(PRIME)) for name in digests for high, power in enumerate(powers)
    ]
    bounds = [(F.min, "offset"), (F.max, "offset"), (F.min, "timestamp_ms"), (F.max, "timestamp_ms")]
    found = known.groupBy("task", "topic", "partition").agg(
        F.lit(of_source).alias("of_source"),
        F.count(F.lit(1)).alias("records"),
        *(function(name).alias(f"{function.__name__}_{name}") for function, name in bounds),
        F.array(*sums).alias("sums"),
    )
    return found.drop("task")


def pieces(found: pa.Table, *, of_source: bool) -> dict[Partition, list[Piece]]:
    """What `ranges` gave for one side, by partition.

    Raises ValueError for a task with more records than powers are known.
    """
    by_partition: dict[Partition, list[Piece]] = {}
    for row in found.to_pylist():
        if row["of_source"] != of_source:
            continue
        if row["records"] > TASK_RECORDS_MAX:
            raise ValueError(f"a task read {row['records']} records of {row['topic']}-{row['partition']}")
        by_partition.setdefault(Partition(row["topic"], row["partition"]), []).append(
            Piece(
                row["min_offset"],
                row["max_offset"],
                row["records"],
                row["min_timestamp_ms"],
                row["max_timestamp_ms"],
                0,  # of what is equal nothing is read again
                tuple(value % PRIME for value in row["sums"]),
                begins=0,  # nobody asks with what it begins: it is compared as a whole
                alone=False,
                complete=False,
            )
        )
    return by_partition


def _half(digest: str, high: int) -> Column:
    """One half of a digest, as `cutting` takes it."""
    if high:
        return F.shiftrightunsigned(digest, 32)
    return F.col(digest).bitwiseAND(F.lit(0xFFFFFFFF))


def _power(base: int, rank: Column) -> Column:
    """base^rank modulo PRIME, from two tables."""
    low = _table(base)[rank.bitwiseAND(F.lit(_TABLE - 1)).cast("int")]
    high = _table(pow(base, _TABLE, PRIME))[F.shiftright(rank, _TABLE_BITS).cast("int")]
    return low * high % F.lit(PRIME)


def _table(base: int) -> Column:
    """base^0, base^1, ...: a constant that Spark parses once, where an array of literals would be a plan of thousands
    of nodes."""
    return F.from_json(F.lit(json.dumps(list(_powers(base)))), "array<bigint>")


def _powers(base: int) -> Iterable[int]:
    power = 1
    for _ in range(_TABLE):
        yield power
        power = power * base % PRIME
