"""Timers by key, and work that must go on when the client that asked for it hangs up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, TypeVar

from embedded_broker.room import NoRoom

T = TypeVar("T")
NO_ROOM_RETRY_MS = 1_000


class Background:
    """Owns a coordinator's timers and tasks.

    Invariant: whatever fails here reaches `on_failure`, never silence. But a full disk is nobody's failure: who asked
    is told (`finish`), and what nobody asked for is tried again (`insist`).
    """

    def __init__(self, on_failure: Callable[[BaseException], None]) -> None:
        self._on_failure = on_failure
        self._timers: dict[Hashable, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    def schedule(self, key: Hashable, delay_ms: int, callback: Callable[[], object]) -> None:
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
        """Run `work` to its end even if the caller is cancelled: a half-made step must not stay behind.

        Raises what `work` raises; NoRoom is for the caller alone, and must mean that nothing was changed.
        """
        found = await asyncio.shield(self.spawn(name, _or_no_room(work)))
        if isinstance(found, NoRoom):
            raise found
        return found

    def insist(self, name: str, make: Callable[[], Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
        """Run what `make` makes; whenever it finds the disk full, again later. The task is that of the first try."""
        return self.spawn(name, self.attempt(name, make))

    async def attempt(self, name: str, make: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """As `insist`, here and now."""
        try:
            await make()
        except NoRoom:
            self.schedule(object(), NO_ROOM_RETRY_MS, lambda: self.insist(name, make))

    async def stop(self) -> None:
        """Cancel all timers and wait for the tasks under way; their steps are on the way to the disk."""
        self._cancel_all()
        while self._tasks:
            await asyncio.wait(self._tasks)
        self._cancel_all()  # what these have scheduled

    def _cancel_all(self) -> None:
        for key in list(self._timers):
            self.cancel(key)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_failure(error)


async def _or_no_room(work: Coroutine[Any, Any, T]) -> T | NoRoom:
    try:
        return await work
    except NoRoom as error:
        return error
