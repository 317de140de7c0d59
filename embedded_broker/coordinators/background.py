"""Timers by key, and work that must go on when the client that asked for it hangs up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, TypeVar

T = TypeVar("T")


class Background:
    """Owns a coordinator's timers and tasks. Invariant: whatever fails here reaches `on_failure`, never silence."""

    def __init__(self, on_failure: Callable[[BaseException], None]) -> None:
        self._on_failure = on_failure
        self._timers: dict[Hashable, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    def schedule(self, key: Hashable, delay_ms: int, callback: Callable[[], None]) -> None:
        """Call back after `delay_ms`; replaces the timer of the same key."""
        self.cancel(key)

        def fire() -> None:
            del self._timers[key]
            try:
                callback()
            except Exception as error:
                self._on_failure(error)
                raise

        self._timers[key] = asyncio.get_running_loop().call_later(max(delay_ms, 0) / 1000, fire)

    def cancel(self, key: Hashable) -> None:
        """Forget a timer, if there is one."""
        if timer := self._timers.pop(key, None):
            timer.cancel()

    def spawn(self, name: str, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run `work` to its end; its failure is the broker's."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    async def finish(self, name: str, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` to its end even if the caller is cancelled: a half-made step must not stay behind."""
        return await asyncio.shield(self.spawn(name, work))

    async def stop(self) -> None:
        """Cancel all timers and wait for the tasks under way; their steps are on the way to the disk."""
        for key in list(self._timers):
            self.cancel(key)
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_failure(error)
