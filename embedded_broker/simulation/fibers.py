"""Blocking calls that take simulated time in their middle: each in a thread of its own, of which only one ever runs.
Those that never pause need no thread, and a change of threads takes longer than most of them.

Whoever resumes a fiber waits until it pauses or ends. So threads change nothing about the order of events, which
remains a function of the seed.
"""

from __future__ import annotations

import contextlib
from asyncio import TimerHandle
from collections.abc import Callable
from threading import Lock, Thread
from typing import Any

Later = Callable[[float, Callable[[], None]], TimerHandle]


class Ended(BaseException):
    """The process of the call was killed. Nothing may catch it."""


class _Runner:
    """A thread that runs one call after another, always while somebody waits in `resume`."""

    def __init__(self) -> None:
        self._go, self._back = Lock(), Lock()
        self._go.acquire()
        self._back.acquire()
        self.work: Callable[[], None] | None = None
        Thread(target=self._run, name="simulated", daemon=True).start()

    def resume(self) -> None:
        """Let the thread run until it gives back."""
        self._go.release()
        self._back.acquire()

    def give_back(self) -> None:
        """Let whoever resumed it go on, and wait for the next time. Called in the thread."""
        self._back.release()
        self._go.acquire()

    def _run(self) -> None:
        self._go.acquire()
        while self.work is not None:
            self.work()
            self.give_back()
        self._back.release()


class Fiber:
    """One call. `result` or `error` is set once it has ended."""

    def __init__(
        self,
        fibers: Fibers,
        call: Callable[[], Any],
        later: Later,
        on_end: Callable[[Fiber], None],
        may_pause: bool = True,
    ) -> None:
        """
        Args:
            fibers: of the run.
            call: what it does.
            later: calls back after some seconds.
            on_end: called when it has ended by itself.
            may_pause: whether time may pass in it.
        """
        self._may_pause = may_pause
        self._fibers, self._call, self._later, self._on_end = fibers, call, later, on_end
        self._runner: _Runner | None = None
        self._timer: TimerHandle | None = None
        self._pause_s: float | None = None
        self._may_go_on: Callable[[], bool] | None = None
        self._is_killed = False
        self.result: Any = None
        self.error: BaseException | None = None

    def resume(self) -> None:
        """Begin, or go on, up to the next pause."""
        if not self._may_pause:
            before, self._fibers.current = self._fibers.current, self
            self._run()
            self._fibers.current = before
            if not self._is_killed:
                self._on_end(self)
            return
        if self._timer is not None:
            self._timer.cancel()
        if self._may_go_on is not None and not self._may_go_on():
            assert self._pause_s is not None
            self._timer = self._later(self._pause_s, self.resume)
            return
        if self._runner is None:
            self._runner = self._fibers.take()
            self._runner.work = self._run
        if self._proceed():
            if not self._is_killed:
                self._on_end(self)
        else:
            assert self._pause_s is not None
            self._timer = self._later(self._pause_s, self.resume)

    def _proceed(self) -> bool:
        """Go on, and return whether it has ended."""
        assert self._runner is not None
        self._pause_s = self._may_go_on = None
        before, self._fibers.current = self._fibers.current, self
        self._runner.resume()
        self._fibers.current = before
        if self._pause_s is not None:
            return False
        self._fibers.give(self._runner)
        self._runner = None
        return True

    def pause(self, seconds: float, may_go_on: Callable[[], bool] | None = None) -> None:
        """Pause; called in its thread. `may_go_on`: if it isn't true then, it pauses as long again. Raises Ended."""
        assert self._runner is not None, "a call that may not pause does"
        if not self._is_killed:
            self._pause_s, self._may_go_on = seconds, may_go_on
            self._runner.give_back()
        if self._is_killed:
            raise Ended

    def kill(self) -> None:
        """End it where it pauses. What its `finally` blocks do has no effect: the disk refuses dead processes."""
        self._is_killed = True
        if self._runner is not None and self is not self._fibers.current:
            self._proceed()

    def _run(self) -> None:
        try:
            self.result = self._call()
        except BaseException as error:  # noqa: BLE001 - goes to whoever waits, as from a thread
            self.error = error


class Fibers:
    """All of one run."""

    def __init__(self) -> None:
        self._idle: list[_Runner] = []
        self.current: Fiber | None = None
        """The one that runs; None while it is the event loop."""

    def take(self) -> _Runner:
        """Return a thread without work."""
        return self._idle.pop() if self._idle else _Runner()

    def give(self, runner: _Runner) -> None:
        """Take back a thread that has no work any more."""
        self._idle.append(runner)

    def pause(self, seconds: float) -> None:
        """Let time pass in the call that runs. On the event loop none does: it would stand still meanwhile."""
        if self.current is not None:
            self.current.pause(seconds)

    def close(self) -> None:
        """End all threads; no call may be under way."""
        for runner in self._idle:
            runner.work = None
            runner.resume()
        self._idle.clear()


class Mutex(contextlib.AbstractContextManager[None]):
    """A lock between fibers and the event loop."""

    RETRY_S = 0.001

    def __init__(self, fibers: Fibers) -> None:
        self._fibers = fibers
        self._is_held = False
        self._holder: Fiber | None = None

    def __enter__(self) -> None:
        while self._is_held:
            if self._fibers.current is None:
                # As in a broker whose event loop waits for a thread: nothing else happens meanwhile.
                assert self._holder is not None, "the event loop waits for itself"
                self._holder.resume()
            else:
                self._fibers.current.pause(self.RETRY_S, self._is_free)
        self._is_held, self._holder = True, self._fibers.current

    def _is_free(self) -> bool:
        return not self._is_held

    def __exit__(self, *error: object) -> None:
        self._is_held, self._holder = False, None
