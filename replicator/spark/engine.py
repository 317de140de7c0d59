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
import threading
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import cache, partial
from types import TracebackType
from typing import TypeVar

from pyspark import TaskContext
from pyspark.sql import SparkSession

from replicator import failpoints
from replicator.jobs.engine import Cancelled, EngineGone
from replicator.jobs.range_copy import RangeDone, RangeTask, copy_range
from replicator.model.errors import Fatal, Unreachable
from replicator.spark import archives, executors, task_log
from replicator.spark.cause import FAILURES, raised_in_task, root, unfit
from replicator.spark.executors import ExecutorState, ExecutorWatch
from replicator.spark.task_log import TaskLog

_TASKS_MAX = 4_096  # at the same time: each has a thread here that waits for it
_LOOKS_MAX = 3  # executors may come while others are looked at
T = TypeVar("T")
U = TypeVar("U")


class SparkEngine:
    """Implements `jobs.engine.Engine`. Closed at the end: `with SparkEngine(…) as engine`."""

    def __init__(
        self,
        spark: SparkSession,
        log: TaskLog,
        failpoint_spec: str = "",
        say: Callable[[str], object] = lambda line: None,
    ) -> None:
        """
        Args:
            failpoint_spec: what EOS_FAILPOINTS says; only the first attempt at a task looks at it.
            say: takes a line for people when tasks wait and there is no executor, in a thread of its own.
        """
        self._context, self._log, self._failpoint_spec = spark.sparkContext, log, failpoint_spec
        self._group = _new_group()
        self._cancelled, self._slots = False, 1
        self._submitting = ThreadPoolExecutor(_TASKS_MAX, thread_name_prefix="range")
        # A signal handler interrupts the very thread that waits for Spark, whose connection to the JVM is then taken:
        # so another thread cancels, told by the one kind of queue that a handler may put into.
        self._requests: queue.SimpleQueue[str] = queue.SimpleQueue()  # groups to cancel; "" ends the thread
        self._canceller = threading.Thread(target=self._cancel_when_asked, name="spark-cancel", daemon=True)
        self._local = str(self._context.master).startswith("local")  # executors are in the driver's own process then
        self._watch = ExecutorWatch(self._context, say)

    def __enter__(self) -> SparkEngine:
        self._canceller.start()
        if not self._local:
            self._watch.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._submitting.shutdown(wait=False, cancel_futures=True)
        self._requests.put("")
        self._canceller.join()
        self._watch.close()

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

    def check(self, modules: Sequence[str] = (), files: Sequence[str] = ()) -> None:
        """Find out whether tasks can run, before anything depends on them. Waits for the first executors.

        Those that come later are not looked at: what they lack ends the task that meets it, with the same error.

        Raises ConfigError when an executor lacks this package, one of `modules` or `files`, or has another version of
        the package or of Python; otherwise what a future of `submit` does.
        """
        look, met = executors.looker((__name__, *modules), tuple(files)), set[tuple[str, int]]()
        for _ in range(_LOOKS_MAX):
            # In another thread, as all tasks: a signal that interrupted a call to the JVM would break its connection.
            answer = self._submitting.submit(self.each, look, range(self.slots), "looking at the executors")
            for found in map(ExecutorState._make, answer.result()):
                executors.check(found)
                met.add((found.host, found.process))
            if self._local or len(met) >= self._watch.executors():
                return

    def submit(self, task: RangeTask) -> Future[RangeDone]:
        """Run one task; see `Engine.submit`. The future raises Fatal for a bug in it, too."""
        run = archives.of_task(partial(run_task, self._log, self._failpoint_spec))
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
        """Return what `run` answers to each of `tasks`, when all have; raises what a future of `submit` does. `what`
        describes the job in Spark's UI."""
        return self._collected(run, tasks, what, self._group)

    def _collected(self, run: Callable[[T], U], tasks: Sequence[T], what: str, group: str) -> list[U]:
        if self._cancelled:
            raise Cancelled
        try:
            with self._watch.waiting(len(tasks)):
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
        """Return whether the application has ended, or its JVM is not there to ask."""
        try:
            return bool(self._context._jsc.sc().isStopped())
        except FAILURES:
            return True


def _new_group() -> str:
    return f"eos-replicate-{uuid.uuid4().hex[:12]}"


def run_task(log: TaskLog, failpoint_spec: str, task: RangeTask) -> RangeDone:
    """Run a task, as an executor's Python does."""
    task_log.configure(log)
    _freeze()
    context = TaskContext.get()
    retried = context is not None and context.attemptNumber() > 0
    return copy_range(task, failpoints.parse("" if retried else failpoint_spec))


@cache
def _freeze() -> None:
    """Freeze what is imported, once in a process: pyspark collects all garbage after each task, and would look at every
    imported module.
    """
    gc.freeze()


def _reason(error: Exception) -> Exception:
    """Return the error that tells what to do about a job that failed."""
    wrong = unfit(error)
    if wrong is not None:
        return wrong
    raised = raised_in_task(error)
    if raised is not None:
        return Fatal(f"a task failed with a bug: {raised}")
    return Unreachable(f"Spark failed: {root(error)}")
