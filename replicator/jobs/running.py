"""The tasks of a job that an engine runs now. Used by `jobs.range_job`, from one thread.

Invariant: the rates of all tasks that run add up to the job's limit at most, however many slots there are meanwhile.
"""

from __future__ import annotations

import queue
from collections.abc import Iterator
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass, replace

from replicator.jobs.engine import Cancelled, Engine
from replicator.jobs.range_copy import RangeDone, RangeTask
from replicator.jobs.ranges import Range
from replicator.model.errors import ReplicatorError

GIVEN_UP_S_MAX = 30.0  # for an engine to answer for tasks that were given up
RATE_SHARE_MIN = 0.001  # of the limit: with less than that a task would be no use


@dataclass(frozen=True, slots=True)
class Ended:
    """A task that has ended; `cut` is the range that it was to copy, None where it only kept positions."""

    cut: Range | None
    done: RangeDone


class Running:
    """Submits tasks and waits for them."""

    def __init__(self, engine: Engine, rate_max: float | None) -> None:
        """`rate_max`: records a second of all tasks together, None: no limit."""
        self._engine, self._rate_max = engine, rate_max
        self._tasks: dict[Future[RangeDone], tuple[RangeTask, Range | None]] = {}
        self._over: queue.SimpleQueue[Future[RangeDone]] = queue.SimpleQueue()

    def __bool__(self) -> bool:
        return bool(self._tasks)

    @property
    def lanes(self) -> set[int]:
        """The lanes under which a task runs."""
        return {task.plan.lane for task, _ in self._tasks.values()}

    @property
    def free(self) -> int:
        """How many more tasks can begin now."""
        return max(0, self._engine.slots - len(self._tasks))

    def share(self, tasks: int) -> float | None:
        """Return the rate for each of so many more tasks; None: no limit. 0: others have it all."""
        if self._rate_max is None:
            return None
        left = self._rate_max - sum(task.rate_max or 0.0 for task, _ in self._tasks.values())
        return left / max(1, tasks) if left >= self._rate_max * RATE_SHARE_MIN else 0.0

    def submit(self, task: RangeTask, cut: Range | None = None, rate: float | None = None) -> None:
        """Run a task, with `rate` of `share`."""
        task = replace(task, rate_max=rate)
        future = self._engine.submit(task)
        self._tasks[future] = task, cut
        future.add_done_callback(self._over.put)

    def wait(self, timeout_s: float) -> Iterator[Ended]:
        """Yield the tasks that have ended; wait for the first. Raises what the engine did."""
        with suppress(queue.Empty):
            future = self._over.get(timeout=timeout_s)
            while True:
                _, cut = self._tasks.pop(future)
                yield Ended(cut, future.result())
                future = self._over.get_nowait()

    def stop(self) -> list[Ended]:
        """Wait until the tasks of a cancelled engine have ended: those that came to an end before it."""
        wait(self._tasks, GIVEN_UP_S_MAX)
        answered: list[Ended] = []
        for future, (_, cut) in self._tasks.items():
            with suppress(Cancelled, ReplicatorError):
                if future.done():
                    answered.append(Ended(cut, future.result()))
        self._tasks = {}
        return answered

    def give_up(self) -> list[Ended]:
        """End all tasks, but not the engine: as `stop`."""
        if self._tasks:
            self._engine.give_up()
        return self.stop()
