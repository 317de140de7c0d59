"""Pure functions from DataFrame to DataFrame. What goes in has the columns of Spark's Kafka source.

A record's digest is null-safe: `xxhash64` skips nulls, so that (null, 'a') would equal ('a', null); null flags are
hashed with the fields. Lengths need not be: xxhash64 mixes that of every string, binary and array element in. XOR over
records would cancel pairs, so each record's aligned rank is mixed into its digest first.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from replicator.spark.reconcile.chunks import PLACE_MASK
from replicator.spark.reconcile.verdicts import ALTERED

_RANK_MASK = (1 << 33) - 1
KEY_BYTES_SHOWN = 64
PARTITION = ("topic", "partition")
FINDING = (
    "verdict string, records long, fields string, source_offset long, target_offset long, source_rank long, "
    "target_rank long, timestamp_ms long, digest long, key_hash long, tombstone boolean, key binary"
)
"""Schema of `verdicts.Finding`."""


def ranked(records: DataFrame) -> DataFrame:
    """Adds `rank`: how many records of the partition the same read gave before this one.

    Without a shuffle: a task of Spark's Kafka source reads one range of one partition in offset order, and
    `monotonically_increasing_id` counts a task's rows in its low 33 bits. Holds only directly on such a read.
    """
    return records.withColumn("rank", F.monotonically_increasing_id().bitwiseAND(F.lit(_RANK_MASK)))


def hashed(records: DataFrame) -> DataFrame:
    """Adds `digest` of key, value, headers and timestamp, and `timestamp_ms`."""
    return records.withColumn("timestamp_ms", F.unix_millis("timestamp")).withColumn(
        "digest",
        F.xxhash64(
            F.isnull("key"),
            "key",
            F.isnull("value"),
            "value",
            F.isnull("headers"),
            _headers_hash(),
            "timestamp_ms",
        ),
    )


def _headers_hash() -> Column:
    """Null where there are none. JSON tells names, values and which values are null apart, all in order.

    Unlike a function over array elements, JSON does not keep Spark from compiling the whole stage.
    """
    return F.when(F.isnotnull("headers"), F.xxhash64(F.to_json("headers")))


def by_field(records: DataFrame) -> DataFrame:
    """Adds a hash of each field, null where the field is, and the first bytes of the key for people."""
    return records.withColumns(
        {
            "key_hash": F.when(F.isnotnull("key"), F.xxhash64("key")),
            "value_hash": F.when(F.isnotnull("value"), F.xxhash64("value")),
            "headers_hash": _headers_hash(),
            "key_shown": F.substring("key", 1, KEY_BYTES_SHOWN),
        }
    )


def placed(records: DataFrame, bases: DataFrame) -> DataFrame:
    """Moves `rank` on by `base`: how many records of the partition stand before this read.

    Args:
        bases: `topic`, `partition`, `base long`. Other columns are added to the records. Partitions that are not in it
            are left out.
    """
    joined = records.join(F.broadcast(bases), list(PARTITION))
    return joined.withColumn("rank", F.col("rank") + F.col("base")).drop("base")


def valued(records: DataFrame, segments: DataFrame, bits: int, name: str) -> DataFrame:
    """Adds the value of the segment in which the record's rank lies as `name`. Records outside of all are left out.

    Args:
        records: with `topic`, `partition`, `rank`.
        segments: `topic`, `partition`, `bucket long` (rank >> bits), `segments array<struct<first long, end long, value
            long>>`: those that touch the bucket.
    """
    rank = F.col("rank")
    here = F.filter("segments", lambda segment: (segment["first"] <= rank) & (rank < segment["end"]))
    return (
        records.withColumn("bucket", F.shiftright("rank", bits))
        .join(F.broadcast(segments), [*PARTITION, "bucket"])
        .withColumn(name, F.get(here, 0)["value"])
        .where(F.isnotnull(name))
        .drop("bucket", "segments")
    )


def digests(records: DataFrame, bits: int) -> DataFrame:
    """One row for each chunk: what `chunks.Chunk` holds, besides topic and partition.

    All aggregates have a fixed size, so Spark keeps them in one hash table and nothing but they is shuffled.

    Args:
        records: with `topic`, `partition`, `offset`, `timestamp_ms`, `digest`, `rank`, `aligned`.
        bits: binary logarithm of the chunk size.
    """
    place = F.col("rank").bitwiseAND(F.lit((1 << bits) - 1))
    packed = F.col("digest").bitwiseAND(F.lit(~PLACE_MASK)).bitwiseOR(place)
    return records.groupBy(*PARTITION, F.shiftright("aligned", bits).alias("chunk")).agg(
        F.count(F.lit(1)).alias("records"),
        F.min("rank").alias("first_rank"),
        F.min("offset").alias("first_offset"),
        F.max("offset").alias("last_offset"),
        F.min("timestamp_ms").alias("first_ms"),
        F.max("timestamp_ms").alias("last_ms"),
        F.bit_xor(F.xxhash64("digest", "aligned")).alias("digest"),
        F.min(packed).alias("low"),
        F.max(packed).alias("high"),
    )


def outside(records: DataFrame, unlike: DataFrame, bits: int) -> DataFrame:
    """The records with `aligned` in other chunks than those of `unlike` (`topic`, `partition`, `chunk`)."""
    chunk = records.withColumn("chunk", F.shiftright("aligned", bits))
    return chunk.join(F.broadcast(unlike), [*PARTITION, "chunk"], "left_anti").drop("chunk")


def unequal(source: DataFrame, target: DataFrame) -> DataFrame:
    """Findings on records whose fields differ, byte by byte and without any digest.

    Args:
        source, target: with `topic`, `partition` (the source's) and `aligned`; in chunks with equal digests.
    """
    left, right = source.alias("s"), target.alias("t")
    on = [F.col(f"s.{name}") == F.col(f"t.{name}") for name in (*PARTITION, "aligned")]
    pairs = {"key": "key", "value": "value", "headers": "headers", "timestamp": "timestamp_ms"}
    changed = [
        F.when(~F.col(f"s.{column}").eqNullSafe(F.col(f"t.{column}")), F.lit(name)) for name, column in pairs.items()
    ]
    return (
        left.join(right, on)
        .withColumn("fields", F.concat_ws(",", *changed))
        .where("fields != ''")
        .select(
            *(F.col(f"s.{name}").alias(name) for name in PARTITION),
            F.lit(ALTERED).alias("verdict"),
            F.lit(1).cast("long").alias("records"),
            "fields",
            *(F.col(f"{side[0]}.offset").alias(f"{side}_offset") for side in ("source", "target")),
            *(F.col(f"{side[0]}.rank").alias(f"{side}_rank") for side in ("source", "target")),
            F.col("s.timestamp_ms").alias("timestamp_ms"),
            F.col("s.digest").alias("digest"),
            F.lit(None).cast("long").alias("key_hash"),
            F.isnull("s.value").alias("tombstone"),
            F.substring("s.key", 1, KEY_BYTES_SHOWN).alias("key"),
        )
    )


def firsts(opened: DataFrame) -> DataFrame:
    """Records and the first ranks on both sides, by topic, partition and verdict."""
    return opened.groupBy(*PARTITION, "verdict").agg(
        F.sum("records").alias("records"),
        F.min("source_rank").alias("source_rank"),
        F.min("target_rank").alias("target_rank"),
    )
