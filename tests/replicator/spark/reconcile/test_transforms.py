"""Digests, and verdicts on opened records, on small frames."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession

from replicator.model.partition import Partition
from replicator.spark.reconcile import opened_chunks, transforms
from replicator.spark.reconcile.opened_chunks import GapRange, GapSides, findings, within
from tests.replicator.spark.frames import Headers, kafka_frame, record


def digests_of(spark: SparkSession, rows: list[tuple[object, ...]]) -> list[int]:
    frame = transforms.hashed(kafka_frame(spark, rows))
    return [row["digest"] for row in frame.orderBy("offset").collect()]


def test_every_field_and_every_null_counts(spark: SparkSession) -> None:
    headers: list[Headers] = [
        None,
        [("a", b"1")],
        [("a", None)],
        [("a", b"")],
        [("", b"a")],
        [("a", b"1"), ("b", b"2")],
        [("b", b"2"), ("a", b"1")],
        [("a", b"1"), ("a", b"1")],
        [("a", None), ("b", b"1")],
        [("a", b"1"), ("b", None)],
        [("ab", b""), ("", b"1")],
        [("a", b""), ("b", b"1")],
    ]
    pairs = [(None, None), (None, b"a"), (b"a", None), (b"", b"a"), (b"a", b""), (b"", None), (None, b""), (b"ab", b"")]
    rows = [record(number, headers=value) for number, value in enumerate(headers)]
    rows += [record(100 + number, value, key=key) for number, (key, value) in enumerate(pairs)]
    rows += [record(200, ms=1001), record(201, ms=-1), record(202, b"k", key=b"v")]
    found = digests_of(spark, rows)
    assert len(set(found)) == len(rows)


def test_equal_records_have_one_digest_wherever_they_stand(spark: SparkSession) -> None:
    first, second = digests_of(spark, [record(3, headers=[("a", None)]), record(9, headers=[("a", None)], partition=1)])
    assert first == second


def test_the_second_digest_is_another_and_of_the_same_fields(spark: SparkSession) -> None:
    rows = [
        record(0),
        record(1),
        record(2, b"w"),
        record(3, key=None),
        record(4, headers=[("a", b"1")]),
        record(5, ms=7),
    ]
    found = transforms.hashed_again(transforms.hashed(kafka_frame(spark, rows))).orderBy("offset").collect()
    assert found[0]["second_digest"] == found[1]["second_digest"]
    assert len({row["second_digest"] for row in found}) == 5
    assert not {row["second_digest"] for row in found} & {row["digest"] for row in found}


def opened(spark: SparkSession, *sides: list[tuple[object, ...]], gaps: list[GapSides]) -> DataFrame:
    frames = [
        within(
            transforms.by_field(transforms.hashed(kafka_frame(spark, rows))),
            {Partition("t", 0): ("s", [gap.target if number else gap.source for gap in gaps])},
            of_source=not number,
        )
        for number, rows in enumerate(sides)
    ]
    return findings(frames[0].unionByName(frames[1]), {Partition("s", 0): gaps})


def test_opened_records_get_their_verdicts(spark: SparkSession) -> None:
    rows = [record(n, f"v{n}".encode(), key=f"k{n}".encode(), ms=n) for n in range(10)]
    changed = [*rows[:2], *rows[3:5], rows[4], record(5, b"new", key=b"k5", ms=5), rows[7], rows[6], *rows[8:]]
    target = [(*row[:4], 100 + place, *row[5:]) for place, row in enumerate(changed)]
    whole = GapSides(GapRange(0, 10, 40, -1, -1), GapRange(100, 111, 50, -1, -1), 0, 0, False)
    found = opened(spark, rows, target, gaps=[whole])
    seen = sorted(
        (row["verdict"], row["records"], row["fields"], row["source_offset"], bytes(row["key"] or b""))
        for row in found.collect()
    )
    assert [entry for entry in seen if entry[0] not in ("reordered", "doubled")] == [
        ("extra", 1, "", None, b"k5"),
        ("missing", 1, "", 2, b"k2"),
        ("missing", 1, "", 5, b"k5"),
        ("same", 7, "", None, b""),
    ], "which of them are one altered record is decided over all gaps of the partition"
    assert [entry[0] for entry in seen].count("reordered") == 1
    assert [entry[0] for entry in seen].count("doubled") == 1
    ((_, of_partition),) = opened_chunks.firsts(found).items()
    firsts = {verdict: (first.source_rank, first.target_rank) for verdict, first in of_partition.items()}
    assert firsts.keys() == {"same", "missing", "extra", "doubled", "reordered"}
    assert (firsts["same"], firsts["missing"], firsts["extra"]) == ((40, 50), (42, None), (None, 55))


def test_gaps_are_compared_apart_and_what_lies_between_them_not_at_all(spark: SparkSession) -> None:
    rows = [record(n, f"v{n}".encode()) for n in range(8)]
    gaps = [
        GapSides(GapRange(0, 3, 0, -1, 3), GapRange(0, 3, 0, -1, 3), 1, 0, False),
        GapSides(GapRange(5, 8, 5, 4, -1), GapRange(5, 8, 5, 4, -1), 1, 0, False),
    ]
    found = opened(spark, rows, [row for row in rows if row[4] != 6], gaps=gaps)
    per = sorted((row["verdict"], row["records"], row["source_rank"]) for row in found.collect())
    assert per == [("extra", 1, None), ("missing", 1, 6), ("same", 2, 1), ("same", 2, 5)], "the first one is skipped"
    (missing,) = found.where("verdict = 'missing'").collect()
    assert (missing["topic"], missing["other_after"], missing["other_before"]) == ("s", 5, 7)


def test_a_task_that_reads_two_partitions_is_an_error(spark: SparkSession) -> None:
    frame = transforms.by_field(transforms.hashed(kafka_frame(spark, [record(0), record(0, partition=1)])))
    places = {Partition("t", number): ("t", [GapRange(0, 9, 0, -1, -1)]) for number in (0, 1)}
    with pytest.raises(Exception, match="one task reads"):
        within(frame, places, of_source=True).collect()


def test_records_that_were_left_out_by_decision_are_not_read_and_the_others_keep_their_order(
    spark: SparkSession,
) -> None:
    rows = [[record(offset) for offset in range(6)], [record(offset, partition=1) for offset in range(3)]]
    found = kafka_frame(spark, *rows, [record(2, topic="u")])
    gaps = spark.createDataFrame([("t", 0, 1, 3), ("t", 0, 5, 9), ("t", 1, 0, 1)], transforms.GAPS)
    left = transforms.without(found, gaps)
    assert left.columns == found.columns
    kept = [(row["topic"], row["partition"], row["offset"]) for row in left.collect()]
    assert kept == [("t", 0, 0), ("t", 0, 3), ("t", 0, 4), ("t", 1, 1), ("t", 1, 2), ("u", 0, 2)]
    assert left.rdd.getNumPartitions() == found.rdd.getNumPartitions()
