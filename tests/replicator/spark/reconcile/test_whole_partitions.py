"""The digest of a whole range, computed by Spark, beside that which `cutting` computes from the same rows."""

from __future__ import annotations

import random
from functools import reduce
from itertools import pairwise

import numpy as np
import pytest
from pyspark.sql import SparkSession

from replicator.model.partition import Partition
from replicator.spark.reconcile import cutting, transforms, whole_partitions
from replicator.spark.reconcile.cutting import Cutter, Piece
from tests.replicator.spark.frames import kafka_frame, record

AT = Partition("t", 0)
DIGESTS = ["digest", "second_digest"]
Rows = list[tuple[object, ...]]


def drawn(count: int) -> Rows:
    """Offsets with holes, and several records that are equal to each other."""
    chance, offset, rows = random.Random(5), 0, Rows()
    for _ in range(count):
        offset += chance.choice([1, 1, 2, 7])
        rows.append(record(offset, str(chance.randrange(40)).encode(), ms=chance.randrange(5)))
    return rows


def whole(spark: SparkSession, *tasks: Rows) -> Piece:
    records = transforms.hashed_again(transforms.hashed(kafka_frame(spark, *tasks)))
    found = whole_partitions.ranges(records, DIGESTS, of_source=True).toArrow()
    assert not whole_partitions.pieces(found, of_source=False)
    pieces = whole_partitions.pieces(found, of_source=True)
    assert list(pieces) == [AT]
    return reduce(cutting.joined, sorted(pieces[AT]))


def by_cutting(spark: SparkSession, rows: Rows) -> Piece:
    records = transforms.hashed_again(transforms.hashed(kafka_frame(spark, rows))).orderBy("offset").toArrow()
    offsets, times_ms = (records.column(name).to_numpy() for name in ("offset", "timestamp_ms"))
    columns = [records.column(name).to_numpy().view(np.uint64) for name in DIGESTS]
    cutter = Cutter(64)
    pieces = [
        *cutter.feed(offsets, times_ms, np.zeros_like(offsets), *columns),
        *cutter.finish(),
    ]
    assert len(pieces) > 10
    return reduce(cutting.joined, pieces)


@pytest.mark.parametrize(
    "cuts",
    [(1,), (17, 4_096, 8_192), *(pytest.param(cuts, marks=pytest.mark.tier("full")) for cuts in ((), (5_000,)))],
)
def test_it_is_the_digest_of_all_chunks_however_many_tasks_read_it(spark: SparkSession, cuts: tuple[int, ...]) -> None:
    rows = drawn(9_000)
    ends = [0, *cuts, len(rows)]
    found = whole(spark, *(rows[first:end] for first, end in pairwise(ends)))
    expected = by_cutting(spark, rows)
    assert found[:6] == expected[:6]


@pytest.mark.parametrize("damage", ["swapped", "missing", "doubled", "equal ones reordered"])
def test_every_damage_changes_it(spark: SparkSession, damage: str) -> None:
    a, b = (b"a", b"b")
    values = [a, b, b, a, *(str(n).encode() for n in range(20))]
    changed = {
        "swapped": [*values[:10], values[11], values[10], *values[12:]],
        "missing": values[:-1],
        "doubled": [*values, values[-1]],
        "equal ones reordered": [b, a, a, b, *values[4:]],  # the same places in sum
    }[damage]
    before, after = (whole(spark, [record(n, value) for n, value in enumerate(rows)]) for rows in (values, changed))
    assert (before.records, before.hashes) != (after.records, after.hashes)


def test_where_records_stand_does_not_count(spark: SparkSession) -> None:
    here = whole(spark, [record(n, str(n).encode()) for n in range(50)])
    there = whole(spark, [record(1_000 + 2 * n, str(n).encode()) for n in range(50)])
    assert here.hashes == there.hashes
