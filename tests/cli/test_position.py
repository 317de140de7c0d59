"""`position`: what is wrong with a command line is said before anything is asked or written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli import main
from cli.commands.position_set import consequences
from replicator.jobs.position_plan import PlannedPosition
from replicator.model.checkpoint import Evidence, Position
from replicator.model.commands import Command
from replicator.model.partition import LogEnds, Partition

pytestmark = pytest.mark.tier("default")

FLOW = """
clusters:
  a: { properties: { bootstrap.servers: "127.0.0.1:1" } }
  b: { properties: { bootstrap.servers: "127.0.0.1:2" } }
flows:
  orders: { source: a, target: b, topics: [orders], rename: "{topic}.copy" }
"""
AT = ["--partition", "orders:0", "--offset", "3"]
WHY = ["--why", "x"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "flows.yaml"
    path.write_text(FLOW)
    return path


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (AT, "Missing option '--why'"),
        ([*AT, "--why", " "], "say why"),
        ([*AT, *WHY, "--json"], "--yes-i-mean FLOW"),
        ([*AT, *WHY, "--yes-i-mean", "order"], "the flow is orders"),
        (WHY, "say which positions"),
        ([*AT, "--partition", "orders:1", *WHY], "an --offset each"),
        ([*AT, *AT, *WHY], "orders[0] is named twice"),
        (["--partition", "orders", "--offset", "3", *WHY], "such as orders:0"),
        (["--partition", "orders:x", "--offset", "3", *WHY], "such as orders:0"),
        (["--partition", "orders:0", "--offset", "-3", *WHY], "x>=0"),
    ],
)
def test_what_is_missing_is_said(options: list[str], said: str, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.invoke(["position", "set", *options, "-c", str(file)]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "options", "said"),
    [
        ("{", [], "can't be read as JSON"),
        ("{}", [], "holds no exported positions"),
        ("", ["--offset", "3"], "--offset goes with --partition alone"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(
    content: str, options: list[str], said: str, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    exported = tmp_path / "positions.json"
    exported.write_text(content)
    assert main.invoke(["position", "set", "--file", str(exported), *options, *WHY, "-c", str(file)]) == 2
    assert said in capsys.readouterr().err


def test_of_a_file_only_partitions_that_it_has_can_be_set(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"topic": "orders", "partition": 0, "offset": 3, "source_topic_id": "S", "target_topic_id": "T"}
    exported = tmp_path / "positions.json"
    exported.write_text(
        json.dumps({"format": "eos-replicate/positions", "version": 1, "flow": "orders", "positions": [row]})
    )
    words = ["--file", str(exported), "--partition", "orders:1", *WHY]
    assert main.invoke(["position", "set", *words, "-c", str(file)]) == 2
    assert "has no position of orders[1]" in capsys.readouterr().err


def test_what_follows_is_said_with_offsets_and_counts() -> None:
    evidence = Evidence(
        generation=1, owner="", source_topic="t", source_cluster="c", source_topic_id="S", target_topic_id="T"
    )

    def said(after: int, command: Command | None) -> str:
        log = LogEnds("S", 0, 30, 30)
        at, to = Partition("t", 0), Partition("t.copy", 0)
        before = Position(10, evidence)
        return " ".join(
            consequences(
                PlannedPosition(
                    source=at,
                    target=to,
                    before=before,
                    after=after,
                    command=command,
                    claim=None,
                    source_log=log,
                    target_log=log,
                )
            )
        )

    assert said(10, None) == "stands there already"
    assert "offsets 6 to 9 are copied again: up to 4 records" in said(6, Command.ADOPT)
    assert "offsets 10 to 14 are left out: up to 5 records" in said(15, Command.SKIP)
    assert "count as the copy of everything before source offset 15" in said(15, Command.ADOPT)
    warned = "source records from offset 10 on, these are copied a second time: set the offset after the last of them"
    assert warned in said(10, Command.ADOPT)
    assert "a second time" not in said(6, Command.ADOPT) + said(15, Command.SKIP)
