"""A run under nohup: it lives on when the terminal is gone, and what tests start can be sent that signal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.running.tiers import ROOT

TEST = """
import os, signal, subprocess

def test_a_child_is_ended_by_the_signals():
    os.kill(os.getpid(), signal.SIGHUP)
    os.kill(os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid(), signal.SIGHUP)
    for number in (signal.SIGHUP, signal.SIGINT):
        child = subprocess.Popen(["sleep", "60"])  # Python may take a signal just before it sleeps, and sleep on
        child.send_signal(number)
        assert child.wait(30) == -number
"""


@pytest.mark.tier("default")
@pytest.mark.parametrize("workers", ["0", pytest.param("1", marks=pytest.mark.tier("extended"))])
def test_children_have_the_default_where_this_run_ignores(tmp_path: Path, workers: str) -> None:
    (tmp_path / "test_child.py").write_text(TEST)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.running.signals", "-p", "no:cacheprovider"]
    command += ["--rootdir", str(tmp_path), "-n", workers, str(tmp_path)]

    def ignore() -> None:
        for number in (signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)

    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    done = subprocess.run(
        command, cwd=ROOT, preexec_fn=ignore, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
