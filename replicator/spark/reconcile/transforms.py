"""Pure functions from DataFrame to DataFrame. What goes in has the columns of Spark's Kafka source.

A record's digest is null-safe: `xxhash64` skips nulls, so that (null, 'a') would equal ('a', null); null flags are
hashed with the fields. Lengths need not be: xxhash64 mixes that of every string, binary and array element in.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from replicator.proof.by_content.record_verdicts import RECORD

KEY_BYTES_SHOWN = 64
PARTITION = ("topic", "partition")
GAPS = "topic string, partition int, first long, end long"
"""Offsets of partitions: from the first one to before the end."""


def without(records: DataFrame, gaps: DataFrame) -> DataFrame:
    """Leave out the records at these offsets (schema GAPS); the others keep their order and their tasks."""
    left_out = F.broadcast(gaps.select(*(F.col(name).alias(f"gap_{name}") for name in gaps.columns)))
    at = (F.col("topic") == F.col("gap_topic")) & (F.col("partition") == F.col("gap_partition"))
    return records.join(
        left_out, at & F.col(RECORD.offset).between(F.col("gap_first"), F.col("gap_end") - 1), "left_anti"
    )


def hashed(records: DataFrame) -> DataFrame:
    """Add `digest` of key, value, headers and timestamp, and `timestamp_ms`."""
    return records.withColumn(RECORD.timestamp_ms, F.unix_millis("timestamp")).withColumn(
        RECORD.digest, F.xxhash64(*_identity(_headers_hash()))
    )


def size() -> Column:
    """Count how many bytes key and value of a record have."""
    lengths = [F.coalesce(F.octet_length(name), F.lit(0)) for name in ("key", "value")]
    return (lengths[0] + lengths[1]).cast("long")


def hashed_again(records: DataFrame) -> DataFrame:
    """Add `second_digest` to what `hashed` gives: the same fields in another order, behind a number of their own. Two
    records that are equal in both of them agree in 128 bits."""
    fields = _identity(F.when(F.isnotnull("headers"), F.xxhash64(F.lit(2), F.to_json("headers"))))
    return records.withColumn("second_digest", F.xxhash64(F.lit(1), *reversed(fields)))


def _identity(headers: Column) -> list[Column]:
    nulls = [F.isnull(name) for name in ("key", "value", "headers")]
    return [nulls[0], F.col("key"), nulls[1], F.col("value"), nulls[2], headers, F.col(RECORD.timestamp_ms)]


def _headers_hash() -> Column:
    """Hash headers: null where there are none. JSON tells names, values and which values are null apart, all in order.

    Unlike a function over array elements, JSON does not keep Spark from compiling the whole stage.
    """
    return F.when(F.isnotnull("headers"), F.xxhash64(F.to_json("headers")))


def by_field(records: DataFrame, *, deep: bool = False) -> DataFrame:
    """Add a hash of each field, null where the field is, and the first bytes of the key for people.

    Args:
        deep: records have a `second_digest`; `digest` is of both of them from here on.
    """
    if deep:
        records = records.withColumn(RECORD.digest, F.xxhash64(RECORD.digest, "second_digest"))
    return records.withColumns(
        {
            RECORD.key_hash: F.when(F.isnotnull("key"), F.xxhash64("key")),
            RECORD.value_hash: F.when(F.isnotnull("value"), F.xxhash64("value")),
            RECORD.headers_hash: _headers_hash(),
            RECORD.key: F.substring("key", 1, KEY_BYTES_SHOWN),
        }
    )
