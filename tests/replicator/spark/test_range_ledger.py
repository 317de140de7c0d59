"""The Parquet list of ranges: every answer of every round, readable by anybody."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from replicator.jobs.range_copy import RangeDone
from replicator.jobs.ranges import Range
from replicator.model.errors import Incident, Unreachable
from replicator.model.partition import Partition
from replicator.spark.range_ledger import RangeLedger

T0, T1, KEPT = Partition("t", 0), Partition("t", 1), Partition("t", 2)


def test_rounds_are_appended_and_read_back(spark: SparkSession, tmp_path: Path) -> None:
    ledger = RangeLedger(spark, tmp_path / "ran ges")
    stopped = Incident("record_too_large", "what", topic="t", partition=1, offset=7)
    first = [
        RangeDone(T1, 7, 6, 60, 0.5, "host:1:abc", stopped),
        RangeDone(T0, 10, 9, 90, 1.5, "host:2:abc"),
        RangeDone(KEPT, 3, 0, 0, 0.1, "host:2:def"),  # only kept its position alive: no range of the round
    ]
    ledger.append(0, [Range(0, T0, 0, 10), Range(0, T1, 0, 10)], first)
    ledger.append(1, [Range(1, T0, 10, 15)], [RangeDone(T0, 15, 5, 50, 0.25, "other:3:abc")])
    ledger.append(2, [], [])
    columns = (
        "round",
        "topic",
        "partition",
        "start",
        "end",
        "position",
        "records",
        "bytes",
        "seconds",
        "host",
        "error",
    )
    rows = spark.read.parquet(str(tmp_path / "ran ges")).orderBy("round", "partition").select(*columns).collect()
    assert [tuple(row) for row in rows] == [
        (0, "t", 0, 0, 10, 10, 9, 90, 1.5, "host", None),
        (0, "t", 1, 0, 10, 7, 6, 60, 0.5, "host", str(stopped)),
        (1, "t", 0, 10, 15, 15, 5, 50, 0.25, "other", None),
    ]


def test_a_ledger_that_cannot_be_written_is_named(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    ledger = RangeLedger(spark, tmp_path / "file" / "ranges")
    with pytest.raises(Unreachable, match=r"the ledger .*/file/ranges cannot be written: "):
        ledger.append(0, [Range(0, T0, 0, 10)], [RangeDone(T0, 10, 9, 90, 1.5, "host:2:abc")])
