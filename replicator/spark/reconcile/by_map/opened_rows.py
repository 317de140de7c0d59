"""Records of chunks that differ, joined by their place: what is left over doesn't stand where the map says.

The second pass by the map: all that comes out are records that don't stand where the map says.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from replicator.model.partition import Partition
from replicator.proof.arrays import OffsetArray
from replicator.proof.record_digests import KEY_BYTES_MAX
from replicator.proof.row_places import Mask
from replicator.proof.task_map import MapFacts, map_of
from replicator.spark import archives
from replicator.spark.reconcile import arrow

CARRIED = ("offset", "digest", "second_digest", "kept_key", "tombstone", "timestamp_ms")
OPENED = (
    "topic string, partition int, of_source boolean, place long, behind boolean, offset long, digest long, "
    "second_digest long, kept_key binary, tombstone boolean, timestamp_ms long"
)
"""`topic`, `partition`: the source's. `place`: the target offset; null without one. `behind`: the record stands where
the map says, behind copies of higher source offsets."""
_AT = ("topic", "partition")


@dataclass(frozen=True, slots=True)
class ChunksToOpen:
    """Numbers of a pair's chunks, ascending. `targets`: of target offsets; `sources`: of source offsets with records
    that have no place, or stand behind copies of higher offsets."""

    targets: Sequence[int]
    sources: Sequence[int] = ()


def carried(read: DataFrame) -> DataFrame:
    """Return what is kept of a record; `kept_key` is as of `record_digests`, with another digest of the rest."""
    key = F.col("key")
    long_key = F.concat(F.substring(key, 1, KEY_BYTES_MAX), F.unhex(F.sha2(key, 256)))
    kept = F.when(F.octet_length(key) <= KEY_BYTES_MAX, key).otherwise(long_key)
    second = F.col("second_digest") if "second_digest" in read.columns else F.lit(0).cast("long")
    return read.withColumns({"kept_key": kept, "tombstone": F.isnull("value"), "second_digest": second}).select(
        "topic", "partition", *CARRIED
    )


def opened(
    read: DataFrame, facts: MapFacts, wanted: Mapping[Partition, ChunksToOpen], bits: int, *, of_source: bool
) -> DataFrame:
    """Return the compared records of these chunks, see OPENED. `read`: as of `carried`."""
    return read.mapInArrow(archives.of_task(_keeping(facts, wanted, bits, of_source)), OPENED)


def left_over(source: DataFrame, target: DataFrame) -> DataFrame:
    """Return the records of both sides that don't stand where the map says, and those that do but stand behind later
    ones.
    """
    here = source.select(*_AT, "place", *(F.col(name).alias(f"source_{name}") for name in ("behind", *CARRIED)))
    there = target.select(
        *_AT, F.col("offset").alias("place"), *(F.col(name).alias(f"target_{name}") for name in CARRIED)
    )
    both = here.join(there, [*_AT, "place"], "full_outer")
    equal = [F.col(f"source_{name}") == F.col(f"target_{name}") for name in ("digest", "second_digest")]
    same = F.coalesce(equal[0] & equal[1], F.lit(False))
    behind = F.coalesce(F.col("source_behind"), F.lit(False))
    found = both.where(~same | behind).select(
        *_AT,
        "place",
        (same & behind).alias("behind"),
        F.explode(F.array(_side("source"), _side("target"))).alias("side"),
    )
    columns = [column.split()[0] for column in OPENED.split(", ")]
    return found.select(*_AT, "place", "behind", "side.*").where(F.isnotnull("offset")).select(columns)


def _side(name: str) -> Column:
    columns = (F.col(f"{name}_{one}").alias(one) for one in CARRIED)
    return F.struct(F.lit(name == "source").alias("of_source"), *columns)


def _keeping(facts: MapFacts, wanted: Mapping[Partition, ChunksToOpen], bits: int, of_source: bool) -> arrow.Task:
    by_side = facts.by_side(of_source)

    def keeping(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for at, batch in arrow.by_partition(batches):
            here = by_side[at].source
            rows = map_of(facts, here).rows
            assert rows is not None, f"{here} has a map"
            offsets, chunks = batch.column("offset").to_numpy(), wanted[here].targets
            behind = np.zeros(len(offsets), dtype=bool)
            if of_source:
                places, compared, behind = rows.source(offsets)
                kept = compared & ((places < 0) | _in(places >> bits, chunks))
            else:
                places = offsets
                kept = rows.target(offsets)[1] & _in(places >> bits, chunks)
            if kept.any():
                yield _kept(here, of_source, batch.filter(pa.array(kept)), places[kept], behind[kept])

    return keeping


def _kept(at: Partition, of_source: bool, batch: pa.RecordBatch, places: OffsetArray, behind: Mask) -> pa.RecordBatch:
    count = batch.num_rows
    columns = [
        pa.array([at.topic] * count, pa.string()),
        pa.array([at.partition] * count, pa.int32()),
        pa.array([of_source] * count, pa.bool_()),
        pa.array(places, pa.int64(), mask=places < 0),
        pa.array(behind, pa.bool_()),
        *(batch.column(name) for name in CARRIED),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=arrow.types(OPENED))


def _in(chunks: OffsetArray, wanted: Sequence[int]) -> Mask:
    numbers = np.asarray(wanted, dtype=np.int64)
    if not len(numbers):
        return np.zeros(len(chunks), dtype=bool)
    at = np.minimum(np.searchsorted(numbers, chunks), len(numbers) - 1)
    found: Mask = numbers[at] == chunks
    return found
