"""`reconcile` on the command line: what is wrong is said before Spark starts."""

from __future__ import annotations

import io
import os
import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from cli import main
from cli.commands import reconcile_show
from replicator.model.partition import Partition
from replicator.proof import snapshot
from replicator.proof.outcome import OffsetRange
from tests.replicator.spark.reconcile.sample_outcomes import ALTERED, EXAMPLE, HOSTILE, outcome, partition

ROOT = Path(__file__).parents[2]
FILE = """\
clusters:
  a: {properties: {bootstrap.servers: "127.0.0.1:1"}}
  b: {properties: {bootstrap.servers: "127.0.0.1:2"}}
flows:
  f: {source: a, target: b, topics: [t], limits: {connect_timeout_ms: 1000}}
"""


@pytest.fixture
def path(tmp_path: Path, java: None) -> Path:
    file = tmp_path / "flows.yaml"
    file.write_text(FILE)
    return file


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--quick", "--deep"], "--quick and --deep exclude each other"),
        (["--quick", "--repair", "plan"], "--quick does not name records"),
        (["--repair", "apply", "--to", "2026-01-01T00:00:00Z"], "--repair needs the whole topics"),
        (["--take-over"], "--take-over is for --repair apply"),
        (["--from", "2026-01-02T00:00:00Z", "--to", "2026-01-01T00:00:00Z"], "is not before --to"),
        (["--from", "2026-01-01T00:00:00"], "--from 2026-01-01T00:00:00: the time needs a zone"),
        (["--to", "yesterday"], "--to yesterday: expected a time such as"),
        (["--flow", "g"], "no flow g; it has f"),
        (["--conf", "memory=1g"], "--conf memory=1g: expected spark.NAME=VALUE"),
        (["--conf", "spark.jars.packages=org.apache.spark:spark-sql-kafka-0-10_2.12:3.5.0"], "does not fit"),
        (["--out", "."], ". exists already"),
    ],
)
def test_bad_input_is_refused(
    path: Path, arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.invoke(["reconcile", "-c", str(path), *arguments]) == 2
    assert expected in capsys.readouterr().err


def test_no_java_is_said(path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    assert main.invoke(["reconcile", "-c", str(path)]) == 2
    said = capsys.readouterr().err
    assert "Spark needs Java" in said
    assert "without Spark: --local" in said


def test_without_pyspark_the_comparison_by_the_map_is_named_where_the_flow_has_one(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main.invoke(["reconcile", "-c", str(path)]) == 2
    said = capsys.readouterr().err
    assert "needs pyspark" in said
    assert "without Spark: --local" in said
    path.write_text(path.read_text().replace("topics: [", "delivery: at_least_once, topics: ["))
    assert main.invoke(["reconcile", "-c", str(path)]) == 2
    said = capsys.readouterr().err
    assert "needs pyspark" in said
    assert "--local" not in said


def test_a_java_that_is_too_old_is_said_and_nothing_written(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    java = tmp_path / "home" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    before = set(tmp_path.iterdir())
    assert main.invoke(["reconcile", "-c", str(path), "--out", str(tmp_path / "out")]) == 2
    assert "needs Java 17 or later" in capsys.readouterr().err
    assert set(tmp_path.iterdir()) == before


@pytest.mark.tier("full")
def test_an_unreachable_cluster_is_named(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = set(path.parent.iterdir())
    assert main.invoke(["reconcile", "-c", str(path), "--out", str(path.parent / "out")]) == 3
    assert "cluster 'a' (127.0.0.1:1) did not answer" in capsys.readouterr().err
    assert set(path.parent.iterdir()) == before


def test_a_signal_stops_spark_and_is_an_interruption(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stopped = threading.Event()
    outside = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background has it ignored

    @contextmanager
    def running(chosen: object) -> Iterator[SimpleNamespace]:
        signal.signal(signal.SIGINT, lambda *_: None)  # a SparkContext takes it too
        tracker = SimpleNamespace(getActiveStageIds=lambda: [])
        yield SimpleNamespace(stop=stopped.set, sparkContext=SimpleNamespace(statusTracker=lambda: tracker))

    def interrupted(*_: object, **__: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        assert stopped.wait(10)
        raise AttributeError("what a stopped Spark says is not what happened")

    monkeypatch.setattr("replicator.spark.session.session", running)
    monkeypatch.setattr("replicator.proof.snapshot.take", lambda *_, **__: snapshot.Snapshot((), (), 0))
    monkeypatch.setattr("replicator.spark.reconcile.reconcile.reconcile", interrupted)
    before = set(path.parent.iterdir()), signal.getsignal(signal.SIGINT)
    try:
        assert main.invoke(["reconcile", "-c", str(path), "--out", str(path.parent / "out")]) == 130
        assert (set(path.parent.iterdir()), signal.getsignal(signal.SIGINT)) == before
    finally:
        signal.signal(signal.SIGINT, outside)
    assert "stopped Spark" not in capsys.readouterr().err


def test_the_terminal_shows_differences_and_not_what_retention_removed(capsys: pytest.CaptureFixture[str]) -> None:
    found = [
        OffsetRange(verdict=verdict, records=2, source_offsets=(at, at + 1), key=HOSTILE)
        for verdict in ("missing", "expired_on_target")
        for at in range(0, 50, 10)
    ]
    damaged = partition(
        source=Partition("orders", 3), target=Partition("a.orders", 3), source_records=90, target_records=77,
        position_records=90, position=90, lag=12, target_counts_agree=False, chunks_differing=1,
        verdicts={"same": 73, "missing": 10, "expired_on_target": 7}, ranges=tuple(found),
        ranges_found={"missing": 5, "expired_on_target": 5}, notes=("a note \x1b[31m",),
    )  # fmt: skip
    reconcile_show.show(Console(width=80), outcome(damaged, ALTERED), None)
    said = capsys.readouterr().out
    assert "orders → a.orders" in said
    assert len(re.findall(r"orders\[3\] +missing", said)) == 3
    assert "and 4 more records" in said
    assert "note on orders[3]: a note \\u001b[31m" in said
    assert "\x1b" not in said
    assert "\x00" not in said
    assert not re.search(r"orders\[3\] +expired", said)
    assert "t[1] altered, source offset 7, target offset 8:" in said
    assert re.search(r"  headers +source h=\"1\" *\n +\(5 bytes, SHA-256 .*\n +target null", said)
    assert "repair: 10 records missing." in said
    last = said.splitlines()[-1]
    assert last.startswith("The sides differ: 10 missing, 1 altered. 12 source offsets after the positions")
    for line in said.splitlines():
        assert len(line) <= 80 or line.startswith(("note", "The sides", "  b: ", "  a: ")), line


def test_sentences_are_wrapped_on_a_terminal() -> None:
    said = io.StringIO()
    note = "what a transaction has left open at the source is not compared, and neither is what stands behind it there"
    damaged = partition(source=Partition("orders", 3), target=Partition("a.orders", 3), notes=(note,))
    shown = outcome(damaged, ALTERED)
    reconcile_show.show(Console(width=80, file=said, force_terminal=True, color_system=None), shown, None)
    lines = said.getvalue().splitlines()
    assert [line for line in lines if len(line) > 80] == []
    assert f"note on orders[3]: {note}" in " ".join(" ".join(lines).split())


def test_the_page_shows_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    reconcile_show.show(Console(width=80), EXAMPLE, "report")
    printed = "\n".join(line.rstrip() for line in capsys.readouterr().out.splitlines())
    page = (ROOT / "docs/spark/reconcile.md").read_text()
    assert f"```text\n{printed}\n```\n" in page
