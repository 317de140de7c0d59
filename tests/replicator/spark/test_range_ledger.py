"""The Parquet list of ranges: every answer, readable by anybody, written by the driver."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from replicator.jobs.range_copy import RangeDone
from replicator.jobs.ranges import Range
from replicator.model.errors import ConfigError, Incident, Unreachable
from replicator.model.partition import Partition
from replicator.spark import directories, range_ledger
from replicator.spark.directories import HadoopDirectory, LocalDirectory
from replicator.spark.range_ledger import RangeLedger

T0, T1 = Partition("t", 0), Partition("t", 1)
DONE = RangeDone(T0, 10, 9, 90, 1.5, "host:2:abc")
STOPPED = Incident("record_too_large", "what", topic="t", partition=1, offset=7)
SHOWN = ("topic", "partition", "start", "end", "position", "records", "bytes", "seconds", "host", "error")


@pytest.fixture(params=["local", "hadoop"])
def directory(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> LocalDirectory | HadoopDirectory:
    """Both kinds, at the same place."""
    at = tmp_path / "ran ges"
    return LocalDirectory(at) if request.param == "local" else HadoopDirectory(spark, f"file://{at}")


def test_answers_are_written_and_read_back_by_spark(
    directory: LocalDirectory | HadoopDirectory, spark: SparkSession, tmp_path: Path
) -> None:
    ledger = RangeLedger("ranges", directory)
    ledger.append(Range(T0, 0, 10), DONE)
    ledger.append(Range(T1, 0, 10), RangeDone(T1, 7, 6, 60, 0.5, "host:1:abc", STOPPED))
    assert (ledger.written, (tmp_path / "ran ges").exists()) == (0, False), "nothing is said that isn't there"
    ledger.flush()
    ledger.flush()
    ledger.append(Range(T0, 10, 15), RangeDone(T0, 15, 5, 50, 0.25, "other:3:abc"))
    ledger.flush()
    assert ledger.written == 3
    assert len(list((tmp_path / "ran ges").glob("part-*.parquet"))) == 2
    rows = spark.read.parquet(str(tmp_path / "ran ges")).orderBy("partition", "start").select(*SHOWN).collect()
    assert [tuple(row) for row in rows] == [
        ("t", 0, 0, 10, 10, 9, 90, 1.5, "host", None),
        ("t", 0, 10, 15, 15, 5, 50, 0.25, "other", None),
        ("t", 1, 0, 10, 7, 6, 60, 0.5, "host", str(STOPPED)),
    ]


def test_a_file_is_written_now_and_then(
    directory: LocalDirectory | HadoopDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = RangeLedger("ranges", directory)
    ledger.append(Range(T0, 0, 10), DONE)
    monkeypatch.setattr(range_ledger, "WRITTEN_S", 0.0)
    ledger.append(Range(T0, 10, 20), DONE)
    assert ledger.written == 2


def test_a_directory_that_exists_is_refused(directory: LocalDirectory | HadoopDirectory, tmp_path: Path) -> None:
    (tmp_path / "ran ges").mkdir()
    with pytest.raises(ConfigError, match="exists already"):
        RangeLedger("ranges", directory)


def test_a_ledger_that_cannot_be_written_is_named(directory: LocalDirectory | HadoopDirectory, tmp_path: Path) -> None:
    ledger = RangeLedger("ranges", directory)
    (tmp_path / "ran ges").touch()
    ledger.append(Range(T0, 0, 10), DONE)
    with pytest.raises(Unreachable, match="the list of ranges ranges cannot be written: "):
        ledger.flush()
    assert ledger.written == 0


def test_what_is_given_is_a_directory_here_or_a_uri_that_spark_knows(spark: SparkSession, tmp_path: Path) -> None:
    for here in (str(tmp_path / "a b"), (tmp_path / "a b").as_uri()):
        found = directories.directory(here)
        assert isinstance(found, LocalDirectory)
        found.write("x", b"y")
    assert (tmp_path / "a b" / "x").read_bytes() == b"y"
    assert directories.directory("s3a://bucket/ranges") is None
    assert isinstance(directories.directory("s3a://bucket/ranges", spark), HadoopDirectory)
    with pytest.raises(ConfigError, match=r"nowhere://host/ranges cannot be written: .*nowhere"):
        RangeLedger("nowhere", HadoopDirectory(spark, "nowhere://host/ranges"))
