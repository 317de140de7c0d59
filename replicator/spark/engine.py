"""Runs ranges as Spark tasks: a job of one task for each, its answer collected, its process expendable.

One job for all ranges would be a barrier: its last task holds back whatever comes next. Jobs that are submitted by
different threads share the slots, and a job of one task begins as soon as one is free.

What makes retries, speculation and lost executors harmless is the lane (`jobs.range_copy`), not this module: it only
sees to it that every range is tried until there is an answer. Nothing of a Kafka client may exist in a process that
forks: pyspark's daemon imports only pyspark, and all of ours is imported by the forked worker that runs the task.
"""

from __future__ import annotations

import gc
import queue
import re
import socket
import sys
import threading
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import cache, partial
from importlib import import_module, metadata
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
_TASKS_MAX = 4_096  # at the same time: each has a thread here that waits for it
_UNFIT = ("ModuleNotFoundError", "ImportError", "PYTHON_VERSION_MISMATCH")
_NO_PYTHON = re.compile(r'Cannot run program "[^"]*"')
T = TypeVar("T")
U = TypeVar("U")


class SparkEngine:
    """Implements `jobs.engine.Engine`. Closed at the end: `with SparkEngine(…) as engine`."""

    def __init__(self, spark: SparkSession, log: TaskLog, failpoint_spec: str = "") -> None:
        """`failpoint_spec` is what EOS_FAILPOINTS says; only the first attempt at a task looks at it."""
        self._context, self._log, self._failpoint_spec = spark.sparkContext, log, failpoint_spec
        self._group = _new_group()
        self._cancelled, self._slots = False, 1
        self._submitting = ThreadPoolExecutor(_TASKS_MAX, thread_name_prefix="range")
        # A signal handler interrupts the very thread that waits for Spark, whose connection to the JVM is then taken:
        # so another thread cancels, told by the one kind of queue that a handler may put into.
        self._requests: queue.SimpleQueue[str] = queue.SimpleQueue()  # groups to cancel; "" ends the thread
        self._canceller = threading.Thread(target=self._cancel_when_asked, name="spark-cancel", daemon=True)

    def __enter__(self) -> SparkEngine:
        self._canceller.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._submitting.shutdown(wait=False, cancel_futures=True)
        self._requests.put("")
        self._canceller.join()

    @property
    def slots(self) -> int:
        """How many tasks run at the same time: on a cluster, as many as the executors that are there now can take.

        With dynamic allocation one more: Spark asks for executors only while a task waits for one.
        """
        with suppress(*FAILURES):  # then a task will say so
            conf = self._context.getConf()
            more = conf.get("spark.dynamicAllocation.enabled", "false") == "true"
            cores = int(conf.get("spark.task.cpus", "1") or 1)
            self._slots = max(1, self._context.defaultParallelism // cores) + more
        return self._slots

    def check(self, modules: Sequence[str] = ()) -> None:
        """Find out whether tasks can run, before anything depends on them. Waits for the first executors.

        Raises ConfigError when the executors lack this package or one of `modules`, or have another version of it or of
        Python; otherwise what a future of `submit` does.
        """
        ours, look = _version(), partial(_installed, tuple(modules))
        for host, theirs in self.each(look, range(self.slots), "looking at the executors"):
            if theirs != ours:
                raise ConfigError(f"{_PACKAGE} is {ours} here and {theirs} on executor {host}; {_ADVICE}")

    def submit(self, task: RangeTask) -> Future[RangeDone]:
        """Run one task; see `Engine.submit`. The future raises Fatal for a bug in it, too."""
        run = partial(run_task, self._log, self._failpoint_spec)
        group = self._group  # of now: it may be given up before the thread begins
        what = f"{task.at}: {task.start} to {task.end}" if task.copies else f"{task.at}: its position again"
        return self._submitting.submit(lambda: self._collected(run, [task], what, group)[0])

    def give_up(self) -> None:
        """End all tasks that run; see `Engine.give_up`."""
        self._requests.put(self._group)
        self._group = _new_group()

    def cancel(self) -> None:
        """End all tasks that run and every later one; see `Engine.cancel`."""
        self._cancelled = True
        self._requests.put(self._group)

    def _cancel_when_asked(self) -> None:
        while group := self._requests.get():
            with suppress(*FAILURES):  # without a JVM there is nothing left to cancel
                self._context._jsc.sc().cancelJobGroupAndFutureJobs(group)

    def each(self, run: Callable[[T], U], tasks: Sequence[T], what: str) -> list[U]:
        """What `run` answers to each of `tasks`, when all have; raises what a future of `submit` does. `what` describes
        the job in Spark's UI."""
        return self._collected(run, tasks, what, self._group)

    def _collected(self, run: Callable[[T], U], tasks: Sequence[T], what: str, group: str) -> list[U]:
        if self._cancelled:
            raise Cancelled
        try:
            self._context.setJobGroup(group, what, interruptOnCancel=True)
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


def _new_group() -> str:
    return f"eos-replicate-{uuid.uuid4().hex[:12]}"


def run_task(log: TaskLog, failpoint_spec: str, task: RangeTask) -> RangeDone:
    """What an executor's Python does with a task."""
    task_log.configure(log)
    _freeze()
    context = TaskContext.get()
    retried = context is not None and context.attemptNumber() > 0
    return copy_range(task, failpoints.parse("" if retried else failpoint_spec))


@cache
def _freeze() -> None:
    """Once in a process: pyspark collects all garbage after each task, and would look at every imported module."""
    gc.freeze()


def _installed(modules: Sequence[str], _: int) -> tuple[str, str]:
    """An executor's host and the version that it has; unpickling this function imports what every task needs."""
    for name in modules:
        import_module(name)
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
