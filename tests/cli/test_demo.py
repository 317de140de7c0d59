"""The demo as a user runs it: its result, its exit code, and what it leaves behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cli.commands import demo as command
from cli.demo.compare import Comparison
from cli.demo.model import DemoFailed, DemoResult

pytestmark = pytest.mark.tier("default")  # whole demos

SMALL = ("--records", "1500", "--seconds", "3", "--seed", "7", "--json")
DONE_S_MAX = 120


def start(directory: Path, *options: str) -> subprocess.Popen[str]:
    """The demo with its temporary files in `directory`."""
    return subprocess.Popen(
        [sys.executable, "-m", "cli.main", "demo", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(directory)},
        start_new_session=True,
        preexec_fn=_hear_sigint,
    )


def _hear_sigint() -> None:
    """As in a terminal: what a shell runs in the background ignores SIGINT, and so do all of its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A demo that is in the middle of copying, with all of its children."""
    process = start(tmp_path, "--seconds", "60", "--kills", "1", "--json")
    try:
        assert process.stdout is not None
        assert any(json.loads(line).get("copied") for line in process.stdout), "it copies"
        give_up_s = time.monotonic() + DONE_S_MAX
        while len(there := children(tmp_path)) != 4:  # the replicator may just be killed, and started again
            assert time.monotonic() < give_up_s, f"two brokers, the load and the replicator, not {there}"
            time.sleep(0.05)
        yield process
    finally:
        process.kill()
        process.wait()


def children(directory: Path) -> list[str]:
    """Command lines of processes that work in `directory`, or on its brokers."""
    listed = subprocess.run(
        ["ps", "-ww", "-eo", "args"], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    flow = next(directory.glob("eos-demo-*/flow.yaml"), None)
    marks = [str(directory)]
    if flow is not None:
        marks += [line.split('"')[1] for line in flow.read_text().splitlines() if "bootstrap.servers" in line]
    return [line for line in listed if "cli.demo.die_with_parent" in line and any(mark in line for mark in marks)]


def result(process: subprocess.Popen[str]) -> tuple[int, list[dict[str, Any]]]:
    out, err = process.communicate(timeout=DONE_S_MAX)
    assert err == "", err
    return process.returncode, [json.loads(line) for line in out.splitlines()]


def test_everything_is_killed_and_nothing_lost(tmp_path: Path) -> None:
    code, told = result(start(tmp_path, *SMALL, "--kills", "2", "--broker-kills", "1"))
    last = told[-1]
    assert code == 0, last
    faults = {"lost": 0, "doubled": 0, "reordered": 0, "altered": 0}
    assert {name: last[name] for name in faults} == faults
    assert (last["worker_kills"], last["broker_kills"]) == (2, 1)
    assert last["records_source"] == last["records_target"] >= 1500
    assert last["proof"] == "agrees"
    assert {"copied", "committed", "lag", "worker_kills"} <= told[0].keys()
    assert [line["event"] for line in told] == ["progress"] * (len(told) - 1) + ["result"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.tier("long")
def test_each_delivery_mode_is_worth_what_it_says(tmp_path: Path) -> None:
    code, told = result(start(tmp_path, *SMALL, "--kills", "3", "--broker-kills", "0", "--compare"))
    modes = told[-1]["modes"]
    assert code == 0, modes
    assert modes["at_most_once"]["lost"] > 0
    assert modes["at_most_once"]["doubled"] == 0
    assert modes["at_least_once"]["lost"] == 0
    assert modes["at_least_once"]["doubled"] > 0
    assert all(modes["exactly_once"][fault] == 0 for fault in ("lost", "doubled", "reordered", "altered"))
    assert {mode["worker_kills"] for mode in modes.values()} == {3}
    assert told[-1]["lost"] == 0, "the flat fields are those of exactly_once"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_it_leaves_nothing(
    running: subprocess.Popen[str], tmp_path: Path, number: signal.Signals, code: int
) -> None:
    running.send_signal(number)
    _, err = running.communicate(timeout=20)
    assert running.returncode == code, err
    assert "Traceback" not in err
    assert children(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.tier("full")
def test_kept_files_are_named(tmp_path: Path) -> None:
    process = start(tmp_path, *SMALL, "--kills", "0", "--broker-kills", "0", "--keep")
    out, err = process.communicate(timeout=DONE_S_MAX)
    assert process.returncode == 0, err
    assert json.loads(out.splitlines()[-1])["worker_kills"] == 0
    (kept,) = tmp_path.iterdir()
    assert str(kept) in err
    assert {"source", "target", "flow.yaml", "replicator.log"} <= {path.name for path in kept.iterdir()}


@pytest.mark.tier("extended")
@pytest.mark.parametrize(
    ("verdict", "code"),
    [
        (Comparison(2, 2), 0),
        (Comparison(2, 1, lost=(b"#1",)), 1),
        (Comparison(2, 3, doubled=(b"#1",)), 1),
        (Comparison(2, 2, reordered=(b"#1",)), 1),
        (Comparison(2, 2, altered=(b"#1",)), 1),
    ],
)
def test_any_fault_is_failure_and_keeps_the_evidence(
    verdict: Comparison, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    found = DemoResult({("orders", 0): verdict}, 5, 1, (), 1.0)
    monkeypatch.setattr(command, "_run", lambda *_: found)
    shown = CliRunner().invoke(command.demo, ["--seed", "1"], standalone_mode=False)
    assert (shown.return_value, shown.exception) == (code, None)
    assert bool(list(tmp_path.iterdir())) == bool(code)


def test_a_demo_without_a_verdict_is_an_error_with_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> DemoResult:
        raise DemoFailed("the target ended by itself")

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(command, "_run", broken)
    shown = CliRunner().invoke(command.demo, ["--seed", "1"])
    assert shown.exit_code == 1
    assert "Error: the target ended by itself" in shown.output
    assert str(tmp_path) in shown.output


@pytest.mark.tier("full")
@pytest.mark.timeout(300)
@pytest.mark.tier("default")  # the unit tier is full
def test_without_a_directory_to_write_into_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/proc")  # root, which may write nearly anywhere, runs some tests
    done = CliRunner().invoke(command.demo, ["--records", "10"])
    assert done.exit_code == 1
    assert "the demo needs a directory to write into: No such file or directory; set TMPDIR" in done.stderr


@pytest.mark.tier("full")
@pytest.mark.timeout(300)
def test_several_workers_share_the_flow(tmp_path: Path) -> None:
    """One is killed, then each is restarted in turn, and nothing is lost."""
    process = start(tmp_path, *SMALL, "--workers", "3", "--kills", "1", "--broker-kills", "0")
    out, err = process.communicate(timeout=2 * DONE_S_MAX)
    assert process.returncode == 0, err
    lines = [json.loads(line) for line in out.splitlines()]
    happened = [line["happened"] for line in lines if line.get("happened")]
    assert any("killed" in said for said in happened)
    assert sum("stopped and started again" in said for said in happened) == 3
    result = lines[-1]
    assert (result["lost"], result["doubled"], result["proof"]) == (0, 0, "agrees")
    assert [line.partition(":")[0] for line in result["timeline"]] == [f"lane {lane}" for lane in range(4)]
    assert not children(tmp_path)


@pytest.mark.tier("full")
@pytest.mark.timeout(300)
def test_the_source_dies_and_its_consumers_go_on_at_the_target(tmp_path: Path) -> None:
    process = start(tmp_path, "--failover", "--records", "3000", "--seconds", "3", "--seed", "7", "--json")
    out, err = process.communicate(timeout=2 * DONE_S_MAX)
    assert process.returncode == 0, err
    *steps, last = [json.loads(line) for line in out.splitlines()]
    assert [line["event"] for line in steps] == ["step"] * len(steps)
    assert last["records_target"] == last["processed_once"] + last["processed_twice"] > 1_000
    assert {last[fault] for fault in ("skipped", "lost", "doubled", "reordered", "altered")} == {0}
    assert last["processed_once"] > 0
    assert last["not_copied"] >= last["not_copied_but_processed_at_source"]
    assert not children(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("option", ["--kills=1", "--broker-kills=1", "--workers=2", "--compare"])
def test_a_failover_takes_no_option_that_means_nothing_there(option: str) -> None:
    found = CliRunner().invoke(command.demo, ["--failover", option])
    assert found.exit_code == 2
    assert f"goes without {option.partition('=')[0]}" in found.output


def test_a_comparison_is_of_one_worker() -> None:
    found = CliRunner().invoke(command.demo, ["--compare", "--workers", "2"])
    assert found.exit_code == 2
    assert "goes with one worker" in found.output


def test_a_comparison_needs_a_kill_for_each_weaker_mode() -> None:
    shown = CliRunner().invoke(command.demo, ["--compare", "--kills", "1"])
    assert shown.exit_code == 2
    assert "--kills 2" in shown.output
