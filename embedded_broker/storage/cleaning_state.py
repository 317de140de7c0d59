"""Whether a partition is being compacted, and whether it may be. Source: Kafka `LogCleanerManager.abortCleaning`."""

from __future__ import annotations

import asyncio


class CleaningAborted(Exception):
    """The partition is being deleted, or the broker stops: what the pass has written is not needed."""


class CleaningState:
    """Of one partition. Called on the event loop, but for `check`, which the thread of a pass calls."""

    def __init__(self) -> None:
        self.is_allowed = True
        """Whether a pass may begin, or go on."""
        self._idle = asyncio.Event()
        self._idle.set()

    def begin(self) -> None:
        """Note that a pass begins, which must call `end`."""
        self._idle.clear()

    def end(self) -> None:
        """Note that the pass uses no file of the partition any more."""
        self._idle.set()

    def check(self) -> None:
        """Raise CleaningAborted if the pass shall not go on."""
        if not self.is_allowed:
            raise CleaningAborted

    async def abort(self) -> None:
        """Return once no pass works on the partition; none will begin."""
        self.is_allowed = False
        await self._idle.wait()
