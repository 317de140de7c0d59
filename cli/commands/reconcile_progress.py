"""What `reconcile` shows while it runs, on stderr: one line that is renewed on a terminal, else a line now and then."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from rich.console import Console
from rich.status import Status

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOK_S = 1.0
LINE_S = 10.0
"""Between two lines about the same step where there is no terminal."""


class Tasks(NamedTuple):
    """Spark's tasks of the step: how many have ended, of how many."""

    ended: int
    all: int


class Progress:
    """Says which step runs, how much of it is done, and how long the rest may take. A context manager."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._status: Status | None = console.status("") if console.is_terminal else None
        self._step, self._began_s, self._said_s = "", time.monotonic(), 0.0

    def __enter__(self) -> Progress:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()

    def update(self, step: str) -> None:
        """A step begins."""
        self._step, self._began_s = step, time.monotonic()
        self._say(step, now=True)

    def tell(self, tasks: Tasks) -> None:
        """So much of the step's tasks has been done; a stage that begins later adds its own."""
        self._say(f"{self._step}: {amount(tasks, time.monotonic() - self._began_s)}", now=False)

    def _say(self, text: str, *, now: bool) -> None:
        if self._status is not None:
            self._status.update(text)
        elif now or time.monotonic() >= self._said_s + LINE_S:
            self._said_s = time.monotonic()
            self._console.print(text, markup=False, highlight=False, soft_wrap=True)

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
                self.tell(Tasks(done, sum(stage.numTasks for stage in known)))


def amount(tasks: Tasks, seconds: float) -> str:
    """How much is done, and how long the rest may take at the rate so far."""
    text = f"{tasks.ended} of {tasks.all} tasks"
    if not tasks.ended or tasks.ended >= tasks.all:
        return text
    left_s = seconds * (tasks.all - tasks.ended) / tasks.ended
    minutes, rest_s = divmod(round(left_s), 60)
    return f"{text}, about {f'{minutes} min ' if minutes else ''}{rest_s} s left"
