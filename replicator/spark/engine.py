"""Runs ranges as Spark tasks: one task for each, its answer collected, its process expendable.

What makes retries, speculation and lost executors harmless is the lane (`jobs.range_copy`), not this module: it only
sees to it that every range is tried until there is an answer. Nothing of a Kafka client may exist in a process that
forks: pyspark's daemon imports only pyspark, and all of ours is imported by the forked worker that runs the task.
"""

from __future__ import annotations

import queue
import re
import socket
import sys
import threading
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from importlib import metadata
from types import TracebackType
from typing import TypeVar

from pyspark import TaskContext
from pyspark.sql import SparkSession

from replicator import failpoints
from replicator.jobs.engine import Cancelled, EngineGone
from replicator.jobs.range_copy import RangeDone, RangeTask, copy_range
from replicator.model.errors import ConfigError, Fatal, Unreachable
from replicator.spark import task_log
from replicator.spark.cause import FAILURES, raised_in_task, root
from replicator.spark.task_log import TaskLog

_PACKAGE = "eos-replicate"
_ADVICE = (
    f"install the same {_PACKAGE} and Python on every executor, or ship them with spark.archives, and name that Python "
    "with spark.pyspark.python"
)
_UNFIT = ("ModuleNotFoundError", "ImportError", "PYTHON_VERSION_MISMATCH")
_NO_PYTHON = re.compile(r'Cannot run program "[^"]*"')
T = TypeVar("T")
U = TypeVar("U")


class SparkEngine:
    """Implements `jobs.engine.Engine`. Closed at the end: `with SparkEngine(…) as engine`."""

    def __init__(self, spark: SparkSession, log: TaskLog, failpoint_spec: str = "") -> None:
        """`failpoint_spec` is what EOS_FAILPOINTS says; only the first attempt at a task looks at it."""
        self._context, self._log, self._failpoint_spec = spark.sparkContext, log, failpoint_spec
        self._group = f"eos-replicate-{uuid.uuid4().hex[:12]}"
        self._cancelled, self._slots = False, 1
        # A signal handler interrupts the very thread that waits for Spark, whose connection to the JVM is then taken:
        # so another thread cancels, told by the one kind of queue that a handler may put into.
        self._requests: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._canceller = threading.Thread(target=self._cancel_when_asked, name="spark-cancel", daemon=True)

    def __enter__(self) -> SparkEngine:
        self._canceller.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._requests.put(False)
        self._canceller.join()

    @property
    def slots(self) -> int:
        """How many tasks run at the same time: on a cluster, the cores of the executors that are there now."""
        with suppress(*FAILURES):  # then `run` will say so
            self._slots = self._context.defaultParallelism
        return self._slots

    def check(self) -> None:
        """Find out whether tasks can run, before anything depends on them. Waits for the first executors.

        Raises ConfigError when the executors lack this package or have another version of it or of Python; otherwise
        as `run`.
        """
        ours = _version()
        for host, theirs in self.each(_installed, range(self.slots), "looking at the executors"):
            if theirs != ours:
                raise ConfigError(f"{_PACKAGE} is {ours} here and {theirs} on executor {host}; {_ADVICE}")

    def run(self, tasks: Sequence[RangeTask]) -> list[RangeDone]:
        """One answer for each task; see `Engine.run`. Raises Fatal for a bug in a task."""
        return self.each(partial(run_task, self._log, self._failpoint_spec), tasks, f"{len(tasks)} ranges")

    def cancel(self) -> None:
        """End the round that runs and all later ones; see `Engine.cancel`."""
        self._cancelled = True
        self._requests.put(True)

    def _cancel_when_asked(self) -> None:
        while self._requests.get():
            with suppress(*FAILURES):  # without a JVM there is nothing left to cancel
                self._context._jsc.sc().cancelJobGroupAndFutureJobs(self._group)

    def each(self, run: Callable[[T], U], tasks: Sequence[T], what: str) -> list[U]:
        """What `run` answers to each of `tasks`; raises as the method `run`. `what` describes the job in Spark's UI."""
        if self._cancelled:
            raise Cancelled
        if not tasks:
            return []
        try:
            self._context.setJobGroup(self._group, what, interruptOnCancel=True)
            return self._context.parallelize(tasks, len(tasks)).map(run).collect()
        except FAILURES as error:
            if self._cancelled:
                raise Cancelled from error
            if self._gone():
                raise EngineGone(f"Spark has ended: {root(error)}") from error
            raise _reason(error) from error
        finally:
            with suppress(*FAILURES):
                self._context._jsc.sc().clearJobGroup()

    def _gone(self) -> bool:
        """Whether the application has ended, or its JVM is not there to ask."""
        try:
            return bool(self._context._jsc.sc().isStopped())
        except FAILURES:
            return True


def run_task(log: TaskLog, failpoint_spec: str, task: RangeTask) -> RangeDone:
    """What an executor's Python does with a task."""
    task_log.configure(log)
    context = TaskContext.get()
    retried = context is not None and context.attemptNumber() > 0
    return copy_range(task, failpoints.parse("" if retried else failpoint_spec))


def _installed(_: int) -> tuple[str, str]:
    """An executor's host and the version that it has; unpickling this function imports all that a task needs."""
    return socket.gethostname(), _version()


def _version() -> str:
    python = ".".join(map(str, sys.version_info[:2]))
    try:
        return f"{metadata.version(_PACKAGE)} on Python {python}"
    except metadata.PackageNotFoundError:
        return f"of an unknown version on Python {python}"


def _reason(error: Exception) -> Exception:
    """The error that tells what to do about a job that failed."""
    no_python = _NO_PYTHON.search(str(error))
    if no_python is not None:
        return ConfigError(f"the executors cannot start Python: {no_python[0]}; {_ADVICE}")
    raised = raised_in_task(error)
    if raised is not None and any(word in raised for word in _UNFIT):
        return ConfigError(f"the executors cannot run this program: {raised}; {_ADVICE}")
    if raised is not None:
        return Fatal(f"a task failed with a bug: {raised}")
    return Unreachable(f"Spark failed: {root(error)}")
