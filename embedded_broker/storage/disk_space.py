"""Disk space of the data directory: detects that the disk is full, refuses clients' writes then, and keeps a reserve.

`Broker` creates one `DiskSpace`; `Partition` and `Topics` make every write through it. The reserve is a file of zeros
in the data directory. The first write that fails because the disk is full marks it full: from then on writes for
clients are refused at once, while reads are served. Internal writes (markers of decided transactions, aborts at their
deadline, the records of a deletion) may use the space of the reserve, which is removed for them. Once a second the
broker tries to allocate the reserve again, and the same amount beside it; when that succeeds, writes are accepted.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from embedded_broker.config.thresholds import DEFAULTS, Thresholds
from embedded_broker.storage.log.fs import DISK_FULL_ERRNOS, FileSystem
from embedded_broker.storage.log.open_files import OpenFiles, is_out_of_files

T = TypeVar("T")
RETRY_MS = 1_000
log = logging.getLogger("embedded_broker")


class NoSpace(OSError):
    """The disk is full, or no file can be opened; nothing was changed."""


def is_disk_full(error: OSError) -> bool:
    """Return whether an error says that there is no disk space, and nothing else is wrong."""
    return error.errno in DISK_FULL_ERRNOS


@contextlib.contextmanager
def suppress_disk_full() -> Iterator[None]:
    """Ignore a full disk in the block: for writes that are useful but not needed. Other errors are raised."""
    try:
        yield
    except OSError as error:
        if not is_disk_full(error):
            raise


class DiskSpace:
    """Disk space of one data directory. Called on the event loop only."""

    def __init__(
        self,
        fs: FileSystem,
        directory: Path,
        on_failure: Callable[[BaseException], None],
        open_files: OpenFiles | None = None,
        thresholds: Thresholds = DEFAULTS,
    ) -> None:
        """
        Args:
            fs: where it is.
            directory: of the data.
            on_failure: called when a check for disk space fails with another error than that of a full disk.
            open_files: those that logs hold.
            thresholds: say how large the reserve is.
        """
        self._reserve_bytes = thresholds.reserve_bytes
        self.open_files = open_files or OpenFiles(sys.maxsize)
        self._fs, self._on_failure = fs, on_failure
        self._reserve, self._probe = directory / "reserve", directory / "reserve.tmp"
        self._task: asyncio.Task[None] | None = None
        self._has_reserve = False
        self.full = False
        """Whether clients' writes are refused."""

    def start(self) -> None:
        """Allocate the reserve if it is missing. With the reserve in place a start on a full disk is possible."""
        found = self._fs.read_small(self._reserve)
        # After a power cut the file may exist with none or a part of its bytes allocated.
        self._has_reserve = found is not None and len(found) >= self._reserve_bytes
        if not self._has_reserve and not self._try_to_allocate():
            self.mark_full(NoSpace(errno.ENOSPC, "no space for the reserve"))

    async def stop(self) -> None:
        """Stop checking for disk space."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def mark_full(self, error: OSError) -> None:
        """Note that a write has failed because the disk is full."""
        if not self.full:
            self.full = True
            log.error("the disk is full (%s): writes are refused until there is space", error)
            self._task = asyncio.get_running_loop().create_task(self._watch(), name="disk-space")

    def write_internal(self, write: Callable[[], T]) -> T:
        """Do a write that the broker itself needs, with the reserve's space if it must be.

        Raises NoSpace, or what `write` raises.
        """
        try:
            with self.open_files.for_itself():
                return write()
        except OSError as error:
            if is_out_of_files(error):
                raise NoSpace(error.errno, str(error)) from error
            if not is_disk_full(error):
                raise
            self.mark_full(error)
            if not self._has_reserve:
                raise NoSpace(error.errno, str(error)) from error
        self._has_reserve = False
        self._fs.remove(self._reserve)
        try:
            return write()
        except OSError as error:
            raise (NoSpace(error.errno, str(error)) if is_disk_full(error) else error) from error

    def write_for_client(self, write: Callable[[], T]) -> T:
        """Do a write for a client. Raises NoSpace with nothing changed, or what `write` raises."""
        if self.full:
            raise NoSpace(errno.ENOSPC, "the disk is full")
        try:
            return write()
        except OSError as error:
            if is_out_of_files(error):
                raise NoSpace(error.errno, str(error)) from error
            if not is_disk_full(error):
                raise
            self.mark_full(error)
            raise NoSpace(error.errno, str(error)) from error

    async def _watch(self) -> None:
        """Poll: the system doesn't notify when space has been freed."""
        while self.full:
            await asyncio.sleep(RETRY_MS / 1000)
            try:
                self.check()
            except Exception as error:  # noqa: BLE001 - the broker decides whether it can go on
                self._on_failure(error)

    def check(self) -> None:
        """Accept writes again if there is space for the reserve, and for the same amount beside it."""
        if self._try_to_allocate():
            self.full = False
            log.warning("the disk has space again: writes are accepted")

    def _try_to_allocate(self) -> bool:
        try:
            if not self._has_reserve:
                self._fs.allocate(self._reserve, self._reserve_bytes)
                self._has_reserve = True
            self._fs.allocate(self._probe, self._reserve_bytes)
        except OSError as error:
            if is_out_of_files(error):
                return False
            if not is_disk_full(error):
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
