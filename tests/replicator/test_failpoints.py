"""Fail points: a real process is killed at exactly the step and count that was asked for."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from replicator import failpoints
from replicator.model.errors import ConfigError

SCRIPT = """
from replicator import failpoints
failpoint = failpoints.parse("before_flush@2=kill")
for number in range(5):
    failpoint("before_flush"); failpoint("before_send")
    print(number, flush=True)
"""


def test_the_process_dies_at_the_second_pass() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60)
    assert done.returncode == -signal.SIGKILL
    assert done.stdout.split() == ["0"]


@pytest.mark.parametrize("text", ["nowhere@1=kill", "before_flush=kill", "before_flush@x=kill", "before_flush@1=nap"])
def test_what_cannot_be_understood_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="EOS_FAILPOINTS"):
        failpoints.parse(text)


def test_without_the_variable_nothing_happens() -> None:
    assert failpoints.parse("") is failpoints.nothing
