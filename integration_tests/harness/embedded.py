"""The embedded broker as a process: `eos-replicate broker`, met over TCP only."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import uuid
from pathlib import Path

from integration_tests.harness.broker import SHORT_SESSIONS, Kind, free_port, wait_ready
from integration_tests.harness.cutting import FIRST_SEGMENT, batches_below
from tests.running.users_packages import users_packages

START_S_MAX = 90.0


class EmbeddedBroker:
    """A `BrokerHandle` over one process with a data directory that outlives it."""

    kind: Kind = "embedded"

    def __init__(self, directory: Path, *options: str) -> None:
        """`directory` gets the data and the log; `options` go to the command as they are."""
        self.bootstrap = f"127.0.0.1:{free_port()}"
        self._data = directory / "data"
        self._log = directory / "broker.log"
        self._options = options
        self._process: subprocess.Popen[str] | None = None
        self._told_to_end = False
        directory.mkdir(parents=True, exist_ok=True)

    @property
    def _running(self) -> subprocess.Popen[str]:
        assert self._process is not None, "the broker was never started"
        return self._process

    @property
    def pid(self) -> int:
        """Of the process that was started last."""
        return self._running.pid

    def start(self) -> None:
        """See `BrokerHandle`."""
        command = [sys.executable, "-m", "cli.main", "broker", "--no-auto-create", "--data-dir", str(self._data)]
        command += ["--listen", self.bootstrap, *self._options]
        command += [f"--config={name}={value}" for name, value in SHORT_SESSIONS.items()]
        self._told_to_end = False
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, text=True, env=users_packages()
            )
        self._wait_listening(self._process)
        wait_ready(self.bootstrap)

    def _wait_listening(self, process: subprocess.Popen[str]) -> None:
        """Its one line on stdout says that it accepts connections; end of file says that it never will."""
        watchdog = threading.Timer(START_S_MAX, process.kill)
        watchdog.start()
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
        finally:
            watchdog.cancel()
        if not line.strip().endswith(self.bootstrap):
            process.kill()
            code = process.wait()
            raise RuntimeError(f"the broker said {line!r} and ended with {code}:\n{self.log_tail()}")

    def log_tail(self, lines: int = 50) -> str:
        """The end of what it wrote on stderr, over all its starts."""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-lines:])

    def kill(self) -> None:
        """See `BrokerHandle`."""
        self._told_to_end = True
        self._running.kill()
        self._running.wait()

    def restart(self) -> None:
        """See `BrokerHandle`."""
        self.start()

    def suspend(self) -> None:
        """See `BrokerHandle`."""
        self._running.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """See `BrokerHandle`."""
        self._running.send_signal(signal.SIGCONT)

    def terminate(self, timeout_s: float = 20.0) -> int:
        """SIGTERM; its exit code."""
        self._told_to_end = True
        self._running.terminate()
        return self._running.wait(timeout_s)

    def alive(self) -> bool:
        """See `BrokerHandle`."""
        return self._process is not None and self._process.poll() is None

    def unexpected_end(self) -> str:
        """How the process ended although nobody here had it end; empty where it runs, or was told to end."""
        code = None if self._process is None or self._told_to_end else self._process.poll()
        how = f"was ended by {signal.Signals(-code).name}" if code is not None and code < 0 else f"ended with {code}"
        return "" if code is None else f"the broker at {self.bootstrap} {how}:\n{self.log_tail()}"

    def cut_log(self, topic: str, topic_id: uuid.UUID, partition: int, offset: int) -> None:
        """See `BrokerHandle`. Without the file `durable` nothing is known to have been acknowledged."""
        directory = self._data / "partitions" / f"{topic_id.hex}-{partition}"
        segment = directory / FIRST_SEGMENT
        segment.write_bytes(batches_below(segment.read_bytes(), offset))
        (directory / "durable").unlink()

    def stop(self) -> None:
        """See `BrokerHandle`."""
        if self.alive():
            self.kill()
