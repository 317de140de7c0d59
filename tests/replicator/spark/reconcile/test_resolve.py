"""Missing and extra records, after a look beyond their stretch."""

from __future__ import annotations

from collections.abc import Iterable

from chispa import assert_df_equality
from pyspark.sql import DataFrame, SparkSession

from replicator.spark.reconcile import resolve, transforms, verdicts
from replicator.spark.reconcile.resolve import expired, explained, moved
from replicator.spark.reconcile.verdicts import Finding

SCHEMA = f"topic string, partition int, {transforms.FINDING}"
SIDE = "topic string, partition int, offset long, digest long, key_hash long"
Row = tuple[object, ...]


def missing(
    rank: int, digest: int = 1, key: int | None = 7, *, tombstone: bool = False, partition: int = 0, verdict: str = ""
) -> Row:
    """Offsets are ten times the ranks."""
    name = verdict or verdicts.MISSING
    place = {"source_rank": rank, "source_offset": 10 * rank}
    return ("t", partition, *Finding(name, 1, **place, digest=digest, key_hash=key, tombstone=tombstone))  # type: ignore[arg-type]


def extra(
    rank: int, digest: int = 1, key: int | None = 7, *, tombstone: bool = False, partition: int = 0, verdict: str = ""
) -> Row:
    name = verdict or verdicts.EXTRA
    place = {"target_rank": rank, "target_offset": 10 * rank}
    return ("t", partition, *Finding(name, 1, **place, digest=digest, key_hash=key, tombstone=tombstone))  # type: ignore[arg-type]


def frame(spark: SparkSession, rows: Iterable[Row]) -> DataFrame:
    return spark.createDataFrame(list(rows), SCHEMA)


def same(spark: SparkSession, found: DataFrame, rows: Iterable[Row]) -> None:
    assert_df_equality(found, frame(spark, rows), ignore_nullable=True, ignore_row_order=True)


def test_retention_explains_only_what_stands_before_the_common_part(spark: SparkSession) -> None:
    cuts = [
        (5, 0, False, True),
        (5, 0, True, False),
        (None, None, False, True),
        (0, 5, True, False),
        (0, 5, False, True),
    ]
    places = spark.createDataFrame([("t", n, *cut, False, False) for n, cut in enumerate(cuts)], resolve.PLACES)
    rows = [
        (missing(4), verdicts.EXPIRED),
        (missing(5), verdicts.MISSING),
        (missing(4, partition=1), verdicts.MISSING),
        (missing(4, partition=2), verdicts.EXPIRED),
        (extra(4, partition=3), verdicts.NEVER_MINE),
        (extra(5, partition=3), verdicts.EXTRA),
        (extra(4, partition=4), verdicts.EXTRA),
    ]
    found = expired(frame(spark, (row for row, _ in rows)), places)
    same(spark, found, ((*row[:2], verdict, *row[3:]) for row, verdict in rows))


def test_missing_and_extra_records_with_one_digest_have_moved(spark: SparkSession) -> None:
    others = [missing(4, 2), extra(5, 2, partition=1), missing(1, 3, verdict=verdicts.EXPIRED)]
    others += [missing(2, 3, verdict=verdicts.EXPIRED), extra(9, 3)]
    found = moved(frame(spark, [missing(3), missing(6), missing(7), extra(90), extra(95), *others]))
    expected = [(*missing(at, verdict=verdicts.REORDERED)[:6], 10 * to, at, to) for at, to in ((3, 90), (6, 95))]
    same(spark, found, [*((*row, *missing(0)[9:]) for row in expected), missing(7), *others])


def test_what_is_found_elsewhere_explains_it(spark: SparkSession) -> None:
    compacted = [(False, False), (True, True)]
    places = spark.createDataFrame(
        [("t", n, 0, 0, False, False, *both) for n, both in enumerate(compacted)], resolve.PLACES
    )
    source = [("t", 1, 31, 100, 7), ("t", 0, 31, 1, 7), ("t", 1, 50, 5, 9), ("t", 1, 12, 101, 11)]
    target = [("t", 1, 61, 200, 8), ("t", 1, 20, 201, 10)]
    rows = [
        (missing(3, partition=1), verdicts.COMPACTED),  # the source has a later record of the key
        (missing(3), verdicts.MISSING),  # but here nothing compacts
        (missing(4, partition=1), verdicts.MISSING),  # it is the last of its key
        (missing(5, key=9, tombstone=True, partition=1), verdicts.COMPACTED),  # a tombstone that went after the rest
        (missing(5, key=10, tombstone=True, partition=1), verdicts.MISSING),  # the target still has what it deletes
        (missing(5, key=None, tombstone=True, partition=1), verdicts.MISSING),
        (extra(3, 2, key=8, partition=1), verdicts.COMPACTED_SOURCE),
        (extra(7, 2, key=8, partition=1), verdicts.EXTRA),
        (extra(7, 3, key=11, tombstone=True, partition=1), verdicts.EXTRA),
        (extra(3), verdicts.DOUBLED),
        (extra(3, 100, partition=1), verdicts.DOUBLED),
        (extra(3, 100), verdicts.EXTRA),  # another partition has that one
    ]
    findings = frame(spark, (row for row, _ in rows))
    found = explained(findings, places, spark.createDataFrame(source, SIDE), spark.createDataFrame(target, SIDE))
    same(spark, found, ((*row[:2], verdict, *row[3:]) for row, verdict in rows))
    same(spark, explained(findings, places, None, None), _alone(rows))


def _alone(rows: Iterable[tuple[Row, str]]) -> Iterable[Row]:
    """Without a look at the sides only lone tombstones of compacted topics are explained."""
    for row, _ in rows:
        tombstone, key, verdict = row[12], row[11], row[2]
        lone = tombstone and key is not None and row[1] == 1
        compacted = verdicts.COMPACTED if verdict == verdicts.MISSING else verdicts.COMPACTED_SOURCE
        yield (*row[:2], compacted if lone else verdict, *row[3:])
