"""The end of the process: its exit code stands whatever happens while a process is taken down."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

CRASH = """
import os, sys
class CrashesInTheEnd:
    def __del__(self, end=os.abort):
        end()
sys.kept_until_modules_go = CrashesInTheEnd()
"""
COMMAND = """
import atexit, sys, time, os, signal
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.default_int_handler)  # whoever runs the tests may have them ignored
from cli import main
main.invoke = lambda arguments: (print("written", end=""), {code})[1]
{more}
main.entry()
"""
AT_EXIT = """
def last():
    {last}
invoke = main.invoke
main.invoke = lambda arguments: (atexit.register(last), invoke(arguments))[1]
"""


def run(code: int, more: str = "") -> subprocess.CompletedProcess[str]:
    script = COMMAND.format(code=code, more=more)
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=False)


@pytest.mark.parametrize("code", [0, 5])
def test_a_crash_while_modules_are_taken_down_changes_nothing(code: int) -> None:
    done = run(code, CRASH)
    assert (done.returncode, done.stdout) == (code, "written"), done.stderr


def test_handlers_of_atexit_run() -> None:
    done = run(3, AT_EXIT.format(last="print(' and said')"))
    assert (done.returncode, done.stdout) == (3, "written and said\n"), done.stderr


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_in_the_end_changes_nothing(name: str) -> None:
    done = run(4, AT_EXIT.format(last=f"os.kill(os.getpid(), signal.{name}); time.sleep(60)"))
    assert (done.returncode, done.stdout) == (4, "written"), done.stderr


def test_what_cannot_be_written_is_told() -> None:
    script = COMMAND.format(code=0, more="")
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-c", script], stdout=full, env=buffered, timeout=30, check=False)
    assert done.returncode == 120
