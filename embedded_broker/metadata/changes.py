"""Runs changes of metadata one after the other, and each request that makes some to its end.

`Broker` creates one `Changes`. `api.registry` runs the handlers that are registered with `changes=True` by `finish`;
whoever reads metadata, decides and writes does so within `one`, which `MetadataLog.put` checks.

Invariants
- Between the append of a record and the change of memory nothing is cancelled: memory and log change together. Clients
  may leave at any time, so their connections' tasks never run a change themselves.
- What one change reads no other changes before it has written: of several that are acknowledged none is lost.
- `stop` waits for the change that has begun, and none begins after it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
REQUESTS_AT_ONCE_MAX = 16
"""Requests that change something; further ones wait, and may still be given up by their clients."""


class Changes:
    """All changes of one broker's metadata. Called on the event loop only."""

    def __init__(self, on_failure: Callable[[BaseException], None]) -> None:
        """`on_failure`: gets what ended a request whose client has left."""
        self._on_failure = on_failure
        self._turn = asyncio.Semaphore(REQUESTS_AT_ONCE_MAX)
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._lock = asyncio.Lock()
        self._changing: asyncio.Task[Any] | None = None
        self._stopping = False

    async def finish(self, name: str, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a request's changes to their end, also if the caller is cancelled meanwhile.

        Args:
            name: of the request.
            work: is called when it is the request's turn.

        Raises what `work` raises; CancelledError when the broker stops before the last change was begun.
        """
        await self._turn.acquire()
        if self._stopping:
            self._turn.release()
            raise asyncio.CancelledError
        task = asyncio.get_running_loop().create_task(work(), name=name)
        self._tasks[task] = None
        task.add_done_callback(self._ended)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(self._tell)
            raise

    def one(self) -> _One:
        """Make one change, as a context manager: other changes wait. Only what `finish` runs may make one."""
        return _One(self)

    def go_on(self) -> None:
        """Raise CancelledError when the broker stops; called between changes that need no `one`."""
        if self._stopping:
            raise asyncio.CancelledError

    def check(self) -> None:
        """Raise RuntimeError unless the caller makes a change: within `one`."""
        if self._changing is None or self._changing is not asyncio.current_task():
            raise RuntimeError("metadata may only be changed within `Changes.one`")

    async def stop(self) -> None:
        """Wait for the change that has begun, and begin no more."""
        self._stopping = True
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def begin(self) -> None:
        """See `one`."""
        task = asyncio.current_task()
        if task not in self._tasks:
            raise RuntimeError("a change of metadata could be cancelled half way: it must be run by `Changes.finish`")
        await self._lock.acquire()
        if self._stopping:
            self._lock.release()
            raise asyncio.CancelledError
        self._changing = task

    def end(self) -> None:
        """See `one`."""
        self._changing = None
        self._lock.release()

    def _ended(self, task: asyncio.Task[Any]) -> None:
        del self._tasks[task]
        self._turn.release()

    def _tell(self, task: asyncio.Task[Any]) -> None:
        """Report what the task has raised, for which nobody waits any more."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_failure(error)


class _One:
    """Not a generator function: after a simulated kill its `finally` would still run when that is collected."""

    def __init__(self, changes: Changes) -> None:
        self._changes = changes

    async def __aenter__(self) -> None:
        await self._changes.begin()

    async def __aexit__(self, *error: object) -> None:
        self._changes.end()
