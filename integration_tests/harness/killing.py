"""Kills of whatever runs a job on a Spark cluster, at moments drawn from a seed, and restarts by its supervisor.

What a supervisor restarts is the command, when its driver was killed. Workers start executors again, and executors
their Python processes: of these nothing is restarted here. Used by the tests under `integration_tests/spark`.
"""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from integration_tests.harness.processes import alive, processes, python_workers, wait_until
from integration_tests.harness.spark_cluster import SparkCluster
from integration_tests.harness.spark_jobs import SparkProcess

TASKS = ("a Python worker", "all Python workers", "a Python daemon", "an executor", "all executors")
DRIVERS = ("driver", "driver's JVM")
Begin = Callable[[], SparkProcess]


@dataclass(frozen=True, slots=True)
class Kill:
    """One kill: whom, and how long after the trigger. `early`: the trigger is the start of the process, else the
    moment when its job's generation is open and tasks are there."""

    whom: str
    after_s: float
    early: bool


class Killer:
    """Draws kills and carries them out. `history` says what was done, for the report of a failed test."""

    def __init__(self, cluster: SparkCluster, seed: int) -> None:
        self._cluster, self._random = cluster, random.Random(seed)
        self.history: list[str] = []

    def draw(self, most: int, span_s: float) -> list[Kill]:
        """Between one kill and `most`, each within `span_s` of its trigger. Early ones are of drivers: there is nothing
        else yet."""
        kills = []
        for _ in range(self._random.randint(1, most)):
            early = self._random.random() < 0.15
            whom = self._random.choice(DRIVERS if early else (*DRIVERS, *TASKS))
            kills.append(Kill(whom, self._random.uniform(0.0, span_s), early))
        return kills

    def choose(self, values: Sequence[int]) -> int:
        """One of these."""
        return self._random.choice(values)

    def carry_out(
        self, begin: Begin, kills: Sequence[Kill], under_way: Callable[[SparkProcess], bool], *, ends: bool
    ) -> SparkProcess:
        """Start the job, let all kills happen, restarting it where a driver was killed; the job that is left.

        Args:
            under_way: whether tasks of a job copy records.
            ends: whether the job ends by itself, perhaps just before it is killed.
        """
        job = begin()
        for kill in kills:
            if not kill.early:
                wait_until(lambda job=job: under_way(job) or not alive(job.pid), "it copies", job.said)  # type: ignore[misc]
            threading.Event().wait(kill.after_s)  # the moment is drawn, so nothing tells when it has come
            killed = self._kill(job, kill)
            self.history.append(f"{kill}: {killed or 'nobody was there'}")
            print(self.history[-1])
            if killed and kill.whom in DRIVERS:
                self._wait_dead(job, kill.whom, ends)
                job = begin()
        return job

    def _kill(self, job: SparkProcess, kill: Kill) -> list[int]:
        """SIGKILL; the ids of the processes that were killed."""
        doomed = self._doomed(job, kill.whom)
        for pid in doomed:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return doomed

    def _doomed(self, job: SparkProcess, whom: str) -> list[int]:
        if whom in DRIVERS:
            if not alive(job.pid):
                return []
            jvms = [item.pid for item in processes() if item.parent == job.pid and b"java" in item.command]
            return [job.pid] if whom == DRIVERS[0] else jvms
        executors = self._cluster.executors()
        if "executor" in whom:
            found = executors
        elif "daemon" in whom:
            found = [item.pid for item in processes() if item.parent in executors and b"pyspark.daemon" in item.command]
        else:
            found = [item.pid for item in python_workers(*executors)]
        return sorted(found) if whom.startswith("all") else found and [self._random.choice(sorted(found))]

    def _wait_dead(self, job: SparkProcess, whom: str, ends: bool) -> None:
        """The supervisor sees how it ended: by the signal, or because Spark has gone, which it says in a line."""
        code = job.wait_exit()
        killed = -signal.SIGKILL if whom == DRIVERS[0] else 3
        assert code == killed or (ends and code == 0), f"exit code {code} after a kill of the {whom}\n{job.said()}"
        assert "Traceback" not in job.said(), job.said()
