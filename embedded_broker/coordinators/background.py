"""Timers by key, and tasks that must complete even when the client that caused them disconnects.

Each coordinator has one `Background`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, TypeVar

from embedded_broker.storage.disk_space import NoSpace
from embedded_broker.storage.failures import RETRY_MS, is_disk_failure

T = TypeVar("T")
NO_SPACE_RETRY_MS = 1_000


class Background:
    """Owns a coordinator's timers and tasks.

    Invariant: every failure reaches `on_failure`, which ends the broker if it is the disk's. What fails for any other
    reason is tried again later: timers, and work without a caller (`retry_until_done`). A full disk is not a failure:
    the caller gets the error (`finish`), and work without a caller is retried until it is done.
    """

    def __init__(self, on_failure: Callable[[BaseException], None]) -> None:
        self._on_failure = on_failure
        self._timers: dict[Hashable, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self.is_stopping = False
        """Whether what takes long, and can be begun anew by the next start, shall be left."""

    def schedule(self, key: Hashable, delay_ms: int, callback: Callable[[], object]) -> None:
        """Call back after `delay_ms`; replaces the timer of the same key."""
        self.cancel(key)

        def fire() -> None:
            del self._timers[key]
            try:
                callback()
            except Exception as error:  # noqa: BLE001 - it goes to whoever decides
                self._on_failure(error)
                if key not in self._timers:
                    self.schedule(key, RETRY_MS, callback)

        self._timers[key] = asyncio.get_running_loop().call_later(max(delay_ms, 0) / 1000, fire)

    def cancel(self, key: Hashable) -> None:
        """Cancel a timer, if there is one."""
        if timer := self._timers.pop(key, None):
            timer.cancel()

    def spawn(self, name: str, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run `work` to its end; its failure goes to `on_failure`."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    async def finish(self, name: str, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run the coroutine of `make` to its end even if the caller is cancelled: no step may be left half done.

        Raises what it raises; NoSpace goes to the caller only, and must mean that nothing was changed.
        """
        found = await asyncio.shield(self.spawn(name, _or_no_space(make)))
        if isinstance(found, NoSpace):
            raise found
        return found

    def retry_until_done(self, name: str, make: Callable[[], Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
        """Run the coroutine that `make` makes; while the disk is full, retry it later. Returns the first try's task."""
        return self.spawn(name, self.try_once(name, make))

    async def try_once(self, name: str, make: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run the first try in the caller; if it fails, `retry_until_done` goes on in the background.

        Raises what the disk does when it fails.
        """
        try:
            await make()
        except NoSpace:
            self.schedule(object(), NO_SPACE_RETRY_MS, lambda: self.retry_until_done(name, make))
        except Exception as error:
            if is_disk_failure(error):
                raise
            self._on_failure(error)
            self.schedule(object(), RETRY_MS, lambda: self.retry_until_done(name, make))

    async def stop(self) -> None:
        """Cancel all timers and wait for the tasks in progress, whose steps are being written."""
        self.is_stopping = True
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


async def _or_no_space(make: Callable[[], Coroutine[Any, Any, T]]) -> T | NoSpace:
    try:
        return await make()
    except NoSpace as error:
        return error
