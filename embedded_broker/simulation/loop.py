"""An asyncio event loop without sockets and threads, whose clock jumps to the next timer.

Processes are simulated, too: all callbacks of a process carry its context, and once the process is killed none of them
runs any more, not even a `finally`.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import heapq
import itertools
import warnings
from asyncio import base_events
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from random import Random
from typing import Any, TypeVar, cast

from embedded_broker.net import coding
from embedded_broker.simulation.fibers import Fiber, Fibers

T = TypeVar("T")
EPOCH_MS = 1_800_000_000_000
"""What the clock on the wall shows when a run begins."""
CLOCK_RESOLUTION_S = 1e-9
"""Timers that close to each other are due at the same time."""
MIN_SCHEDULED, MIN_CANCELLED_FRACTION = 100, 0.5
"""From when on asyncio removes cancelled timers at once."""
CODING_S_MAX = 0.002
"""Until a request is decoded, or an answer encoded, in the thread for that: it doesn't wait for the disk."""


class Deadlock(Exception):
    """Nothing is due any more, and yet the run hasn't ended."""


class Process:
    """Something that can be killed. `on_death` is called once, when it is."""

    def __init__(self, name: str, on_death: Callable[[Process], None]) -> None:
        self.name, self._on_death = name, on_death
        self.alive = True
        # Holds them even when nobody else does: a coroutine that is collected would run its `finally`.
        self.tasks: list[asyncio.Task[Any]] = []
        self.fibers: dict[Fiber, None] = {}
        """Blocking calls under way."""

    def end(self) -> None:
        """End all of it."""
        if self.alive:
            self.alive = False
            self._on_death(self)
            for fiber in self.fibers:
                fiber.kill()
            self.fibers.clear()


PROCESS: contextvars.ContextVar[Process] = contextvars.ContextVar("process")


class _Timer(asyncio.TimerHandle):
    """What asyncio's own loop keeps of one, by its name."""

    __slots__ = ()
    _scheduled: bool


class _Due(float):
    """When a timer is due. A heap compares floats much faster than handles, and leaves them in the same order."""

    __slots__ = ("handle",)
    handle: _Timer


class SimulatedLoop(base_events.BaseEventLoop):
    """The event loop of a run. Calls in an executor run at a random time within `disk_delay_s_max`; what is due at one
    time takes up to `step_s_max`, so that others come between the steps of who lets them."""

    # What asyncio's own base keeps: what is to be called next, and timers as a heap.
    _ready: deque[asyncio.Handle]
    _scheduled: list[_Due]
    _timer_cancelled_count: int
    _stopping: bool

    def __init__(
        self, random: Random, disk_delay_s_max: float, step_s_max: float = 0.0, *, syncs_pause: bool = True
    ) -> None:
        """`syncs_pause`: whether others may come in between while the disk syncs."""
        super().__init__()
        self.now_s = 0.0
        self._wall_offset_ms = self._wall_max_ms = 0
        self.fibers = Fibers()
        self.failures: list[str] = []
        """What would have been logged: a bug of the broker, or of a client here."""
        self._random, self._disk_delay_s_max, self._step_s_max = random, disk_delay_s_max, step_s_max
        self._syncs_pause = syncs_pause
        self._numbers = itertools.count(1)
        self.set_task_factory(self._make_task)
        self.set_exception_handler(self._failed)

    def time(self) -> float:
        """See asyncio."""
        return self.now_s

    def step_s(self) -> float:
        """Return how long this iteration takes."""
        return self._random.random() * self._step_s_max if self._step_s_max else 0.0

    def now_ms(self) -> int:
        """See `Clock`. Unlike `time`, it may have been set back."""
        return EPOCH_MS + int(self.now_s * 1000) + self._wall_offset_ms

    def now_max_ms(self) -> int:
        """Return the latest time that the clock on the wall has shown so far."""
        return max(self.now_ms(), self._wall_max_ms)

    def set_wall_clock(self, offset_ms: int) -> None:
        """Let the clock on the wall be that much ahead of what it would show had it never been set."""
        self._wall_max_ms, self._wall_offset_ms = self.now_max_ms(), offset_ms

    def _process_events(self, event_list: Iterable[Any]) -> None:
        """Do nothing: there are no events, all is timers."""

    def _write_to_self(self) -> None:
        """Do nothing: nobody else is there who could wake the loop."""

    def _run_once(self) -> None:
        """Run one iteration, in the order in which asyncio's own loop does all this. A run has up to hundreds of
        thousands, most of which only let one task go on: asyncio's, which looks at a selector, takes half of a run's
        time."""
        ready, timers = self._ready, self._without_cancelled()
        if ready or self._stopping:
            self.now_s += self.step_s()
        elif timers:
            self.now_s += max(0.0, timers[0] - self.now_s) or self.step_s()
        else:
            raise Deadlock("everybody waits for somebody else")
        end_s = self.now_s + CLOCK_RESOLUTION_S
        while timers and timers[0] < end_s:
            timer = heapq.heappop(timers).handle
            timer._scheduled = False
            ready.append(timer)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:
                handle._run()

    def _without_cancelled(self) -> list[_Due]:
        """Return the timers, of which the first one isn't cancelled. As in asyncio all are looked through when most
        are: the order of those that are due at the same time depends on it."""
        timers = self._scheduled
        if len(timers) > MIN_SCHEDULED and self._timer_cancelled_count / len(timers) > MIN_CANCELLED_FRACTION:
            timers = self._scheduled = [each for each in timers if not each.handle._cancelled]
            heapq.heapify(timers)
            self._timer_cancelled_count = 0
        while timers and timers[0].handle._cancelled:
            self._timer_cancelled_count -= 1
            heapq.heappop(timers).handle._scheduled = False
        return timers

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:  # type: ignore[override]
        """See asyncio."""
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return _cancel_if_killed(handle)

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:  # type: ignore[override]
        """See asyncio."""
        handle = _Timer(when, callback, args, self, context)
        due = _Due(when)
        due.handle = handle
        heapq.heappush(self._scheduled, due)
        handle._scheduled = True
        return _cancel_if_killed(handle)

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]
        """See asyncio; also what `asyncio.to_thread` calls."""
        return self.in_thread(partial(func, *args), self._disk_delay_s_max, self._syncs_pause)

    def in_thread(self, call: Callable[[], T], delay_s_max: float, may_pause: bool) -> asyncio.Future[T]:
        """Run `call` within `delay_s_max`, if it doesn't pause. What others do before and after it, and while it
        pauses, is up to chance."""
        future: asyncio.Future[T] = self.create_future()
        before_s, after_s = (self._random.uniform(0, delay_s_max / 2) for _ in range(2))
        process = PROCESS.get(None)

        def ended(fiber: Fiber) -> None:
            if process is not None:
                process.fibers.pop(fiber, None)
            if fiber.error is None or isinstance(fiber.error, Exception):  # and not the end of the machine
                self.call_later(after_s, _settle, future, fiber.result, fiber.error)

        context = contextvars.copy_context()
        fiber = Fiber(self.fibers, partial(context.run, call), self.call_later, ended, may_pause)
        if process is not None:
            process.fibers[fiber] = None
        self.call_later(before_s, fiber.resume)
        return future

    def close(self) -> None:
        """See asyncio."""
        self.fibers.close()
        super().close()

    def spawn(self, process: Process, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run `work` as (a part of) a process."""
        context = contextvars.copy_context()
        context.run(PROCESS.set, process)
        return self.create_task(work, name=process.name, context=context)

    def kill(self, process: Process) -> None:
        """Kill a process at once, wherever it is."""
        process.end()
        for handle in (*self._ready, *(each.handle for each in self._scheduled)):
            _cancel_if_killed(handle)

    def _make_task(self, loop: Any, work: Any, **options: Any) -> asyncio.Task[Any]:
        # Names that asyncio numbers itself go on counting from one run to the next.
        options["name"] = options.get("name") or f"task {next(self._numbers)}"
        task = asyncio.Task(work, loop=loop, **options)
        context = options.get("context")
        process = PROCESS.get(None) if context is None else context.get(PROCESS)
        if process is not None:
            process.tasks.append(task)
        return task

    def _failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if error is None or isinstance(error, Exception):
            self.failures.append(f"{context.get('message')}: {error!r}")

    def discard_tasks(self, process: Process) -> None:
        """Close, after the run, the coroutines of a killed process."""
        with warnings.catch_warnings():
            # A task that hasn't begun may carry a coroutine that only it would have awaited.
            warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
            for task in process.tasks:
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                if not task.done():
                    with contextlib.suppress(BaseException):  # errors of a killed process are meaningless
                        cast(Coroutine[Any, Any, Any], task.get_coro()).close()
            process.tasks.clear()


class SimulatedThreads:
    """See `embedded_broker.runtime.workers.Workers`: as many threads as there is work for."""

    def __init__(self, count: int, name: str) -> None:
        self._loop = cast(SimulatedLoop, asyncio.get_running_loop())
        self._call = (
            partial(self._loop.in_thread, delay_s_max=CODING_S_MAX, may_pause=False)
            if name == coding.THREAD
            else self._on_disk
        )

    def _on_disk(self, call: Callable[[], T]) -> asyncio.Future[T]:
        return self._loop.run_in_executor(None, call)

    def all(self, work: Sequence[Callable[[], T]]) -> asyncio.Future[list[T | BaseException]]:
        """See Workers."""
        return asyncio.gather(*(self._call(each) for each in work), return_exceptions=True)

    def stop(self) -> None:
        """See Workers."""


H = TypeVar("H", bound=asyncio.Handle)


def _cancel_if_killed(handle: H) -> H:
    process = handle._context.get(PROCESS)  # type: ignore[attr-defined]
    if process is not None and not process.alive:
        handle.cancel()
    return handle


def _settle(future: asyncio.Future[T], result: Any, error: Exception | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
