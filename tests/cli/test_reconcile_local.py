"""`reconcile --local` on the command line: what is wrong is said before anything is asked, and nothing needs Spark."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from cli import main
from cli.commands.reconcile_local import chosen
from cli.commands.reconcile_progress import LocalProgress, offsets_done
from replicator.model.errors import ConfigError, Incident
from replicator.model.partition import Partition
from replicator.proof.local_findings import ReportedRecord, missing_spans
from replicator.proof.pairs import Pair
from replicator.proof.snapshot import Snapshot

pytestmark = pytest.mark.tier("default")

FILE = """\
clusters:
  a: {{properties: {{bootstrap.servers: "127.0.0.1:1"}}}}
  b: {{properties: {{bootstrap.servers: "127.0.0.1:2"}}}}
flows:
  f: {{source: a, target: b, topics: [t], delivery: {delivery}, limits: {{connect_timeout_ms: 1000}}}}
"""


def flow_file(directory: Path, delivery: str = "exactly_once") -> Path:
    file = directory / "flows.yaml"
    file.write_text(FILE.format(delivery=delivery))
    return file


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--quick"], "--quick: not with --local"),
        (["--deep", "--from", "2026-01-01T00:00:00Z"], "--deep and --from: not with --local"),
        (["--repair", "plan", "--quick"], "--quick: not with --local"),
        (["--take-over"], "--take-over is for --repair apply"),
        (["--master", "local[2]", "--conf", "a=b"], "--master and --conf: not with --local"),
        (["--out", "."], ". exists already"),
        (["--flow", "g"], "no flow g; it has f"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_asked(
    options: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.invoke(["reconcile", "-c", str(flow_file(tmp_path)), "--local", *options]) == 2
    assert said in capsys.readouterr().err


def test_a_flow_without_an_offset_map_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for delivery in ("at_least_once", "at_most_once"):
        assert main.invoke(["reconcile", "-c", str(flow_file(tmp_path, delivery)), "--local"]) == 2
        assert f"has delivery {delivery}, and no offset map" in capsys.readouterr().err


def test_partitions_are_chosen_with_local_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.invoke(["reconcile", "-c", str(flow_file(tmp_path)), "--partition", "1"]) == 2
    assert "--partition: only with --local" in capsys.readouterr().err


def test_a_repair_needs_the_clusters_and_no_spark(tmp_path: Path) -> None:
    for wanted in ("plan", "apply"):
        assert main.invoke(["reconcile", "-c", str(flow_file(tmp_path)), "--local", "--repair", wanted]) == 3


def missing(*offsets: int) -> list[ReportedRecord]:
    return [ReportedRecord("missing", offset, None) for offset in offsets]


def test_what_is_missing_is_told_as_ranges_of_consecutive_offsets() -> None:
    others = [ReportedRecord("altered", 7, 7), ReportedRecord("extra", None, 3)]
    assert missing_spans([*missing(5, 6, 8), *others]) == [(5, 7, 2), (8, 9, 1)]


def test_neither_spark_nor_arrow_is_loaded(tmp_path: Path) -> None:
    """`pip install eos-replicate` is enough: it fails here for nothing but the brokers that aren't there."""
    program = (
        "import sys; from cli import main; import replicator.proof.local, replicator.proof.local_report; "
        f"code = main.invoke(['reconcile', '-c', {str(flow_file(tmp_path))!r}, '--local']); "
        "print(code, [name for name in ('pyspark', 'pyarrow', 'numpy', 'pandas') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split("\n")[-2] == "3 []"


def test_progress_is_plain_lines_where_there_is_no_terminal() -> None:
    console = Console(width=200, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    with LocalProgress(console, "f") as progress:
        progress.step("comparing both sides", 1_000)
        progress.passed(400)
    assert "f: comparing both sides" in console.export_text()


def test_the_rate_and_what_is_left_are_told() -> None:
    assert offsets_done(0, 100, 0.0) == "0 of 100 offsets"
    assert offsets_done(25_000, 100_000, 0.5) == "25,000 of 100,000 offsets, 50,000 offsets/s, about 2 s left"
    assert offsets_done(100_000, 100_000, 2.0) == "100,000 of 100,000 offsets, 50,000 offsets/s"


def test_a_topic_that_cannot_be_compared_is_told_whatever_partitions_are_chosen() -> None:
    whole = Incident("unknown_source_topic", "there is no topic u", topic="u")
    other = Incident("source_truncated", "the log was cut", topic="t", partition=1)
    at, copy = Partition("t", 0), Partition("t.copy", 0)
    pair = Pair(source=at, target=copy, source_range=(0, 1), target_range=(0, 1))
    found = chosen(Snapshot((pair,), (), 0, (whole, other)), {0})
    assert (found.pairs, found.not_compared) == ((pair,), (whole,))
    with pytest.raises(ConfigError, match="no partition 2"):
        chosen(Snapshot((pair,), (), 0, (other,)), {2})
