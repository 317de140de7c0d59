"""Child processes that end with the demo, and brokers that restart on the same port with the same data."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from cli.demo.model import DemoFailed

START_S_MAX = 30.0
STOP_S_MAX = 40.0


class Child:
    """A module as a process of its own that ends with this one; its stderr is appended to `log`.

    It has a session of its own, so that ^C in the terminal interrupts only the demo.
    """

    def __init__(self, arguments: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> None:
        self.log, self._name = log, " ".join(arguments[:2])
        with log.open("ab") as stderr:
            self.process = subprocess.Popen(
                # -P: a directory that the user happens to stand in must not shadow our modules
                [sys.executable, "-P", "-m", "cli.demo.die_with_parent", *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env={**os.environ, **(env or {})},
                start_new_session=True,
            )

    def running(self) -> bool:
        """Return whether the process lives."""
        return self.process.poll() is None

    def kill(self) -> None:
        """Send SIGKILL, wait until it has ended, and close its pipes."""
        self.process.kill()
        self._reap(None)

    def stop(self) -> int:
        """Send SIGTERM; return its exit code. Raises DemoFailed when it doesn't end in time."""
        self.process.terminate()
        try:
            return self._reap(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            self.kill()
            raise self.failed("did not stop") from None

    def _reap(self, timeout_s: float | None) -> int:
        code = self.process.wait(timeout_s)
        if self.process.stdin is not None:
            self.process.stdin.close()
        return code

    def line(self) -> str:
        """Read the next line on stdout. Raises DemoFailed when it doesn't come in time or at all."""
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], START_S_MAX)
        line = self.process.stdout.readline().decode().strip() if ready else ""
        if not line:
            raise self.failed(f"ended with {self.process.wait()}" if ready else "said nothing")
        return line

    def rest(self, timeout_s: float) -> bytes:
        """Read what a child that says something only once it is done says on stdout. Raises DemoFailed when it says
        nothing within `timeout_s`, or at all."""
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], timeout_s)
        said = self.process.stdout.read() if ready else b""
        if not said:
            raise self.failed(f"ended with {self._reap(timeout_s)}" if ready else "said nothing")
        self._reap(timeout_s)
        return said

    def failed(self, what: str, lines: int = 15) -> DemoFailed:
        """Make an error that says `what` the child did, with the last `lines` of its log."""
        text = self.log.read_text(errors="replace").splitlines()[-lines:]
        return DemoFailed("\n  ".join((f"{self._name} {what}", *text)))


class BrokerProcess:
    """An embedded broker as a process of its own; it keeps its port over restarts."""

    def __init__(self, name: str, directory: Path) -> None:
        self._data, self._log = directory / name, directory / f"{name}.log"
        self.address = "127.0.0.1:0"
        self._child = self._start()

    def _start(self) -> Child:
        arguments = ["cli.main", "broker", "--no-auto-create", "--data-dir", str(self._data), "--listen", self.address]
        return Child(arguments, self._log)

    def ready(self) -> None:
        """Return when it accepts connections; from then on `address` is where."""
        self.address = self._child.line().rpartition(" ")[2]

    def kill(self) -> None:
        """Send SIGKILL."""
        self._child.kill()

    def restart(self) -> None:
        """Start it again with the same data on the same port; returns when it accepts connections."""
        self._child = self._start()
        self.ready()

    def check(self) -> None:
        """Raise DemoFailed if it has ended by itself."""
        if not self._child.running():
            raise self._child.failed("ended by itself")
