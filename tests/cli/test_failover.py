"""`failover`: what is wrong with a command line is said before anything is asked; its steps are shown."""

from __future__ import annotations

import io
import re
from contextlib import suppress
from pathlib import Path

import pytest
from rich.console import Console

from cli import main
from cli.commands.failover_show import show
from cli.commands.failover_watch import StepWatch
from replicator.failover.steps import RUN, FailoverStep, Steps
from replicator.failover.verdict import FailoverVerdict

pytestmark = pytest.mark.tier("default")

FLOW = """
clusters:
  a: { properties: { bootstrap.servers: "127.0.0.1:1" } }
  b: { properties: { bootstrap.servers: "127.0.0.1:2" } }
flows:
  orders: { source: a, target: b, topics: [orders] }
"""


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--rehearse", "--undo"], 2, "one of them"),
        (["--show", "--undo"], 2, "one of them"),
        (["--undo", "--html", "x.html"], 2, "no verdict to write"),
        (["--yes-i-mean", "order"], 2, "the flow is orders"),
        (["--json"], 1, "not confirmed"),
        (["--yes-i-mean", "orders", "--out", "/nonexistent/x.json"], 2, "can't be written"),
        (["--yes-i-mean", "orders", "--html", "/dev/null"], 2, "it is no file"),
        (["--yes-i-mean", "orders", "--out", "x", "--html", "./x"], 2, "the same file"),
    ],
)
def test_what_is_wrong_is_said(
    options: list[str], code: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "flows.yaml"
    file.write_text(FLOW)
    assert main.invoke(["failover", "-c", str(file), *options]) == code
    assert said in capsys.readouterr().err


def test_a_verdict_is_told_with_when_and_by_whom() -> None:
    said = io.StringIO()
    verdict = FailoverVerdict(
        flow="orders", source="a", target="b", generation=4, by="ann", at_ms=1_800_000_000_000, ends_seen_ms=0,
        partitions=[], groups=[],
    )  # fmt: skip
    show(Console(width=80, file=said, force_terminal=True, color_system=None), verdict, stands=False)
    assert said.getvalue().splitlines()[:2] == [
        "orders: a → b, failed over (generation 4), and undone since",
        "Looked at 2027-01-15 08:00:00 UTC, by ann.",
    ]


def played(watch: StepWatch) -> None:
    """A failover whose first hook fails."""
    steps = Steps(watch)
    with watch:
        with steps.step(FailoverStep.LOOK):
            pass
        steps.skip(FailoverStep.FREEZE, "it was failed over already, by you")
        with suppress(ZeroDivisionError), steps.step(FailoverStep.ON_FREEZE):
            steps.note(FailoverStep.ON_FREEZE, "[bold]what it says[/]")
            raise ZeroDivisionError
        steps.skip(FailoverStep.ON_UNDO, "")
        with steps.step(FailoverStep.OPEN):
            pass


def test_in_a_pipe_each_step_is_a_line() -> None:
    out = io.StringIO()
    played(StepWatch("f", RUN, Console(file=out, width=60)))
    lines = [re.sub(r"^\d\d:\d\d:\d\d |\d+\.\d s$", "", line) for line in out.getvalue().splitlines()]
    assert lines == [
        "f: see how the flow stands",
        "f: done after ",
        "f: fence all workers: from here on nothing is copied: not done, it was failed over already, by you",
        "f: run the hook on_freeze",
        "  on_freeze: [bold]what it says[/]",
        "f: failed after ",
        "f: open the flow again",
        "f: done after ",
    ]


def test_on_a_terminal_the_table_has_all_steps_with_their_states_and_times() -> None:
    out = io.StringIO()
    played(StepWatch("f", RUN, Console(file=out, force_terminal=True, width=80)))
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", out.getvalue()).split("see how the flow stands")[-1]
    rows = [line.split() for line in shown.replace("\r", "").splitlines()[1:] if line.strip()]
    assert [row[0] for row in rows if row[0] in "·▸✓✗–"] == ["–", "✗", "·", "·", "·", "–", "✓"]  # noqa: RUF001
    assert rows[-1][-1] == "s"
    assert "what it says" in out.getvalue()
