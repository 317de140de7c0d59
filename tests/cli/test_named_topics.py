"""Topics named on a command line: an empty name, as a variable that isn't set leaves it, never means the whole flow."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from cli import main

pytestmark = pytest.mark.tier("default")

FLOW = """
clusters:
  a: { properties: { bootstrap.servers: "127.0.0.1:1" } }
  b: { properties: { bootstrap.servers: "127.0.0.1:2" } }
flows:
  orders: { source: a, target: b, topics: [orders, bills, payments], limits: {connect_timeout_ms: 1000} }
"""
YES = ["--yes-i-mean", "orders"]


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "flows.yaml"
    path.write_text(FLOW)
    return str(path)


@pytest.mark.parametrize("named", ["", ",", "orders,,bills", "orders,", " "])
@pytest.mark.parametrize(
    "command",
    [
        ["failover", *YES],
        ["failover", "--undo", *YES],
        ["failover", "--rehearse"],
        ["failover", "--show"],
        ["pause"],
        ["resume"],
        ["rate", "--reset"],
        ["verify"],
        ["reconcile", "--local"],
        ["backfill"],
    ],
    ids=" ".join,
)
def test_an_empty_name_is_refused(
    file: str, command: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.invoke([*command, "-c", file, "--topics", "bills", "--topics", named]) == 2
    said = capsys.readouterr().err
    assert f"'--topics': {named!r} has an empty name. To mean all, leave --topics out" in said


def test_an_empty_topic_that_may_be_split_is_refused(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.invoke(["failover", "-c", file, "--undo", "--split", "", *YES]) == 2
    assert "leave --split out" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "The whole flow orders stops, all its topics"),
        (["--undo"], "The whole flow orders copies again, all its topics"),
        (
            ["--topics", "payments,bills"],
            "Of flow orders only these topics are stopped, and the others go on: bills, p",
        ),
        (["--topics", "bills", "--undo"], "Of flow orders only these topics are copied again"),
    ],
)
def test_before_it_is_confirmed_a_failover_says_what_of_the_flow_it_is_about(
    file: str, options: list[str], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("no\n"))
    assert main.invoke(["failover", "-c", file, *options]) == 1
    found = capsys.readouterr().err
    assert said in found
    assert found.index(said) < found.index("Type orders to go on")
