"""The filesystem interface of the log, with few calls, so that tests can inject one with failures; and the real one.

Promises are worded for the worst case, a power cut: what has not been synced may be there afterwards wholly, in part,
or not at all, and in any order. After a kill of the process alone, everything written is still there.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import sys
import threading
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from embedded_broker.storage.log.open_files import OpenFiles

FILE_MODE, DIRECTORY_MODE = 0o600, 0o700
"""There are records, password hashes and ACLs in them."""
Data = bytes | bytearray | memoryview
WRITE_AGAIN_BYTES = 1024 * 1024
DISK_FULL_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Error numbers that say that there is no disk space, and nothing else is wrong."""


class SyncFailed(OSError):
    """An fsync of a file or directory has failed: what was written since the last one may be there or not.

    Never to be taken for a full disk, whatever the system says: a later attempt would find nothing to write.
    """

    def __init__(self, path: Path, cause: OSError) -> None:
        super().__init__(errno.EIO, f"{path}: fsync failed: {cause.strerror}")


class File(Protocol):
    """An open append-only file. Positions and sizes are bytes. `sync` may be called by another thread."""

    def append(self, data: Data) -> None:
        """Write all of `data` at the end. Raises OSError, and then the file reads as it did before."""

    def read(self, at: int, size: int) -> bytes:
        """Read up to `size` bytes from `at`; shorter only at the end. Raises OSError."""

    def size(self) -> int:
        """Return the bytes in the file: those of all appends that did not raise."""

    def write_again(self, at: int) -> None:
        """Write what stands from byte `at` on once more, in its place, so that the next `sync` secures it.

        After a failed sync the system may keep pages that are not on the disk and take them for clean: they can be
        read, also by a later process, and no further sync would write them. Raises OSError.
        """

    def modified_ms(self) -> int:
        """Return when it was written to last, in milliseconds since 1970; that stays over restarts. Raises OSError."""

    def set_modified_ms(self, time_ms: int) -> None:
        """Let `modified_ms` be this until the next write: for a file that takes another's place. Raises OSError."""

    def truncate(self, size: int) -> None:
        """Truncate the file. Raises OSError."""

    def sync(self) -> None:
        """Return only once all appended bytes are durably stored. Raises SyncFailed; then nothing is known."""

    def close(self) -> None:
        """Close without syncing."""


class Lock(Protocol):
    """A lock that is held."""

    def release(self) -> None:
        """Let others have it."""


class FileSystem(Protocol):
    """Directories and whole small files. Every call raises OSError when it fails."""

    def lock(self, directory: Path) -> Lock:
        """Create a directory and lock it for this process, until it dies. Raises BlockingIOError if it is locked."""

    def open(self, path: Path) -> File:
        """Open for append and read; created if missing, durably once its directory is synced."""

    def names(self, directory: Path) -> list[str]:
        """List the sorted names in a directory, which is created if missing, durably once its parent is synced."""

    def read_small(self, path: Path) -> bytes | None:
        """Read a small file's bytes; None when it doesn't exist."""

    def write_atomically(self, path: Path, data: bytes) -> None:
        """Replace a small file, durably. After a crash it holds the old bytes or the new ones, never a mixture."""

    def overwrite(self, path: Path, data: bytes) -> None:
        """Write a small file in place, not durably: after a power cut it may hold anything."""

    def allocate(self, path: Path, size: int) -> None:
        """Make a file of zeros that takes up `size` bytes on the disk."""

    def rename(self, path: Path, to: Path) -> None:
        """Give a file another's name, in its place. Durable once their directory is synced."""

    def remove(self, path: Path) -> None:
        """Remove a file; missing is fine. Durable once its directory is synced."""

    def remove_directory(self, path: Path) -> None:
        """Remove an empty directory; missing is fine."""

    def sync_directory(self, path: Path) -> None:
        """Return only once names created, replaced or removed in it are durable. Raises SyncFailed."""

    def mutex(self) -> AbstractContextManager[object]:
        """Return a lock between threads, under which files may be synced: where syncs are simulated, it is, too."""


class RealFile:
    """A file of the operating system, unbuffered."""

    def __init__(self, path: Path, open_files: OpenFiles | None = None) -> None:
        open_files = open_files or OpenFiles(sys.maxsize)
        self._path, self._open_files = path, open_files
        open_files.take()
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        except OSError:
            open_files.give_back()
            raise
        self._size = os.fstat(self._fd).st_size
        # Bytes of a failed append may stand behind `_size`. They must go before the next append: a shorter batch
        # would leave the rest of them behind itself, where recovery could take them for batches.
        self._torn = False

    def append(self, data: Data) -> None:
        """See File."""
        if self._torn:
            self.truncate(self._size)
        view, at = memoryview(data), self._size
        try:
            while view:
                written = os.pwrite(self._fd, view, at)
                if written == 0:
                    raise OSError(errno.EIO, "nothing was written")
                at += written
                view = view[written:]
        except OSError:
            self._torn = True
            with contextlib.suppress(OSError):  # the next append tries it again, and raises if it still fails
                self.truncate(self._size)
            raise
        self._size = at

    def read(self, at: int, size: int) -> bytes:
        """See File."""
        wanted, data = max(min(size, self._size - at), 0), b""
        while len(data) < wanted:  # once, unless more than the system reads in one call
            more = os.pread(self._fd, wanted - len(data), at + len(data))
            if not more:
                raise OSError(errno.EIO, f"the file ends at {at + len(data)}, not at {self._size}")
            data = data + more if data else more
        return data

    def size(self) -> int:
        """See File."""
        return self._size

    def write_again(self, at: int) -> None:
        """See File."""
        modified_ms = self.modified_ms()
        while data := self.read(at, WRITE_AGAIN_BYTES):
            written = os.pwrite(self._fd, data, at)
            if written == 0:
                raise OSError(errno.EIO, "nothing was written")
            at += written
        self.set_modified_ms(modified_ms)

    def modified_ms(self) -> int:
        """See File."""
        return os.fstat(self._fd).st_mtime_ns // 1_000_000

    def set_modified_ms(self, time_ms: int) -> None:
        """See File."""
        os.utime(self._fd, ns=(time_ms * 1_000_000, time_ms * 1_000_000))

    def truncate(self, size: int) -> None:
        """See File."""
        os.ftruncate(self._fd, size)
        self._size, self._torn = size, False

    def sync(self) -> None:
        """See File."""
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            raise SyncFailed(self._path, error) from error

    def close(self) -> None:
        """See File."""
        os.close(self._fd)
        self._open_files.give_back()


class RealLock:
    """A file that is locked as long as it is open."""

    def __init__(self, path: Path) -> None:
        """Raises BlockingIOError if another process, or this one, holds it."""
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._fd)
            raise

    def release(self) -> None:
        """See Lock."""
        os.close(self._fd)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, FILE_MODE)


class RealFileSystem:
    """The operating system's filesystem."""

    def __init__(self, open_files: OpenFiles | None = None) -> None:
        """`open_files`: how many may be open; by default as many as the system allows."""
        self._open_files = open_files or OpenFiles(sys.maxsize)

    def lock(self, directory: Path) -> Lock:
        """See FileSystem."""
        directory.mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)
        mode = directory.stat().st_mode
        if mode & 0o007:  # what older versions have written there can be read by all
            with contextlib.suppress(PermissionError):
                directory.chmod(mode & 0o770)
        return RealLock(directory / "lock")

    def open(self, path: Path) -> File:
        """See FileSystem."""
        return RealFile(path, self._open_files)

    def names(self, directory: Path) -> list[str]:
        """See FileSystem."""
        try:
            return sorted(os.listdir(directory))
        except FileNotFoundError:
            for missing in [parent for parent in directory.parents if not parent.exists()][::-1]:
                missing.mkdir(DIRECTORY_MODE, exist_ok=True)
                self.sync_directory(missing.parent)
            directory.mkdir(DIRECTORY_MODE)
            return []

    def read_small(self, path: Path) -> bytes | None:
        """See FileSystem."""
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None

    def write_atomically(self, path: Path, data: bytes) -> None:
        """See FileSystem."""
        beside = path.with_name(f"{path.name}.tmp")
        try:
            with open(beside, "wb", opener=_private) as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except OSError:
            with contextlib.suppress(OSError):  # it only takes up disk space; the next attempt replaces it
                os.unlink(beside)
            raise
        os.replace(beside, path)
        self.sync_directory(path.parent)

    def overwrite(self, path: Path, data: bytes) -> None:
        """See FileSystem."""
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            os.pwrite(fd, data, 0)
        finally:
            os.close(fd)

    def allocate(self, path: Path, size: int) -> None:
        """See FileSystem."""
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            os.posix_fallocate(fd, 0, size)
        finally:
            os.close(fd)

    def rename(self, path: Path, to: Path) -> None:
        """See FileSystem."""
        os.replace(path, to)

    def remove(self, path: Path) -> None:
        """See FileSystem."""
        path.unlink(missing_ok=True)

    def remove_directory(self, path: Path) -> None:
        """See FileSystem."""
        with contextlib.suppress(FileNotFoundError):
            path.rmdir()

    def sync_directory(self, path: Path) -> None:
        """See FileSystem."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        except OSError as error:
            raise SyncFailed(path, error) from error
        finally:
            os.close(fd)

    def mutex(self) -> AbstractContextManager[object]:
        """See FileSystem."""
        return threading.Lock()
