"""The broker as a process, for tests that kill it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import IO

from tests.running.users_packages import users_packages


class BrokerProcess:
    """`eos-replicate broker` on a data directory; keeps its address, that of its first listener, over restarts."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.data_dir = directory
        self.address = "127.0.0.1:0"
        self._options = options
        self.process: subprocess.Popen[str]

    def start(self, stderr: IO[bytes] | int | None = None) -> None:
        """Return when it accepts connections. `stderr`: where its log goes, as in subprocess.Popen."""
        command = [sys.executable, "-m", "cli.main", "broker", "--no-auto-create", "--data-dir", str(self.data_dir)]
        self.process = subprocess.Popen(
            [*command, "--listen", self.address, *self._options],
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            env=users_packages(),
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("listening on "), line
        self.address = line.removeprefix("listening on ").split(",")[0].strip()

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def terminate(self) -> int:
        """SIGTERM; the exit code."""
        self.process.terminate()
        return self.process.wait(20)
