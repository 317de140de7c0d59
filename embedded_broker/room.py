"""What happens when the disk is full: writes are refused, reads go on, and what was begun is still finished.

A reserve, a file of zeros, is kept in the data directory. The first write that finds the disk full makes it so for all:
from then on clients' writes are refused at once. The broker's own writes (markers of decided transactions, aborts at
their deadline, the records of a deletion) get the room of the reserve. Once a second it is tried to put the reserve
back, with as much left beside it; then all is as before.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from embedded_broker.log.fs import FULL, FileSystem

T = TypeVar("T")
RESERVE_BYTES = 4 * 1024 * 1024
RETRY_MS = 1_000
log = logging.getLogger("embedded_broker")


class NoRoom(OSError):
    """The disk is full; nothing was changed."""


def is_full(error: OSError) -> bool:
    """Whether an error says that there is no room, and nothing else is wrong."""
    return error.errno in FULL


@contextlib.contextmanager
def suppress_full() -> Iterator[None]:
    """Around a write that is worth while, but not needed."""
    try:
        yield
    except OSError as error:
        if not is_full(error):
            raise


class Room:
    """The room on the disk of one data directory."""

    def __init__(self, fs: FileSystem, directory: Path, on_failure: Callable[[OSError], None]) -> None:
        """`on_failure` is told when looking for room meets another error than a full disk."""
        self._fs, self._on_failure = fs, on_failure
        self._reserve, self._probe = directory / "reserve", directory / "reserve.tmp"
        self._task: asyncio.Task[None] | None = None
        self._has_reserve = False
        self.full = False
        """Whether clients' writes are refused."""

    def start(self) -> None:
        """Put the reserve there, unless it is; a start on a full disk is possible if it is."""
        found = self._fs.read_small(self._reserve)
        # A power cut may have left its name and none, or a part, of the room.
        self._has_reserve = found is not None and len(found) >= RESERVE_BYTES
        if not self._has_reserve and not self._has_come_back():
            self.found_full(NoRoom(errno.ENOSPC, "no room for the reserve"))

    async def stop(self) -> None:
        """No more trying."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def found_full(self, error: OSError) -> None:
        """A write has failed for want of room."""
        if not self.full:
            self.full = True
            log.error("the disk is full (%s): writes are refused until there is room", error)
            self._task = asyncio.get_running_loop().create_task(self._watch(), name="room")

    def own(self, write: Callable[[], T]) -> T:
        """Do a write of the broker's own, from the reserve if it must be. Raises NoRoom, or what `write` raises."""
        try:
            return write()
        except OSError as error:
            if not is_full(error):
                raise
            self.found_full(error)
            if not self._has_reserve:
                raise NoRoom(error.errno, str(error)) from error
        self._has_reserve = False
        self._fs.remove(self._reserve)
        try:
            return write()
        except OSError as error:
            raise (NoRoom(error.errno, str(error)) if is_full(error) else error) from error

    def of_client(self, write: Callable[[], T]) -> T:
        """Do a write that a client wants. Raises NoRoom with nothing changed, or what `write` raises."""
        if self.full:
            raise NoRoom(errno.ENOSPC, "the disk is full")
        try:
            return write()
        except OSError as error:
            if not is_full(error):
                raise
            self.found_full(error)
            raise NoRoom(error.errno, str(error)) from error

    async def _watch(self) -> None:
        """Nothing says when others have freed room: look again and again."""
        try:
            while self.full:
                await asyncio.sleep(RETRY_MS / 1000)
                self.look()
        except OSError as error:
            self._on_failure(error)

    def look(self) -> None:
        """Take writes again if there is room for the reserve, and as much beside it."""
        if self._has_come_back():
            self.full = False
            log.warning("the disk has room again: writes are taken")

    def _has_come_back(self) -> bool:
        try:
            if not self._has_reserve:
                self._fs.allocate(self._reserve, RESERVE_BYTES)
                self._has_reserve = True
            self._fs.allocate(self._probe, RESERVE_BYTES)
        except OSError as error:
            if not is_full(error):
                raise
            if not self._has_reserve:
                self._remove(self._reserve)
            return False
        finally:
            self._remove(self._probe)
        return True

    def _remove(self, path: Path) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._fs.remove(path)
