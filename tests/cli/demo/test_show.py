"""What is shown: zero is shown as zero, and a fault can't be overlooked."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace

import pytest
from rich.console import Console

from cli.demo import show
from cli.demo.compare import Comparison
from cli.demo.model import DemoResult, Progress, Proof, Settings

SETTINGS = Settings(records=10, seconds=2, kills=3, broker_kills=1, seed=42)
GOOD = DemoResult({("orders", 0): Comparison(10, 10), ("orders", 1): Comparison(5, 5)}, 3, 1, (0.5, 1.25), 9.5)
BAD = DemoResult({("orders", 0): Comparison(10, 9, lost=(b"#000000003",))}, 3, 1, (), 9.5)


def printed(what: object) -> str:
    console = Console(file=io.StringIO(), width=120)
    console.print(what)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_verdict_has_a_row_a_partition_and_a_sum() -> None:
    rows = [line.split("│") for line in printed(show.verdict_table(GOOD)).splitlines() if line.startswith("│")]
    cells = {row[1].strip(): [cell.strip() for cell in row[2:8]] for row in rows}
    assert cells["orders-0"] == ["10", "10", "0", "0", "0", "0"]
    assert cells["all"] == ["15", "15", "0", "0", "0", "0"]


@pytest.mark.parametrize("terminal", [True, False])
def test_every_event_has_a_line_of_its_own_before_the_table(terminal: bool) -> None:
    console = Console(file=io.StringIO(), width=80, force_terminal=terminal, force_interactive=False)
    progress = Progress("copying")
    with show.live(console, SETTINGS) as update:
        for number in range(12):
            progress.events.append(f"{number}.0 s: worker killed")
            update(progress)
            update(progress)
        progress.phase = "done"
        update(progress)
    console.print("the verdict")
    assert isinstance(console.file, io.StringIO)
    lines = [re.sub("\x1b.*?[A-Za-z]", "", line).strip() for line in console.file.getvalue().splitlines()]
    shown = [line for line in lines if re.match(r"\d+\.0 s: |exactly_once|the verdict", line)]
    assert shown[-2:] == ["exactly_once, seed 42, 0 s: done", "the verdict"]
    assert [line for line in shown if "killed" in line] == [f"{number}.0 s: worker killed" for number in range(12)]


def test_faults_are_said_and_named() -> None:
    assert show.verdict_lines(GOOD, SETTINGS) == [
        "Nothing lost, doubled, reordered or altered: 3 worker kills and 1 broker kill in 10 s (seed 42); "
        "slowest recovery 1.2 s.",
        show.SEE_MORE,
    ]
    agree = replace(GOOD, proof=Proof("agrees", "Both sides agree: 15 records."))
    assert agree.exact
    assert show.verdict_lines(agree, SETTINGS)[1:] == [
        "Proven by the offset map (reconcile --local): Both sides agree: 15 records.",
        show.SEE_MORE,
    ]
    differ = replace(GOOD, proof=Proof("differs", "The sides differ: 1 missing."))
    assert not differ.exact
    assert show.verdict_lines(differ, SETTINGS)[0].startswith("NOT exactly once")
    assert show.verdict_lines(differ, SETTINGS)[1:] == [
        "Proven by the offset map (reconcile --local): The sides differ: 1 missing."
    ]
    assert show.as_json(differ)["proof"] == "differs"
    said = show.verdict_lines(BAD, SETTINGS)
    assert said[0].startswith("NOT exactly once")
    assert said[1] == "orders-0: 1 lost: #000000003"


def test_the_result_is_flat_and_has_the_agreed_names() -> None:
    assert show.as_json(BAD) == {
        "records_source": 10,
        "records_target": 9,
        "lost": 1,
        "doubled": 0,
        "reordered": 0,
        "altered": 0,
        "worker_kills": 3,
        "broker_kills": 1,
        "seconds": 9.5,
        "recovery_s_max": 0.0,
    }
    assert show.as_json(GOOD)["recovery_s_max"] == 1.25


def test_the_live_view_shows_kills_out_of_those_planned() -> None:
    progress = Progress("copying", written=1200, copied=1000, committed=1100, lag=100, worker_kills=2)
    text = printed(show.progress_table(progress, SETTINGS))
    for part in ("2/3", "0/1", "1,000", "1,100", "seed 42"):
        assert part in text


def test_lines_of_json_come_at_changes_and_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    line, progress = show.lines(SETTINGS), Progress("copying")
    for tick in range(21):
        progress.seconds = tick / 10
        if tick == 12:
            progress.events.append("worker killed")
        line(progress)
    told = [json.loads(text) for text in capsys.readouterr().out.splitlines()]
    assert [event["seconds"] for event in told] == [0.0, 0.5, 1.0, 1.2, 1.7]
    assert [event["happened"] for event in told] == ["", "", "", "worker killed", ""]
