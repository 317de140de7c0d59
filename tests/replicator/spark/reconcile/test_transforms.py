"""Digests, ranks and chunks on small frames."""

from __future__ import annotations

from chispa import assert_df_equality
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from replicator.spark.reconcile import opened_chunks, transforms
from replicator.spark.reconcile.chunks import PLACE_BITS
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


def test_ranks_count_each_task_from_zero(spark: SparkSession) -> None:
    frame = kafka_frame(spark, [record(5), record(9), record(12)], [record(40, partition=1), record(41, partition=1)])
    ranks = {(row["partition"], row["offset"]): row["rank"] for row in transforms.ranked(frame).collect()}
    assert ranks == {(0, 5): 0, (0, 9): 1, (0, 12): 2, (1, 40): 0, (1, 41): 1}


SEGMENTS = "topic string, partition int, bucket long, segments array<struct<first:long,end:long,value:long>>"


def test_ranks_are_moved_on_and_looked_up_in_segments(spark: SparkSession) -> None:
    frame = transforms.ranked(kafka_frame(spark, [record(n) for n in range(6)], [record(0, partition=1)]))
    bases = spark.createDataFrame([("t", 0, "s", 101)], "topic string, partition int, source_topic string, base long")
    segments = [
        ("t", 0, 50, [(90, 102, 7)]),
        ("t", 0, 51, [(102, 103, 8), (103, 104, -3)]),
        ("t", 0, 53, [(106, 107, 9)]),
    ]
    moved = transforms.placed(frame, bases)
    found = transforms.valued(moved, spark.createDataFrame(segments, SEGMENTS), 1, "value")
    assert_df_equality(
        found.select("source_topic", "offset", "rank", "value"),
        spark.createDataFrame(
            [("s", 0, 101, 7), ("s", 1, 102, 8), ("s", 2, 103, -3), ("s", 5, 106, 9)],
            "source_topic string, offset long, rank long, value long",
        ),
        ignore_nullable=True,
        ignore_row_order=True,
    )


def test_chunks_hold_counts_ends_and_anchors(spark: SparkSession) -> None:
    rows = [record(10 + 2 * n, f"v{n}".encode(), ms=1000 + n) for n in range(10)]
    frame = transforms.hashed(transforms.ranked(kafka_frame(spark, rows)))
    digests = [row["digest"] for row in frame.orderBy("offset").collect()]
    chunked = transforms.digests(frame.withColumn("aligned", F.col("rank")), 2)
    expected = [("t", 0, 0, 4, 0, 10, 16, 1000, 1003), ("t", 0, 1, 4, 4, 18, 24, 1004, 1007)]
    expected += [("t", 0, 2, 2, 8, 26, 28, 1008, 1009)]
    columns = "topic string, partition int, chunk long, records long, first_rank long, first_offset long, "
    columns += "last_offset long, first_ms long, last_ms long"
    assert_df_equality(
        chunked.drop("digest", "low", "high"),
        spark.createDataFrame(expected, columns),
        ignore_nullable=True,
        ignore_row_order=True,
    )
    first = chunked.where("chunk = 0").collect()[0]
    tops = [digest >> PLACE_BITS for digest in digests[:4]]
    assert first["low"] >> PLACE_BITS == min(tops)
    assert first["low"] & 3 == tops.index(min(tops))
    assert first["high"] >> PLACE_BITS == max(tops)
    assert first["high"] & 3 == tops.index(max(tops))


def test_the_digest_of_a_chunk_knows_order_and_pairs(spark: SparkSession) -> None:
    orders = [[b"a", b"b", b"c", b"d"], [b"b", b"a", b"c", b"d"], [b"a", b"a", b"d", b"d"], [b"b", b"b", b"c", b"c"]]
    rows = [
        [record(offset, value, partition=number) for offset, value in enumerate(order)]
        for number, order in enumerate(orders)
    ]
    frame = transforms.hashed(transforms.ranked(kafka_frame(spark, *rows)))
    chunked = transforms.digests(frame.withColumn("aligned", F.col("rank")), 2).collect()
    assert len({row["digest"] for row in chunked}) == len(orders)


def test_chunks_that_differ_are_left_out(spark: SparkSession) -> None:
    frame = transforms.ranked(kafka_frame(spark, [record(n) for n in range(12)]))
    unlike = spark.createDataFrame([("t", 0, 1), ("u", 0, 2)], "topic string, partition int, chunk long")
    found = transforms.outside(frame.withColumn("aligned", F.col("rank")), unlike, 2)
    assert sorted(row["offset"] for row in found.collect()) == [0, 1, 2, 3, 8, 9, 10, 11]


def test_opened_records_get_their_verdicts(spark: SparkSession) -> None:
    rows = [record(n, f"v{n}".encode(), key=f"k{n}".encode(), ms=n) for n in range(10)]
    changed = [*rows[:2], *rows[3:5], rows[4], record(5, b"new", key=b"k5", ms=5), rows[7], rows[6], *rows[8:]]
    target = [(*row[:4], 100 + place, *row[5:]) for place, row in enumerate(changed)]
    sides = [
        transforms.by_field(transforms.hashed(transforms.ranked(kafka_frame(spark, side)))).withColumn(
            "interval", F.lit(3)
        )
        for side in (rows, target)
    ]
    source_side, target_side = sides
    found = opened_chunks.findings(source_side, target_side)
    seen = sorted(
        (row["verdict"], row["records"], row["fields"], row["source_offset"], bytes(row["key"] or b""))
        for row in found.collect()
    )
    assert [entry for entry in seen if entry[0] not in ("reordered", "doubled")] == [
        ("altered", 1, "value", 5, b"k5"),
        ("missing", 1, "", 2, b"k2"),
        ("same", 7, "", None, b""),
    ]
    assert [entry[0] for entry in seen].count("reordered") == 1
    assert [entry[0] for entry in seen].count("doubled") == 1
    firsts = {row["verdict"]: (row["source_rank"], row["target_rank"]) for row in transforms.firsts(found).collect()}
    assert firsts.keys() == {"same", "missing", "altered", "doubled", "reordered"}
    assert (firsts["same"], firsts["missing"], firsts["altered"]) == ((0, 0), (2, None), (5, 5))


def test_intervals_are_compared_apart(spark: SparkSession) -> None:
    rows = [record(n, f"v{n}".encode()) for n in range(6)]
    frame = transforms.by_field(transforms.hashed(transforms.ranked(kafka_frame(spark, rows))))
    source = frame.withColumn("interval", F.when(F.col("rank") < 3, 0).otherwise(1))
    found = opened_chunks.findings(source, source.where("rank != 4"))
    per = sorted((row["verdict"], row["records"], row["source_rank"]) for row in found.collect())
    assert per == [("missing", 1, 4), ("same", 2, 3), ("same", 3, 0)]
