"""`backfill` on the command line: what is wrong is said before Spark starts; what people and machines are shown."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import pytest
from rich.console import Console

from cli import main
from cli.captured import stderr_lines
from cli.commands import backfill_show, on_spark
from cli.commands.backfill_progress import STALL_S, Progress
from cli.commands.backfill_watch import LINE_S, Watch, line_of, notes, size_text
from cli.durations import time_text
from replicator import config
from replicator.config import Flow
from replicator.jobs.backfill import Backfill, BackfilledPartition, BackfillSummary
from replicator.jobs.engine import PartitionProgress
from replicator.jobs.range_copy import RangeDone
from replicator.jobs.ranges import Range
from replicator.model.errors import Incident, Unreachable
from replicator.model.partition import Partition

FILE = """\
clusters:
  a: {properties: {bootstrap.servers: "127.0.0.1:1"}}
  b: {properties: {bootstrap.servers: "127.0.0.1:2"}}
flows:
  f: {source: a, target: b, topics: [t], limits: {connect_timeout_ms: 1000}}
"""
T0, T1, U0 = Partition("t", 0), Partition("t", 1), Partition("u", 0)
RANGES = [Range(T0, 0, 1_000), Range(T0, 1_000, 2_000), Range(T1, 0, 500), Range(U0, 10, 110)]


@pytest.fixture
def path(tmp_path: Path, java: None) -> Path:
    file = tmp_path / "flows.yaml"
    file.write_text(FILE)
    return file


@pytest.fixture
def flow(path: Path) -> Flow:
    return config.load(path).flows["f"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--from", "2026-01-02T00:00:00Z", "--to", "2026-01-01T00:00:00Z"], "00:00Z is not before --to 2026"),
        (["--from", "2026-01-01T00:00:00"], "--from 2026-01-01T00:00:00: the time needs a zone"),
        (["--to", "yesterday"], "--to yesterday: expected a time such as"),
        (["--from", "t[0]=7", "--to", "t[0]=7", "--to", "t[1]=8"], "--from t[0]=7 is not before --to t[0]=7"),
        (["--from", "t[x]=7"], "--from t[x]=7: expected TOPIC[PARTITION]=OFFSET"),
        (["--from", "t[0]=-7"], "--from t[0]=-7: expected TOPIC[PARTITION]=OFFSET"),
        (["--to", "t[0]=7", "--to", "t[0]=8"], "--to t[0]=8: t[0] is given twice"),
        (["--to", "t[0]=7", "--to", "2026-01-02T00:00:00Z"], "a time is for all partitions"),
        (["--rate", "0"], "--rate"),
        (["--range", "0"], "--range"),
        (["--flow", "g"], "no flow g; it has f"),
        (["--conf", "memory=1g"], "--conf memory=1g: expected spark.NAME=VALUE"),
        (["--out", "."], ". exists already"),
        (["--out", "/nowhere/at/all"], "/nowhere/at is not a directory"),
    ],
)
def test_bad_input_is_refused(
    path: Path, arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.invoke(["backfill", "-c", str(path), *arguments]) == 2
    said = capsys.readouterr()
    assert expected in said.err
    assert not said.out


def test_no_java_is_said(path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    assert main.invoke(["backfill", "-c", str(path)]) == 2
    assert "Spark needs Java" in capsys.readouterr().err


@pytest.mark.tier("default")
def test_an_unreachable_cluster_is_named_before_spark_starts(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.invoke(["backfill", "-c", str(path), "--out", str(tmp_path / "out")]) == 3
    assert "cluster 'a' (127.0.0.1:1) did not answer" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def progress_of(*positions: int, records: int = 0) -> dict[Partition, PartitionProgress]:
    bounds = {T0: (0, 2_000), T1: (0, 500), U0: (10, 110)}
    return {
        at: PartitionProgress(*bounds[at], position, records)
        for at, position in zip((T0, T1, U0), positions, strict=True)
    }


def test_progress_adds_up() -> None:
    now_s = 100.0
    progress = Progress(lambda: now_s)
    progress.planned(3, RANGES, progress_of(-1, 0, 10))
    assert progress.ranges == 4
    assert (progress.total().fraction, progress.total().left_s, progress.total().bytes) == (0.0, None, 0)
    now_s = 102.0
    progress.moved(progress_of(1_000, 500, 10, records=300))
    total, (first, second) = progress.total(), progress.topics()
    assert (total.offsets, total.offsets_done, total.partitions, total.done) == (2_600, 1_500, 3, 1)
    assert (total.records, total.records_rate, total.bytes) == (900, 450.0, None)
    assert total.left_s == pytest.approx(1_100 / 750)
    assert (first.name, first.done, second.name, second.offsets_done, second.left_s) == ("t", 1, "u", 0, None)
    # A range has answered: its bytes are known, those of the others are reckoned from it.
    progress.answered(RangeDone(T1, 500, 300, 3_000, 1.0, "host:1:x"))
    assert (progress.total().bytes, progress.total().exact) == (9_000, False)
    progress.moved(progress_of(2_000, 500, 200, records=100))
    assert (progress.total().bytes, progress.total().exact, progress.total().left_s) == (3_000, True, 0.0)
    assert progress.total().fraction == 1.0


def test_rates_forget_and_stalls_are_told() -> None:
    now_s = 0.0
    progress = Progress(lambda: now_s)
    progress.planned(3, RANGES, progress_of(0, 0, 10))
    for second in range(1, 41):
        now_s = float(second)
        progress.moved(progress_of(min(second, 10) * 100, 0, 10, records=min(second, 10) * 10))
    assert progress.total().records_rate == 0.0, "what was copied half a minute ago says nothing about now"
    assert progress.total().left_s is None
    assert progress.stalled_s() == 30.0 == STALL_S
    progress.positions_unknown = "coordinator of b is loading"
    progress.stopping = True
    assert notes(progress) == [
        "nothing was committed for 30 s",
        "the positions cannot be read: coordinator of b is loading",
        "stopping; again to leave at once",
    ]
    assert line_of(progress) == (
        "38%, 1,000 of 2,600 offsets, 0 of 3 partitions done, 300 records, -, 0 records/s, - left"
    )
    progress.moved(progress_of(1_100, 0, 10))
    assert (progress.stalled_s(), progress.positions_unknown) == (None, "")


def test_without_a_terminal_lines_come_now_and_then(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now_s)
    said = io.StringIO()
    with Watch(flow, Console(file=said, width=160)) as watch:
        watch.planned(3, RANGES, progress_of(0, 0, 10))
        for second in range(25):
            now_s = float(second)
            watch.moved(progress_of(second * 20, 0, 10))

        class Full:
            written = 4

            def append(self, *_: object) -> None:
                raise Unreachable("the ledger out cannot be written: disk full")

        watch.ledger = Full()  # type: ignore[assignment]
        for _ in range(2):
            watch.answered(RANGES[0], RangeDone(T0, 1_000, 9, 90, 1.0, "host:1:x"))
        watch.ended()
        assert watch.ledger_rows == 0
    lines = [line.split(" ", 1)[1] for line in said.getvalue().splitlines()]
    assert lines[0] == "f: generation 3: 2,600 offsets of 3 partitions, in 4 ranges"
    assert lines[1].startswith("f: 7%, 200 of 2,600 offsets, 0 of 3 partitions done, 0 records, ")
    assert [" offsets, " in line for line in lines] == [False, True, True, False]
    assert int(LINE_S) == 10
    assert lines[3] == "f: warning: the ledger out cannot be written: disk full; it has 4 ranges and gets no more"


def test_what_stands_past_the_end_is_no_work_and_all_is_all() -> None:
    """A live worker copied on between the check and the backfill's generation: less than nothing is not left."""
    progress = Progress(lambda: 0.0)
    progress.planned(3, [], {T0: PartitionProgress(27_421, 500, 27_421, 0), T1: PartitionProgress(0, 1_000, 996, 0)})
    total = progress.total()
    assert (total.offsets, total.offsets_done, total.percent, total.done) == (1_000, 996, 99, 1)
    progress.moved({T1: PartitionProgress(0, 1_000, 1_000, 0)})
    assert (progress.total().percent, progress.total().left_s) == (100, 0.0)


def test_with_nothing_to_copy_spark_is_not_started(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Backfill, "check", lambda job: [])
    summary = BackfillSummary(None, 0.1, False, {T0: BackfilledPartition(7, 7, 7, 0)})
    monkeypatch.setattr(Backfill, "finish", lambda job: summary)
    monkeypatch.setattr(on_spark, "checked", lambda *given: None)
    monkeypatch.setattr(on_spark, "engine", lambda *given: pytest.fail("Spark is started"))
    assert main.invoke(["backfill", "-c", str(path)]) == 0
    assert "nothing to copy: every partition stands at its end; nothing was changed" in capsys.readouterr().out
    assert main.invoke(["backfill", "-c", str(path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["done"], told["generation"], told["records"], told["ledger"]) == (True, None, 0, None)


@pytest.mark.parametrize(
    ("outcomes", "state", "says"),
    [
        ({T0: BackfilledPartition(0, 10, 10, 9)}, "done", "backfilled: 9 records in 2 s, 4 a second (generation 3)"),
        ({T0: BackfilledPartition(0, 10, 5, 5)}, "not done", "run the same command again"),
        (
            {T0: BackfilledPartition(0, 10, 5, 5, Incident("word", "what", topic="t"))},
            "word",
            "incident of t[0]: word at t: what",
        ),
    ],
)
def test_the_end_is_told(flow: Flow, outcomes: dict[Partition, BackfilledPartition], state: str, says: str) -> None:
    summary = BackfillSummary(3, 2.0, False, outcomes)
    said = io.StringIO()
    watch = Watch(flow, Console(file=io.StringIO()))
    backfill_show.show(Console(file=said, width=160), flow, summary, watch, None)
    assert state in said.getvalue()
    assert says in said.getvalue()
    told = json.loads(json.dumps(backfill_show.as_json(flow, summary, watch, None)))
    assert (told["done"], told["records"]) == (state == "done", sum(found.records for found in outcomes.values()))
    assert (told["partitions"][0]["incident"] or {"name": state})["name"] == state


def test_sizes_and_times_are_readable() -> None:
    assert [size_text(size) for size in (0, 999, 1_000, 12_345_678, 5e15)] == [
        "0 B",
        "999 B",
        "1.0 KB",
        "12.3 MB",
        "5,000.0 TB",
    ]
    assert [time_text(seconds) for seconds in (0.4, 59, 61, 3_700, 100_000)] == [
        "0 s",
        "59 s",
        "1 min 1 s",
        "1 h 1 min",
        "1 d 3 h",
    ]


def test_what_others_write_to_stderr_comes_by_lines(capfd: pytest.CaptureFixture[str]) -> None:
    lines: list[str] = []
    with stderr_lines(lines.append):
        os.write(2, b"%4|a C library\nand\xff more")
        print("and Python", file=os.fdopen(2, "w", closefd=False))
    os.write(2, b"behind")
    assert lines == ["%4|a C library", "and\N{REPLACEMENT CHARACTER} moreand Python"]
    assert capfd.readouterr().err == "behind"
