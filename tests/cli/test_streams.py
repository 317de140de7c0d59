"""Standard output and error of the process: full, closed, or without a reader."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

MODULE = [sys.executable, "-m", "cli.main"]
WATCHED = """
import os, sys
from cli import main
def invoke(arguments):
    from cli.captured import console_for_progress
    from cli.commands.failover_watch import StepWatch
    from replicator.failover.steps import RUN, FailoverStep, Steps
    with StepWatch("orders", RUN, console_for_progress()) as watch:
        steps = Steps(watch)
        for step in RUN:
            with steps.step(step):
                pass
    with open(os.devnull, "w") as file:
        print(file.fileno() > 2)
    return 0
main.invoke = invoke
main.entry()
"""


def run(words: list[str], redirected: str) -> subprocess.CompletedProcess[str]:
    """A command under a shell that redirects its streams."""
    command = ["sh", "-c", f'"$@" {redirected}', "sh", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.tier("default")
@pytest.mark.parametrize(
    ("redirected", "why"), [(">/dev/full", "No space left on device"), (">&-", "Bad file descriptor")]
)
def test_a_result_that_cannot_be_written_is_said_in_a_line(redirected: str, why: str) -> None:
    done = run([*MODULE, "schema"], redirected)
    assert done.returncode == 120
    assert done.stderr == f"Error: standard output can't be written: {why}\n"


@pytest.mark.tier("default")
@pytest.mark.parametrize("redirected", ["2>/dev/full", "2>&-"])
def test_what_cannot_be_said_changes_no_exit_code(redirected: str, tmp_path: Path) -> None:
    assert run([*MODULE, "validate", "-c", str(tmp_path / "none.yaml")], redirected).returncode == 2


@pytest.mark.tier("default")
@pytest.mark.parametrize("redirected", ["2>/dev/full", "2>&-", ""])
def test_progress_that_nobody_can_read_ends_nothing(redirected: str) -> None:
    done = run([sys.executable, "-c", WATCHED], redirected)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


@pytest.mark.tier("default")
def test_progress_whose_reader_has_left_ends_nothing() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as nobody_reads:
        done = subprocess.run(
            [sys.executable, "-c", WATCHED], stdout=subprocess.PIPE, stderr=nobody_reads, text=True, timeout=60,
            check=False,
        )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "True\n")
