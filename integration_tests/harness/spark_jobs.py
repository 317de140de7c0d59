"""A command on Spark as a user runs it: a process, JSON on stdout, lines on stderr, signals, an exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from contextlib import suppress
from signal import Signals
from typing import Any

from integration_tests.harness.processes import python_workers, wait_until
from integration_tests.harness.replicator import FAILPOINTS, FlowFile

EXIT_S_MAX = 400.0


class SparkProcess:
    """One process. `failpoints` are for the first attempt at each task; the working directory is not the project's."""

    def __init__(self, name: str, config: FlowFile, *options: str, failpoints: str = "") -> None:
        """`name` is the command."""
        command = [sys.executable, "-m", "cli.main", name, "-c", str(config.path), "--flow", config.flow]
        clean = {name: value for name, value in os.environ.items() if name != FAILPOINTS}
        told = {FAILPOINTS: failpoints} if failpoints else {}
        files = config.path.with_name(f"{name}-{uuid.uuid4().hex[:8]}")
        self._out, self._err = files.with_suffix(".out"), files.with_suffix(".err")
        with self._out.open("w") as out, self._err.open("w") as err:
            self._process = subprocess.Popen(
                [*command, *options],
                stdout=out,
                stderr=err,
                env={**clean, **told},
                cwd=config.path.parent,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Of the driver."""
        return self._process.pid

    def said(self) -> str:
        """What it wrote on stderr so far."""
        return self._err.read_text()

    def wait_exit(self) -> int:
        """Its exit code, minus the signal's number after a signal."""
        try:
            return self._process.wait(EXIT_S_MAX)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it runs on after {EXIT_S_MAX} s\n{self.said()}") from None

    def succeeded(self) -> dict[str, Any]:
        """Its JSON, once it has ended with 0."""
        code = self.wait_exit()
        assert code == 0, f"exit code {code}\n{self.said()}"
        found: dict[str, Any] = json.loads(self._out.read_text())
        return found

    def wait_stopped_tasks(self, count: int, *roots: int) -> list[int]:
        """Wait until so many Python workers stand still at a fail point; their process ids."""

        def stopped() -> list[int]:
            return [process.pid for process in python_workers(*(roots or (self.pid,))) if process.state in "Tt"]

        wait_until(lambda: len(stopped()) >= count or self._process.poll() is not None, "tasks stop", self.said)
        assert self._process.poll() is None, self.said()
        return stopped()

    def runs_on(self, for_s: float) -> bool:
        """Whether it is still there after `for_s`."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(for_s)
        return self._process.poll() is None

    def signal(self, number: Signals) -> None:
        """Send the driver a signal."""
        self._process.send_signal(number)

    def signal_all(self, number: Signals) -> None:
        """Send the driver and its JVM a signal, as supervisors do."""
        os.killpg(self.pid, number)

    def close(self) -> None:
        """Make sure that it is gone; what it said ends up in the report of a failed test."""
        print(f"--- {self._err}:\n{self.said()}")
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
