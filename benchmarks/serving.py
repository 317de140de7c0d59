"""The two brokers beside each other: the embedded one, and Kafka in a container on the host's network."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Protocol

from benchmarks.clusters import Kafka, docker
from benchmarks.systems import rss_mib, rss_peak_mib
from integration_tests.harness.broker import free_port

ACCEPT_S_MAX, POLL_S = 60.0, 0.005
# ApiVersions, version 0, without a client id: the first request of every client.
API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)


def wait_accepts(bootstrap: str, died: Path | None = None) -> None:
    """Return once a request was answered. Raises RuntimeError when `died` is gone or the time is over."""
    host, _, port = bootstrap.rpartition(":")
    deadline = time.monotonic() + ACCEPT_S_MAX
    while time.monotonic() < deadline:
        try:
            with socket.create_connection((host, int(port)), timeout=5) as connection:
                connection.sendall(API_VERSIONS)
                if connection.recv(4):
                    return
        except OSError:
            pass
        if died is not None and not died.exists():
            raise RuntimeError(f"{bootstrap}: the broker has ended")
        time.sleep(POLL_S)
    raise RuntimeError(f"{bootstrap}: no answer within {ACCEPT_S_MAX:.0f} s")


class Served(Protocol):
    """A broker under measurement."""

    name: str
    bootstrap: str

    def pid(self) -> int:
        """The number of its process."""

    def resident_mib(self) -> float:
        """Its resident memory now."""

    def peak_mib(self) -> float:
        """The highest it has been since `forget_peak`."""

    def forget_peak(self) -> None:
        """Begin to look for the peak again."""

    def shut_down(self) -> None:
        """SIGTERM, and wait; the data stays."""

    def kill(self) -> None:
        """SIGKILL; the data stays."""

    def start_again(self) -> float:
        """Seconds from the start of the process to the first answered request."""


class _Process:
    """What Linux tells of a process."""

    def pid(self) -> int:
        """Its number."""
        raise NotImplementedError

    def resident_mib(self) -> float:
        """See Served."""
        return rss_mib(self.pid())

    def peak_mib(self) -> float:
        """See Served."""
        return rss_peak_mib(self.pid())

    def forget_peak(self) -> None:
        """See Served."""
        Path(f"/proc/{self.pid()}/clear_refs").write_text("5")


class Embedded(_Process):
    """`eos-replicate broker` as a user starts it, with its default: every acknowledged byte is on disk."""

    name = "eos-replicate broker"

    def __init__(self, directory: Path, tree: Path | None = None) -> None:
        """`tree`: a checkout whose broker this is; None: the installed one."""
        self.bootstrap, self._tree = f"127.0.0.1:{free_port()}", tree
        self._data, self._log = directory / "data", directory / "broker.log"
        self._process: subprocess.Popen[bytes]
        directory.mkdir(parents=True)

    def pid(self) -> int:
        """See Served."""
        return self._process.pid

    def _command(self) -> list[str]:
        command = [str(Path(sys.executable).with_name("eos-replicate"))]
        if self._tree is not None:
            command = [sys.executable, "-m", "cli.main"]
        return [*command, "broker", "--no-auto-create", "--data-dir", str(self._data), "--listen", self.bootstrap]

    def start_again(self) -> float:
        """See Served. The first start, too."""
        with self._log.open("a") as log:
            began = time.monotonic()
            self._process = subprocess.Popen(self._command(), stdout=log, stderr=log, cwd=self._tree)
        wait_accepts(self.bootstrap, Path(f"/proc/{self._process.pid}/exe"))
        return time.monotonic() - began

    def kill(self) -> None:
        """See Served."""
        self._process.kill()
        self._process.wait()

    def shut_down(self) -> None:
        """See Served."""
        self._process.send_signal(signal.SIGTERM)
        self._process.wait()


class Real(_Process):
    """Kafka: a broker that is its own controller, in a container that is started with its data still there."""

    name = "Kafka"

    def __init__(self, role: str, name: str = name, **settings: str) -> None:
        """`settings`: further environment of the container, e.g. KAFKA_LOG_FLUSH_INTERVAL_MESSAGES."""
        self.name = name
        self._kafka = Kafka.start(role, settings=settings)
        self.bootstrap = self._kafka.bootstrap

    def pid(self) -> int:
        """See Served."""
        return int(docker("inspect", "-f", "{{.State.Pid}}", self._kafka.name))

    def kill(self) -> None:
        """See Served."""
        docker("kill", self._kafka.name)
        docker("wait", self._kafka.name)

    def shut_down(self) -> None:
        """See Served."""
        docker("stop", "--time", "60", self._kafka.name)

    def start_again(self) -> float:
        """See Served: from the start of the JVM; what Docker takes before isn't counted."""
        docker("start", self._kafka.name)
        wait_accepts(self.bootstrap)
        ticks = int(Path(f"/proc/{self.pid()}/stat").read_text().rpartition(")")[2].split()[19])
        booted_s = ticks / os.sysconf("SC_CLK_TCK")
        return time.clock_gettime(time.CLOCK_BOOTTIME) - booted_s

    def stop(self) -> None:
        """Remove the container."""
        self._kafka.stop()
