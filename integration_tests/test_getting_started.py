"""docs/getting-started.md, as a reader pastes it: all its commands in one shell, each prints what the page says."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration_tests.harness.broker import free_port

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs/getting-started.md").read_text()
STEP = re.compile(r"^```sh\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)
INSTALL = "make env"  # this environment is what it makes
STEP_S_MAX, PRINTED_S_MAX = 100.0, 15.0  # a step; what its background jobs print
POLL_S = 0.05


class Shell:
    """One bash that is given step after step; what it and its background jobs print goes to one file."""

    def __init__(self, directory: Path) -> None:
        self._output = directory / "output"
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        with self._output.open("w") as output:
            self._bash = subprocess.Popen(
                ["bash"], cwd=ROOT, stdin=subprocess.PIPE, stdout=output, stderr=output, text=True,
                env={**os.environ, "PATH": path}, start_new_session=True,
            )  # fmt: skip
        self._read = self._steps = 0

    def run(self, commands: str, expected: str) -> None:
        """Run the commands, and wait until they are done and have printed what is expected."""
        self._steps += 1
        done = f"[step {self._steps} is done]"
        assert self._bash.stdin is not None
        self._bash.stdin.write(f"{commands}echo '{done}'\n")
        self._bash.stdin.flush()
        deadline = time.monotonic() + STEP_S_MAX
        waits = True
        while True:
            printed = self._output.read_text()[self._read :]
            said = _said(printed.replace(f"{done}\n", ""))
            if done in printed and matches(expected, said):
                self._read += len(printed)
                return
            if waits and done in printed:
                waits, deadline = False, time.monotonic() + PRINTED_S_MAX
            assert time.monotonic() < deadline, f"{commands}printed\n{said}\ninstead of\n{expected}"
            assert self._bash.poll() is None, said
            time.sleep(POLL_S)

    def close(self) -> None:
        """End bash and everything that it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._bash.pid, signal.SIGKILL)
        self._bash.wait()


def _said(printed: str) -> str:
    """Without what bash itself says of jobs that were killed, and without blanks at the ends of lines."""
    lines = [line.rstrip() for line in printed.splitlines()]
    return "\n".join(line for line in lines if not re.match(r"bash: (line \d+: +)?\d+ (Killed|Terminated)", line))


def matches(expected: str, printed: str) -> bool:
    """Whether it was printed: `…` stands for anything in a line; alone in a line, for any lines."""
    pattern = "".join(
        r"(?:.*\n)*?" if line == "…" else re.escape(line).replace("…", ".*") + r"\n" for line in expected.splitlines()
    )
    return re.fullmatch(pattern, f"{printed}\n" if printed else "") is not None


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    running = Shell(tmp_path)
    yield running
    running.close()


@pytest.mark.tier("full")
def test_every_step_prints_what_the_page_says(shell: Shell, tmp_path: Path) -> None:
    steps = STEP.findall(TEXT)
    assert len(steps) == TEXT.count("```sh\n") > 9
    assert sum(bool(expected) for _, expected in steps) == TEXT.count("```text\n"), "an output stands behind no block"
    assert steps[0][0].startswith(INSTALL)
    here = {"/tmp/eos": f"{tmp_path}/eos", "19092": str(free_port()), "29092": str(free_port())}
    for commands, expected in steps[1:]:
        for example, mine in here.items():
            commands, expected = commands.replace(example, mine), expected.replace(example, mine)
        shell.run(commands, expected)
    assert not (tmp_path / "eos").exists()


@pytest.mark.parametrize(
    ("expected", "printed", "same"),
    [
        ("a\n…\nd\n", "a\nb\nc\nd", True),
        ("a\n…\nd\n", "a\nd", True),
        ("a … c\n", "a b c", True),
        ("a\n", "a\nb", False),
        ("a\n…\nd\n", "a\nb", False),
        ("", "", True),
        ("", "error", False),
    ],
)
def test_an_output_is_compared_line_by_line(expected: str, printed: str, same: bool) -> None:
    assert matches(expected, printed) is same
