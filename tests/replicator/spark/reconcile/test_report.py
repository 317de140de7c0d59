"""Reports: the page stands alone and escapes what it shows, and a directory is complete or not there."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from pyarrow import parquet
from pyspark.sql import SparkSession

from replicator.model.errors import ConfigError, Incident
from replicator.model.partition import Partition
from replicator.spark import directories
from replicator.spark.reconcile import opened_chunks, report
from replicator.spark.reconcile.outcome import BUCKETS, Example, Outcome, PartitionOutcome
from replicator.spark.reconcile.verdicts import Finding


def outcome(*partitions: PartitionOutcome) -> Outcome:
    return Outcome(
        flow="f", source="a", target="b", mode="full", snapshot_ms=0, finished_ms=1, partitions=partitions,
        waiting=(Partition("t", 9),),
    )  # fmt: skip


def partition(**changes: object) -> PartitionOutcome:
    fields: dict[str, object] = {
        "source": Partition("t", 0),
        "target": Partition("a.t", 0),
        "source_offsets": (0, 10),
        "target_offsets": (0, 12),
        "source_records": 10,
        "target_records": 10,
        "position_records": 10,
        "source_counts_agree": True,
        "target_counts_agree": True,
        "chunks": 1,
        "chunks_differing": 0,
        "verdicts": {"same": 10},
        **changes,
    }
    return PartitionOutcome(**fields)  # type: ignore[arg-type]


DAMAGED = partition(
    chunks_differing=1,
    verdicts={"same": 8, "missing": 2, "expired_on_target": 3},
    places={"missing": [0, 2, *[0] * (BUCKETS - 2)], "expired_on_target": [3, *[0] * (BUCKETS - 1)]},
    examples=(
        Example("missing", "", 4, None, 1_700_000_000_123, b"<b>&"),
        Example("missing", "", 5, None, -1, b"\xff\x00"),
    ),
    notes=("a note",),
)


def test_agreement_is_counts_and_records() -> None:
    assert partition().agrees
    assert not partition(source_counts_agree=False).agrees
    assert not partition(verdicts={"same": 9, "doubled": 1}, chunks_differing=1).agrees
    assert not partition(chunks_differing=1).agrees, "a difference that nobody can name is one"
    removed = partition(verdicts={"same": 9, "compacted_on_target": 1}, chunks_differing=1)
    assert (removed.agrees, removed.removed) == (True, 1)
    assert (outcome(partition()).agrees, outcome(partition(), DAMAGED).agrees) == (True, False)


def test_what_is_unproven_is_neither_agreement_nor_a_difference() -> None:
    open_question = partition(verdicts={"same": 9, "unproven": 1}, chunks_differing=1)
    gone = Incident("target_topic_deleted", "it is gone", topic="t", partition=7)
    for found in (outcome(open_question), replace(outcome(partition()), not_compared=(gone,))):
        assert (found.agrees, found.differs, found.unproven) == (False, False, True)
        page = report.html(found)
        assert "agree" not in page.split("<title>")[1].split("</title>")[0]
        assert "No difference was found, but agreement isn't proven" in page
    assert "not compared: target_topic_deleted" in page


def test_the_page_says_what_was_found() -> None:
    page = report.html(outcome(partition(), DAMAGED))
    assert "The sides differ in 2 records; 20 were compared." in page
    assert "Note on t[0]: a note" in page
    assert '<a href="#p1">0</a>' in page
    assert page.count("t → a.t") == 1
    assert '<h2 id="p1">' in page
    assert "&lt;b&gt;&amp;" in page
    assert "<b>&" not in page
    assert "0xff00" in page
    assert "2023-11-14 22:13:20.123Z" in page
    assert 'x="1" width="1"' in page
    assert "2 missing" in page
    assert "nothing copied yet" in page
    assert "<script" not in page
    assert "http" not in page
    assert "Both sides agree: 10 records." in report.html(outcome(partition()))


def test_a_note_is_said_once() -> None:
    other = partition(source=Partition("t", 1), notes=("a note", "another"))
    assert outcome(DAMAGED, other).notes_said() == [("a note", []), ("another", [Partition("t", 1)])]


def test_the_chart_shows_the_gravest_verdict_of_each_place() -> None:
    assert [mark[:2] for mark in report.strip(DAMAGED)] == [(0, "expired_on_target"), (1, "missing")]


def test_json_is_for_machines() -> None:
    found = json.loads(json.dumps(outcome(DAMAGED).as_json()))
    assert found["agrees"] is False
    assert found["totals"] == {"same": 8, "missing": 2, "expired_on_target": 3}
    (row,) = found["partitions"]
    assert row["source"] == {"topic": "t", "partition": 0}
    assert row["places"] == {"missing": {"1": 2}, "expired_on_target": {"0": 3}}
    assert [item["key"] for item in row["examples"]] == ["<b>&", "0xff00"]
    assert found["waiting"] == [{"topic": "t", "partition": 9}]


@pytest.mark.parametrize("hadoop", [False, True])
def test_all_files_are_written_by_the_driver(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hadoop: bool
) -> None:
    """Where a URI names the directory, through Hadoop's file systems."""
    to = f"{tmp_path}/out"
    if hadoop:
        there = directories.HadoopDirectory(spark, f"file://{to}")
        monkeypatch.setattr(directories, "directory", lambda given, spark: there)
    rows = [
        ("t", 0, *Finding("missing", 1, source_offset=n, source_rank=n, digest=n, reason=str(n))) for n in (3, 1, 2)
    ]
    report.write(outcome(DAMAGED), spark.createDataFrame(rows, opened_chunks.FOUND), to)
    assert sorted(path.name for path in (tmp_path / "out").iterdir() if not path.name.startswith(".")) == [
        "findings.parquet",
        "report.html",
        "report.json",
    ]
    assert parquet.read_table(tmp_path / "out/findings.parquet").column("source_offset").to_pylist() == [1, 2, 3]
    with pytest.raises(ConfigError, match="exists already"):
        report.write(outcome(DAMAGED), spark.createDataFrame([], opened_chunks.FOUND), to)


def test_nothing_half_written_is_left(tmp_path: Path) -> None:
    out = tmp_path / "out"

    def fail() -> None:
        with report.complete(out) as part:
            (part / "half").touch()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert list(tmp_path.iterdir()) == []
    with report.complete(out) as part:
        (part / "whole").touch()
        assert not out.exists()
    assert [path.name for path in out.iterdir()] == ["whole"]


def test_what_exists_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="exists already"):
        directories.check_unused(tmp_path)
    (tmp_path / "link").symlink_to("nowhere")
    with pytest.raises(ConfigError, match="exists already"):
        directories.check_unused(tmp_path / "link")
    with pytest.raises(ConfigError, match="is not a directory"):
        directories.check_unused(tmp_path / "no" / "out")
