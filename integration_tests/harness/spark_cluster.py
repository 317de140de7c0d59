"""A standalone Spark cluster for tests: a master and workers as processes, whose executors can be killed.

Each worker has a loopback address of its own: Spark starts a speculative attempt on another host only.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pyspark

from integration_tests.harness.broker import free_port
from integration_tests.harness.processes import processes

READY_S_MAX = 60.0
POLL_S = 0.05
EXECUTOR = b"org.apache.spark.executor.CoarseGrainedExecutorBackend"


class SparkCluster:
    """Two cores for each worker; an application gets one executor on each. Use as a context manager."""

    def __init__(self, directory: Path, workers: int = 2) -> None:
        """`directory` gets the logs, those of the executors too."""
        self.master = f"spark://127.0.0.1:{free_port()}"
        self._directory, self._workers = directory, workers
        self._processes: list[subprocess.Popen[bytes]] = []

    def options(self) -> list[str]:
        """Options of a command that uses this cluster."""
        conf = {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.executor.memory": "512m",
            "spark.executor.cores": "2",
            "spark.pyspark.python": sys.executable,
        }
        named = [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
        return ["--master", self.master, *named]

    def __enter__(self) -> SparkCluster:
        host, _, port = self.master.removeprefix("spark://").partition(":")
        self._start("master", host, "master.Master", "--port", port)
        for number in range(self._workers):
            options = ("--cores", "2", "--memory", "768m", "--work-dir", str(self._directory / f"work{number}"))
            self._start(f"worker{number}", f"127.0.0.{number + 1}", "worker.Worker", *options, self.master)
        for number in range(self._workers):
            self._wait_log(f"worker{number}", "Successfully registered with master")
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def executors(self) -> list[int]:
        """Process ids of the executors that run now."""
        workers = {process.pid for process in self._processes}
        return [item.pid for item in processes() if item.parent in workers and EXECUTOR in item.command]

    def tail(self, lines: int = 15) -> str:
        """The ends of all logs, for the report of a failed test."""
        paths = [*sorted(self._directory.glob("*.log")), *sorted(self._directory.glob("work*/app-*/*/stderr"))]
        return "\n".join(
            line for path in paths for line in (f"--- {path}", *path.read_text(errors="replace").splitlines()[-lines:])
        )

    def _start(self, name: str, host: str, main: str, *options: str) -> None:
        home = Path(pyspark.__file__).parent
        command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{main}"]
        environment = {**os.environ, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": host, "SPARK_DAEMON_MEMORY": "256m"}
        self._directory.mkdir(parents=True, exist_ok=True)
        with (self._directory / f"{name}.log").open("wb") as log:
            self._processes.append(
                subprocess.Popen(
                    [*command, "--host", host, "--webui-port", "0", *options],
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=environment,
                    cwd=self._directory,
                )
            )

    def _wait_log(self, name: str, text: str) -> None:
        path, deadline = self._directory / f"{name}.log", time.monotonic() + READY_S_MAX
        while text not in path.read_text(errors="replace"):
            assert time.monotonic() < deadline, f"{name} does not say {text!r}\n{self.tail()}"
            time.sleep(POLL_S)
