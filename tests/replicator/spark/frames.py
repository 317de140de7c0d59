"""Small frames that look like what Spark's Kafka source gives."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from pyspark.sql import DataFrame, SparkSession

KAFKA = (
    "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, timestampType int, "
    "headers array<struct<key:string,value:binary>>"
)
Headers = Sequence[tuple[str, bytes | None]] | None
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def record(
    offset: int,
    value: bytes | None = b"v",
    *,
    key: bytes | None = b"k",
    ms: int = 1000,
    headers: Headers = None,
    topic: str = "t",
    partition: int = 0,
) -> tuple[object, ...]:
    """One row of the Kafka source."""
    return (key, value, topic, partition, offset, EPOCH + timedelta(milliseconds=ms), 0, headers)


def kafka_frame(spark: SparkSession, *partitions: list[tuple[object, ...]]) -> DataFrame:
    """Each argument is what one task reads."""
    rows = spark.sparkContext.parallelize([row for rows in partitions for row in rows], 1)
    if len(partitions) > 1:
        rows = spark.sparkContext.union([spark.sparkContext.parallelize(rows, 1) for rows in partitions])
    return spark.createDataFrame(rows, KAFKA)
