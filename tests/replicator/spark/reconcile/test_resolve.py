"""Missing and extra records, after a look beyond their range."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from chispa import assert_df_equality
from pyspark.sql import DataFrame, SparkSession

from replicator.proof import verdicts
from replicator.proof.by_content.record_verdicts import Finding
from replicator.spark.reconcile import opened_chunks, resolve
from replicator.spark.reconcile.resolve import expired, explained, moved, removed_meanwhile

SCHEMA = opened_chunks.FOUND
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


@pytest.mark.tier("full")
def test_retention_explains_only_what_stands_before_the_common_part(spark: SparkSession) -> None:
    """Ranks of the first common record on both sides; how many records retention explains; whether that is proven."""
    known = [
        (5, 0, 5, 0, True),
        (5, 0, 0, 0, True),
        (None, None, 5, 0, True),
        (0, 5, 0, 5, True),
        (0, 5, 0, 0, True),
        (5, 5, 1, 1, True),
        (5, 5, 5, 5, False),
    ]
    places = spark.createDataFrame(
        [("t", n, *row, False, False, 0, 0, 0) for n, row in enumerate(known)], resolve.PLACES
    )
    rows = [
        (missing(4), verdicts.EXPIRED),
        (missing(5), verdicts.MISSING),
        (missing(4, partition=1), verdicts.MISSING),
        (missing(4, partition=2), verdicts.EXPIRED),
        (extra(4, partition=3), verdicts.NEVER_MINE),
        (extra(5, partition=3), verdicts.EXTRA),
        (extra(4, partition=4), verdicts.EXTRA),
        (missing(2, partition=5), verdicts.EXPIRED),
        (missing(3, partition=5), verdicts.MISSING),  # before the first common one, but more than can have expired
        (missing(1, partition=5, verdict=verdicts.REORDERED), verdicts.REORDERED),  # retention has not taken its copy
        (extra(2, partition=5), verdicts.NEVER_MINE),
        (extra(3, partition=5), verdicts.EXTRA),
    ]
    unproven = [missing(4, partition=6), extra(4, partition=6)]
    found = expired(frame(spark, [*(row for row, _ in rows), *unproven]), places)
    expected = [changed(row, verdict=verdict) for row, verdict in rows]
    expected += [changed(row, verdict=verdicts.UNPROVEN, reason=resolve.BY_RETENTION) for row in unproven]
    same(spark, found, expected)


@pytest.mark.tier("full")
def test_what_went_while_it_was_read_leaves_unproven_what_stood_beside_it(spark: SparkSession) -> None:
    """Below offset 50 records went: of the source of partition 0, and of the target of partition 1."""
    gone = [(50, 0), (0, 50)]
    places = spark.createDataFrame(
        [("t", n, 0, 0, 0, 0, True, False, False, 0, *both) for n, both in enumerate(gone)], resolve.PLACES
    )
    rows = [
        (_behind(extra(9), 48), True),
        (_behind(extra(9), 49), False),  # it would stand behind a record that is still there
        (_behind(extra(9, verdict=verdicts.DOUBLED), 48), True),
        (_behind(missing(9), 48), False),
        (_behind(missing(9, partition=1), 48), True),
        (_behind(missing(9, partition=1), -1), True),
        (_behind(missing(9, partition=1), 49), False),
        (_behind(extra(9, partition=1), -1), False),
        (_behind(missing(9, partition=1, verdict=verdicts.EXPIRED), -1), False),
    ]
    found = removed_meanwhile(frame(spark, (row for row, _ in rows)), places)
    unproven = verdicts.UNPROVEN
    expected = {True: {"verdict": unproven, "reason": resolve.MEANWHILE}, False: {}}
    same(spark, found, (changed(row, **expected[open_]) for row, open_ in rows))


def _behind(row: Row, offset: int) -> Row:
    """The row of a record that would stand behind this offset of the other side."""
    return changed(row, other_after=offset)


def changed(row: Row, **fields: object) -> Row:
    """The row with other fields of its finding."""
    return (*row[:2], *Finding(*row[2:])._replace(**fields))  # type: ignore[arg-type]


@pytest.mark.tier("full")
def test_missing_and_extra_records_with_one_digest_have_moved(spark: SparkSession) -> None:
    others = [missing(4, 2), extra(5, 2, partition=1), missing(1, 3, verdict=verdicts.EXPIRED)]
    others += [missing(2, 3, verdict=verdicts.EXPIRED), extra(9, 3)]
    found = moved(frame(spark, [missing(3), missing(6), missing(7), extra(90), extra(95), *others]))
    expected = [
        changed(missing(at, verdict=verdicts.REORDERED), target_offset=10 * to, target_rank=to)
        for at, to in ((3, 90), (6, 95))
    ]
    same(spark, found, [*expected, missing(7), *others])


@pytest.mark.tier("extended")  # the first one of the file, it may have to start Spark
def test_what_is_doubled_in_one_place_and_missing_in_another_has_moved(spark: SparkSession) -> None:
    """A heartbeat that equals others."""
    found = moved(frame(spark, [missing(3), extra(9, verdict=verdicts.DOUBLED), extra(12, verdict=verdicts.DOUBLED)]))
    expected = changed(missing(3, verdict=verdicts.REORDERED), target_offset=90, target_rank=9)
    same(spark, found, [expected, extra(12, verdict=verdicts.DOUBLED)])


def test_a_record_with_an_equal_elsewhere_is_not_one_that_was_altered(spark: SparkSession) -> None:
    rows = [missing(3), missing(4), missing(5, 2), extra(7, 3), extra(9, verdict=verdicts.DOUBLED)]
    found = frame(spark, rows).withColumn("alone", resolve.alone()).where("alone").drop("alone")
    same(spark, found, [missing(4), missing(5, 2), extra(7, 3)])


@pytest.mark.tier("full")
def test_what_is_found_elsewhere_explains_it(spark: SparkSession) -> None:
    """The position stands at source offset 60."""
    compacted = [(False, False), (True, True)]
    places = spark.createDataFrame(
        [("t", n, 0, 0, 0, 0, True, *both, 60, 0, 0) for n, both in enumerate(compacted)], resolve.PLACES
    )
    source = [("t", 1, 31, 100, 7), ("t", 0, 31, 1, 7), ("t", 1, 50, 5, 9), ("t", 1, 12, 101, 11), ("t", 1, 70, 6, 12)]
    target = [("t", 1, 61, 200, 8), ("t", 1, 20, 201, 10)]
    rows = [
        (missing(3, partition=1), verdicts.COMPACTED),  # the source has a later record of the key
        (missing(3), verdicts.MISSING),  # but here nothing compacts
        (missing(4, partition=1), verdicts.MISSING),  # it is the last of its key
        (missing(5, key=12, partition=1), verdicts.MISSING),  # what follows in its key was not copied yet
        (missing(5, key=9, tombstone=True, partition=1), verdicts.COMPACTED),  # a tombstone that went after the rest
        (_behind(missing(5, key=10, tombstone=True, partition=1), 20), verdicts.MISSING),  # what it deletes is there
        (_behind(missing(5, key=8, partition=1), 60), verdicts.COMPACTED),  # the target has a later one, anybody's
        (_behind(missing(5, key=8, partition=1), 61), verdicts.MISSING),
        (missing(5, key=None, partition=1), verdicts.COMPACTED),  # a compacted topic keeps nothing without a key
        (missing(5, key=None), verdicts.MISSING),
        (extra(3, 2, key=8, partition=1), verdicts.COMPACTED_SOURCE),
        (extra(7, 2, key=8, partition=1), verdicts.EXTRA),
        (extra(7, 2, key=12, partition=1), verdicts.COMPACTED_SOURCE),  # the source went on, and was cleaned
        (extra(3), verdicts.DOUBLED),
        (extra(3, 100, key=13, partition=1), verdicts.DOUBLED),
        (extra(3, 100), verdicts.EXTRA),  # another partition has that one
    ]
    findings = frame(spark, (row for row, _ in rows))
    there = spark.createDataFrame(source, SIDE)
    found = explained(resolve.doubled(findings, there), places, there, spark.createDataFrame(target, SIDE))
    same(spark, found, (resolved(row, verdict) for row, verdict in rows))
    same(spark, explained(findings, places, None, None), _alone(rows))


@pytest.mark.tier("full")
def test_a_cleaner_may_have_taken_what_a_doubled_record_was_copied_from(spark: SparkSession) -> None:
    """It equals another source record of its range; the source has a later one of the key behind offset 20."""
    places = spark.createDataFrame([("t", 0, 0, 0, 0, 0, True, True, False, 1000, 0, 0)], resolve.PLACES)
    source = spark.createDataFrame([("t", 0, 10, 1, 7), ("t", 0, 30, 2, 7)], SIDE)
    before, after = (_behind(extra(3, verdict=verdicts.DOUBLED), offset) for offset in (20, 30))
    found = explained(frame(spark, [before, after]), places, source, None)
    same(spark, found, [resolved(before, verdicts.COMPACTED_SOURCE, verdicts.DOUBLED), after])


@pytest.mark.tier("full")
def test_records_that_are_identical_are_interchangeable(spark: SparkSession) -> None:
    """Of two in a row compaction keeps the second; which one is called missing or extra is nobody's choice."""
    places = spark.createDataFrame([("t", 0, 0, 0, 0, 0, True, True, True, 1000, 0, 0)], resolve.PLACES)
    source = [("t", 0, 10, 1, 7), ("t", 0, 20, 1, 7), ("t", 0, 30, 2, 8), ("t", 0, 40, 3, 8), ("t", 0, 50, 2, 8)]
    target = [("t", 0, 20, 1, 7), ("t", 0, 30, 2, 8), ("t", 0, 40, 3, 8)]
    rows = [
        (missing(2, 1), verdicts.COMPACTED),  # the last of its key; the target's last of that key equals it
        (_behind(missing(5, 2, key=8), 40), verdicts.MISSING),  # the target's last of the key is another one
    ]
    findings = frame(spark, (row for row, _ in rows))
    sides = spark.createDataFrame(source, SIDE), spark.createDataFrame(target, SIDE)
    found = explained(findings, places, *sides)
    same(spark, found, (resolved(row, verdict) for row, verdict in rows))
    # behind source offsets 20 and 40, where nothing more of their keys stands
    again, doubled = (_behind(row, after) for row, after in ((extra(2, 1), 20), (extra(5, 2, key=8), 40)))
    mirrored = [(again, verdicts.COMPACTED_SOURCE), (doubled, verdicts.DOUBLED)]
    findings = frame(spark, (row for row, _ in mirrored))
    one = [("t", 0, 20, 1, 7), ("t", 0, 30, 2, 8), ("t", 0, 40, 3, 8)]
    two = [("t", 0, 10, 1, 7), ("t", 0, 20, 1, 7), ("t", 0, 40, 3, 8), ("t", 0, 50, 2, 8)]
    ahead = tuple(spark.createDataFrame(rows, SIDE) for rows in (one, two))
    found = explained(resolve.doubled(findings, ahead[0]), places, *ahead)
    expected = [resolved(row, verdict, verdicts.DOUBLED) for row, verdict in mirrored]
    same(spark, found, [_behind(expected[0], -1), expected[1]])


def resolved(row: Row, verdict: str, otherwise: str = verdicts.EXTRA) -> Row:
    """The row with its verdict; where compaction may explain it, with what it is `otherwise`."""
    plain = {verdicts.COMPACTED: verdicts.MISSING, verdicts.COMPACTED_SOURCE: otherwise}
    return changed(row, verdict=verdict, reason=plain.get(verdict, ""))


def _alone(rows: Iterable[tuple[Row, str]]) -> Iterable[Row]:
    """Without a look at the sides only lone tombstones and records without a key are explained, of compacted topics."""
    for row, _ in rows:
        tombstone, key, verdict = row[12], row[11], row[2]
        lone = (tombstone or key is None) and row[1] == 1
        compacted = verdicts.COMPACTED if verdict == verdicts.MISSING else verdicts.COMPACTED_SOURCE
        yield resolved(row, compacted if lone else str(verdict))
