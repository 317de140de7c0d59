"""A standalone Spark cluster for tests: a master and workers as processes, whose executors can be killed.

Master and workers are machines (`machines`) that share no disk with the driver or each other, and have an environment
of their own (`environments`). Each worker has a loopback address of its own: Spark starts a speculative attempt on
another host only.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from integration_tests.harness import environments
from integration_tests.harness.broker import free_port
from integration_tests.harness.machines import Machine
from integration_tests.harness.processes import processes

READY_S_MAX = 60.0
POLL_S = 0.05
EXECUTOR = b"org.apache.spark.executor.CoarseGrainedExecutorBackend"
WHOLE, LEAN, UNEQUAL, OLD = "/opt/eos", "/opt/lean", "/opt/unequal", "/opt/old"
"""Environments on workers: as docs/spark/cluster.md says; one without the packages for Spark; one that is whole on the
first worker only; and one of an older version, which lacks what is newer."""
OLD_VERSION, NEWER = "0.0.1", "replicator/spark"
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # they live for minutes: compiling well would not pay
SCRATCH, WORK = "/var/spark/local", "/var/spark/work"


class SparkCluster:
    """Two cores for each worker; an application gets one executor on each. Use as a context manager."""

    def __init__(self, directory: Path, workers: int = 2) -> None:
        """`directory` gets the machines, and the logs, those of the executors too."""
        self.master = f"spark://127.0.0.1:{free_port()}"
        self._directory = directory
        whole, lean, old = directory / "whole", directory / "lean", directory / "old"
        built = environments.wheel(directory)
        environments.install(whole, built, "constraints-spark.txt")
        environments.install(lean, built, "constraints-run.txt")
        environments.install(old, built, "constraints-run.txt")
        environments.make_older(old, OLD_VERSION, without=NEWER)
        self._at_master = Machine(directory / "master", "master", "127.0.0.1", {WHOLE: whole})
        self.workers = [
            Machine(
                directory / f"worker{number}",
                f"worker{number}",
                f"127.0.0.{number + 1}",
                {WHOLE: whole, LEAN: lean, UNEQUAL: lean if number else whole, OLD: old},
                (SCRATCH, WORK),
            )
            for number in range(workers)
        ]
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def options(self, environment: str = WHOLE) -> list[str]:
        """Options of a command that uses this cluster; `environment`: where it stands on the workers."""
        return ["--master", self.master, *conf_options(self.conf(environment))]

    @staticmethod
    def conf(environment: str = WHOLE) -> dict[str, str]:
        """Spark's properties for an application on this cluster."""
        return {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.executor.memory": "512m",
            "spark.executor.cores": "2",
            "spark.executor.extraJavaOptions": QUICK,
            "spark.sql.shuffle.partitions": "4",
            "spark.pyspark.python": f"{environment}/bin/python",
        }

    def __enter__(self) -> SparkCluster:
        host, _, port = self.master.removeprefix("spark://").partition(":")
        self._start(self._at_master, host, "master.Master", "--port", port)
        self._wait_log(self._at_master.name, "New state: ALIVE")  # before that it lets workers wait for 15 s
        for number, machine in enumerate(self.workers):
            options = ("--cores", "2", "--memory", "768m", "--work-dir", WORK)
            self._start(machine, f"127.0.0.{number + 1}", "worker.Worker", *options, self.master)
        for machine in self.workers:
            self._wait_log(machine.name, "Successfully registered with master")
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._processes.values()):
            process.terminate()
        for process in self._processes.values():
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def executors(self) -> list[int]:
        """Process ids of the executors that run now."""
        workers = {self._processes[machine.name].pid for machine in self.workers}
        return [item.pid for item in processes() if item.parent in workers and EXECUTOR in item.command]

    def tail(self, lines: int = 15) -> str:
        """The ends of all logs, for the report of a failed test."""
        executors = (path for machine in self.workers for path in machine.here(WORK).glob("app-*/*/stderr"))
        paths = [*sorted(self._directory.glob("*.log")), *sorted(executors)]
        return "\n".join(
            line for path in paths for line in (f"--- {path}", *path.read_text(errors="replace").splitlines()[-lines:])
        )

    def _start(self, machine: Machine, host: str, main: str, *options: str) -> None:
        home = f"{WHOLE}/lib/{environments.PYTHON}/site-packages/pyspark"
        command = [f"{home}/bin/spark-class", f"org.apache.spark.deploy.{main}", "--host", host, "--webui-port", "0"]
        environment = {
            "SPARK_HOME": home,
            "SPARK_LOCAL_IP": host,
            "SPARK_LOCAL_DIRS": SCRATCH,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": QUICK,
        }
        with (self._directory / f"{machine.name}.log").open("wb") as log:
            self._processes[machine.name] = machine.popen([*command, *options], environment, log)

    def _wait_log(self, name: str, text: str) -> None:
        path, deadline = self._directory / f"{name}.log", time.monotonic() + READY_S_MAX
        while text not in path.read_text(errors="replace"):
            assert time.monotonic() < deadline, f"{name} does not say {text!r}\n{self.tail()}"
            time.sleep(POLL_S)


def conf_options(conf: Mapping[str, str]) -> list[str]:
    """Properties of Spark as a command takes them."""
    return [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
