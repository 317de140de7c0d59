"""Hooks: what they get, what is kept of what they say, and that nothing of them is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from replicator.config.failover_settings import FailoverSettings
from replicator.failover.hook_runner import LINES_SHOWN, HookRunner
from replicator.failover.hooks import OUTPUT_BYTES_MAX, cannot_start, run_hook
from replicator.failover.steps import FailoverStep, Steps, UnwatchedSteps
from replicator.model.errors import HookFailed

pytestmark = pytest.mark.tier("default")

GONE_S = 10.0


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], list[str]]:
    """Makes an executable of lines of sh."""

    def make(text: str) -> list[str]:
        path = tmp_path / "hook"
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return [str(path)]

    return make


Script = Callable[[str], list[str]]


def wait_gone(file: Path) -> None:
    """Until none of the processes runs whose ids stand in a file."""
    pids = [int(word) for word in file.read_text().split()]
    assert pids
    deadline_s = time.monotonic() + GONE_S
    while any(running(pid) for pid in pids):
        assert time.monotonic() < deadline_s, "it runs still"
        time.sleep(0.02)


def running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat")
    return not (state.exists() and state.read_text().rpartition(")")[2].split()[0] == "Z")


def test_it_gets_json_and_what_it_says_is_kept(script: Script) -> None:
    result = run_hook(script("cat; echo and more >&2"), {"flow": "f", "rows": ["ä"]}, 30.0)
    assert not result.failure
    first, second = result.output.splitlines()
    assert json.loads(first) == {"flow": "f", "rows": ["ä"]}
    assert second == "and more"


def test_it_need_not_read_what_it_gets(script: Script) -> None:
    assert run_hook(script("exit 0"), {"rows": ["x" * 1_000_000]}, 30.0).failure == ""


@pytest.mark.parametrize(
    ("text", "failure"), [("exit 3", "exit code 3"), ("kill -SEGV $$", "SIGSEGV"), ("kill -40 $$", "signal 40")]
)
def test_another_end_than_0_is_a_failure(script: Script, text: str, failure: str) -> None:
    assert failure in run_hook(script(text), {}, 30.0).failure


def test_what_can_not_be_started_is_a_failure(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("no program")
    assert "is not executable" in cannot_start([str(text)])
    assert "there is no file" in cannot_start([str(tmp_path / "nothing")])
    assert "is a directory" in cannot_start([str(tmp_path)])
    assert "in PATH" in cannot_start(["no-such-command-anywhere"])
    assert cannot_start(["sh", "-c", "exit 1"]) == ""
    assert "can't be started" in run_hook([str(text)], {}, 1.0).failure


def test_at_its_deadline_it_is_killed_with_all_that_it_has_started(script: Script, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    hanging = f"trap '' TERM INT HUP; echo begun\nsleep 600 & echo $! $$ > {pids}; while :; do sleep 600; done"
    began_s = time.monotonic()
    result = run_hook(script(hanging), {"x": "y" * 1_000_000}, 1.0)
    assert time.monotonic() - began_s < 10
    assert result.failure == "it didn't end within 1 s, and was killed"
    assert result.output == "begun\n"
    wait_gone(pids)


def test_what_it_leaves_behind_is_killed_when_it_ends(script: Script, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    began_s = time.monotonic()
    assert run_hook(script(f"sleep 600 & echo $! > {pids}"), {}, 60.0).failure == ""
    assert time.monotonic() - began_s < 10, "it holds the pipe"
    wait_gone(pids)


def test_of_endless_output_the_end_is_kept(script: Script) -> None:
    result = run_hook(script("head -c 3000000 /dev/zero | tr '\\0' x; printf '\\377 the end'"), {}, 30.0)
    assert not result.failure
    assert result.output.endswith("\N{REPLACEMENT CHARACTER} the end")
    assert len(result.output) == OUTPUT_BYTES_MAX
    assert result.left_out == 3_000_009 - OUTPUT_BYTES_MAX
    assert "was killed" in run_hook(script("exec yes"), {}, 1.0).failure


def test_it_can_not_leave_its_group_to_live_on(script: Script, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    left = f"import os, time; os.setsid(); open({str(pids)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    assert "was killed" in run_hook([sys.executable, "-c", left], {}, 3.0).failure
    wait_gone(pids)


def test_what_leaves_its_group_holds_no_thread_and_no_file_of_ours(tmp_path: Path) -> None:
    """Whatever it does with its pipes: this reads nothing of what it gets."""
    pids = tmp_path / "pids"
    left = f"import os, time\nif os.fork() == 0:\n os.setsid()\n open({str(pids)!r}, 'a').write(f'{{os.getpid()}} ')"

    def run(times: int) -> tuple[int, int]:
        for _ in range(times):
            words = [sys.executable, "-c", f"{left}\n os.kill(os.getppid(), 9)\n time.sleep(600)\ntime.sleep(600)"]
            assert "SIGKILL" in run_hook(words, {"rows": "x" * 1_000_000}, 30.0).failure
        return threading.active_count(), len(list(Path("/dev/fd").iterdir()))

    try:
        before = run(1)
        assert run(20) == before
    finally:
        for pid in pids.read_text().split():
            os.kill(int(pid), signal.SIGKILL)


DIES_AT_ONCE = """
import os, pathlib, signal, subprocess, time
from replicator.failover import hooks

class DyingWhenItIsStarted(subprocess.Popen):
    def __init__(self, command, **options):
        super().__init__(command, **options)
        if command == {command!r}:
            while not pathlib.Path({pids!r}).exists():
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGKILL)

subprocess.Popen = DyingWhenItIsStarted
hooks.run_hook({command!r}, {{}}, 600)
"""


def test_nobody_is_left_where_its_runner_is_killed_as_soon_as_it_has_started_it(script: Script, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    command = script(f"echo $$ > {pids}.new; mv {pids}.new {pids}; sleep 600")
    program = DIES_AT_ONCE.format(command=command, pids=str(pids))
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=60).returncode == -signal.SIGKILL
    wait_gone(pids)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_it_ends_with_whoever_runs_it(script: Script, tmp_path: Path, number: signal.Signals) -> None:
    pids = tmp_path / "pids"
    command = script(
        f"trap '' TERM INT HUP; sleep 600 & echo $! $$ > {pids}.new; mv {pids}.new {pids}; wait; sleep 600"
    )
    program = f"from replicator.failover.hooks import run_hook; run_hook({command!r}, {{}}, 600)"
    with subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.DEVNULL) as runner:
        deadline_s = time.monotonic() + 60
        while not pids.exists():
            assert time.monotonic() < deadline_s
            time.sleep(0.02)
        runner.send_signal(number)
        assert runner.wait(30) != 0
    wait_gone(pids)


class Noted(UnwatchedSteps):
    """Keeps what is said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def note(self, step: FailoverStep, text: str) -> None:
        self.said.append(text)

    def ended(self, step: FailoverStep, *, done: bool) -> None:
        self.said.append("done" if done else "failed")

    def skipped(self, step: FailoverStep, why: str) -> None:
        self.said.append(f"skipped {why}")


def runner_of(noted: Noted, command: list[str], *, left_out: bool = False) -> HookRunner:
    return HookRunner(FailoverSettings(on_freeze=tuple(command)), Steps(noted), left_out=left_out)


def test_what_it_says_is_shown_without_what_a_terminal_obeys(script: Script) -> None:
    noted = Noted()
    command = script("printf 'a\\033[2Jb\\n'; exit 1")
    with pytest.raises(HookFailed, match="hook on_freeze: it ended with exit code 1"):
        runner_of(noted, command).run("on_freeze", FailoverStep.ON_FREEZE, {})
    assert noted.said == ["a\\u001b[2Jb", "failed"]


def test_of_many_lines_the_last_are_shown(script: Script) -> None:
    noted = Noted()
    runner_of(noted, script("seq 1 1000")).run("on_freeze", FailoverStep.ON_FREEZE, {})
    assert noted.said == [
        f"{1000 - LINES_SHOWN} lines of output not shown", *map(str, range(1001 - LINES_SHOWN, 1001)), "done"
    ]  # fmt: skip


def test_without_hooks_none_is_checked_or_run() -> None:
    noted = Noted()
    runner = runner_of(noted, ["/nowhere"], left_out=True)
    runner.check("on_freeze")
    runner.run("on_freeze", FailoverStep.ON_FREEZE, {})
    runner.run("on_verdict", FailoverStep.ON_VERDICT, {})
    assert (noted.said, runner.checked()) == (["skipped --no-hooks", "skipped "], [])
    with pytest.raises(HookFailed, match="Nothing was changed"):
        runner_of(noted, ["/nowhere"]).check("on_freeze", "on_verdict")
