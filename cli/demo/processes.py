"""Child processes that never outlive the demo, and brokers that come back on the same port with the same data."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

PR_SET_PDEATHSIG = 1
START_S_MAX = 20.0
STOP_S_MAX = 40.0
_PRCTL = ctypes.CDLL(None).prctl if sys.platform == "linux" else None


class ChildFailed(Exception):
    """A child process didn't do what it was started for; the message has the end of its output."""


def _die_with_parent() -> None:
    if _PRCTL is not None:
        _PRCTL(PR_SET_PDEATHSIG, signal.SIGKILL)


class Child:
    """One process of `python -m cli.main …` or of a module; its stderr goes to `log`."""

    def __init__(self, arguments: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> None:
        self.log = log
        self._arguments = [sys.executable, "-m", *arguments]
        self._env = {**os.environ, **(env or {})}
        with log.open("ab") as stderr:
            self.process = subprocess.Popen(
                self._arguments,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=self._env,
                start_new_session=True,  # ^C reaches the demo alone, which then stops its children in order
                preexec_fn=_die_with_parent,
            )

    def running(self) -> bool:
        """Whether the process lives."""
        return self.process.poll() is None

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """SIGTERM, wait; its exit code. One that doesn't leave in time is killed."""
        self.process.terminate()
        try:
            return self.process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ChildFailed(f"{' '.join(self._arguments[2:])} did not stop{self.tail()}") from None

    def wait(self, timeout_s: float) -> int | None:
        """Wait for its end; the exit code, or None when it still runs."""
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def first_line(self) -> str:
        """The first line on stdout; raises ChildFailed when it ends without one."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline().decode().strip()
        if not line:
            self.process.wait()
            raise ChildFailed(f"{' '.join(self._arguments[2:])} ended with {self.process.returncode}{self.tail()}")
        return line

    def tail(self, lines: int = 15) -> str:
        """The end of its log, for messages."""
        text = self.log.read_text(errors="replace").splitlines()[-lines:]
        return "".join(f"\n  {line}" for line in text)


class BrokerProcess:
    """An embedded broker as a process of its own, on a port that stays its own over restarts."""

    def __init__(self, name: str, directory: Path) -> None:
        self.name, self._directory = name, directory
        self._log = directory / f"{name}.log"
        self.address = "127.0.0.1:0"
        self._child = self._start()

    def _start(self) -> Child:
        arguments = ["cli.main", "broker", "--data-dir", str(self._directory / name_of(self.name))]
        child = Child([*arguments, "--listen", self.address], self._log)
        line = child.first_line()
        self.address = line.rpartition(" ")[2]
        return child

    def kill(self) -> None:
        """SIGKILL."""
        self._child.kill()

    def restart(self) -> None:
        """Come back with the same data on the same port; returns when it accepts connections."""
        self._child = self._start()

    def stop(self) -> None:
        """Stop cleanly if it runs."""
        if self._child.running():
            self._child.stop()


def name_of(broker: str) -> str:
    """Directory of a broker's data inside the demo's."""
    return f"{broker}-data"
