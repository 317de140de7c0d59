"""What `reconcile` shows while it runs, on stderr: one line that is renewed on a terminal, else a line now and then."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, Self

from rich.console import Console
from rich.markup import escape
from rich.status import Status

from cli.durations import time_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOK_S = 1.0
LINE_S = 10.0
"""Between two lines about the same step where there is no terminal."""


class Tasks(NamedTuple):
    """Spark's tasks of the step: how many have ended, of how many; how many offsets all of them read, 0 where that
    isn't known; and how many had ended when the time began from which a rate follows."""

    ended: int
    all: int
    offsets: int = 0
    before: int = 0


class Progress:
    """Says which step runs, how much of it is done, how fast, and how long the rest may take. A context manager."""

    def __init__(self, console: Console, flow: str = "") -> None:
        """`flow`: named in lines that have no terminal, and may stand in a log."""
        self._console, self._flow = console, flow
        self._status: Status | None = console.status("") if console.is_terminal else None
        self._step, self._offsets, self._began_s, self._said_s = "", 0, time.monotonic(), 0.0
        self._stages: tuple[int, ...] = ()
        self._ended_before = 0

    def __enter__(self) -> Self:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()

    def update(self, step: str, offsets: int = 0) -> None:
        """Note that a step begins, whose first tasks read so many offsets."""
        self._step, self._offsets, self._began_s, self._stages = step, offsets, time.monotonic(), ()
        self._ended_before = 0
        self._say(step, now=True)

    def tell(self, stages: tuple[int, ...], ended: int, all_: int) -> None:
        """Note that so many tasks of the stages that run now have ended. Rate and rest are those of these stages."""
        if self._stages and stages != self._stages:
            self._began_s, self._offsets = time.monotonic(), 0  # later stages read what the first one has left
            self._ended_before = ended
        self._stages = stages
        tasks = Tasks(ended, all_, self._offsets, self._ended_before)
        self._say(f"{self._step}: {amount(tasks, time.monotonic() - self._began_s)}", now=False)

    def _say(self, text: str, *, now: bool) -> None:
        if self._status is not None:
            self._status.update(escape(text))
        elif now or time.monotonic() >= self._said_s + LINE_S:
            self._said_s = time.monotonic()
            at = time.strftime("%H:%M:%S ") + (f"{self._flow}: " if self._flow else "")
            self._console.print(at + text, markup=False, highlight=False, soft_wrap=True)

    def count(self, done: int) -> None:
        """Note that so many of the step's offsets are done."""
        if not self._offsets:
            return
        self._say(f"{self._step}: {offsets_done(done, self._offsets, time.monotonic() - self._began_s)}", now=False)

    @contextmanager
    def watching(self, spark: SparkSession) -> Iterator[None]:
        """Look at Spark's stages meanwhile."""
        ended = threading.Event()
        thread = threading.Thread(target=self._watch, args=(spark, ended), name="reconcile-progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _watch(self, spark: SparkSession, ended: threading.Event) -> None:
        from replicator.spark.cause import FAILURES

        tracker = spark.sparkContext.statusTracker()
        while not ended.wait(LOOK_S):
            try:
                stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
            except FAILURES:  # it is being stopped; whoever waits for its answer says why
                return
            known = [stage for stage in stages if stage is not None]
            if known:
                done = sum(stage.numCompletedTasks for stage in known)
                running = tuple(sorted(stage.stageId for stage in known))
                self.tell(running, done, sum(stage.numTasks for stage in known))


class LocalProgress(Progress):
    """Of a comparison in this process, which says itself how far it is."""

    _done = 0

    def step(self, text: str, offsets: int = 0) -> None:
        """See `proof.local.ComparisonProgress`."""
        self._done = 0
        self.update(text, offsets)

    def passed(self, offsets: int) -> None:
        """See `proof.local.ComparisonProgress`."""
        self._done += offsets
        self.count(self._done)


def offsets_done(done: int, all_: int, seconds: float) -> str:
    """Say how many offsets are done, the rate so far, and how long the rest may take at it."""
    text = f"{done:,} of {all_:,} offsets"
    if done <= 0 or seconds <= 0:
        return text
    rate = done / seconds
    left = f", about {time_text(max(1.0, (all_ - done) / rate))} left" if done < all_ else ""
    return f"{text}, {rate:,.0f} offsets/s{left}"


def amount(tasks: Tasks, seconds: float) -> str:
    """Say how much is done, the rate so far, and how long the rest may take at it: tasks of one step are about
    equal.
    """
    text = f"{tasks.ended} of {tasks.all} tasks"
    if tasks.ended <= tasks.before or tasks.ended > tasks.all or seconds <= 0:
        return text
    rate = (tasks.ended - tasks.before) / seconds
    said = f"{rate:,.1f} tasks/s" if rate >= 1 else f"{60 * rate:,.1f} tasks/min"
    if tasks.offsets:
        said = f"about {tasks.offsets * rate / tasks.all:,.0f} offsets/s"
    left = f", about {time_text(max(1.0, (tasks.all - tasks.ended) / rate))} left" if tasks.ended < tasks.all else ""
    return f"{text}, {said}{left}"
