"""The filesystem as the log sees it: few calls, so that tests can stand in with one that fails on purpose."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol


class File(Protocol):
    """An open append-only file. Offsets are bytes."""

    def append(self, data: bytes | bytearray | memoryview) -> None:
        """Write all of `data` at the end, or raise OSError with the file as it was before."""

    def read(self, at: int, size: int) -> bytes:
        """Up to `size` bytes from `at`; shorter only at the end."""

    def size(self) -> int:
        """Bytes in the file."""

    def truncate(self, size: int) -> None:
        """Cut the file."""

    def sync(self) -> None:
        """Must not return until all appended bytes are durably stored."""

    def close(self) -> None:
        """Close without syncing."""


class FileSystem(Protocol):
    """Directories and whole small files."""

    def open(self, path: Path) -> File:
        """Open for append and read; created if missing, durably once its directory is synced."""

    def names(self, directory: Path) -> list[str]:
        """Sorted names in a directory, which is created if missing."""

    def write_atomically(self, path: Path, data: bytes) -> None:
        """Replace a small file; after a crash it holds the old bytes or the new ones, never a mixture."""

    def read_small(self, path: Path) -> bytes | None:
        """A small file's bytes; None when it doesn't exist."""

    def remove(self, path: Path) -> None:
        """Remove a file; missing is fine."""

    def sync_directory(self, path: Path) -> None:
        """Must not return until created and removed names are durable."""


class RealFile:
    """A file of the operating system, unbuffered."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._size = os.fstat(self._fd).st_size

    def append(self, data: bytes | bytearray | memoryview) -> None:
        """See File."""
        start, view = self._size, memoryview(data)
        try:
            while view:
                written = os.pwrite(self._fd, view, self._size)
                self._size += written
                view = view[written:]
        except OSError:
            os.ftruncate(self._fd, start)  # a half-written batch must not precede the next one
            self._size = start
            raise

    def read(self, at: int, size: int) -> bytes:
        """See File."""
        return os.pread(self._fd, size, at)

    def size(self) -> int:
        """See File."""
        return self._size

    def truncate(self, size: int) -> None:
        """See File."""
        os.ftruncate(self._fd, size)
        self._size = size

    def sync(self) -> None:
        """See File."""
        os.fdatasync(self._fd)

    def close(self) -> None:
        """See File."""
        os.close(self._fd)


class RealFileSystem:
    """The operating system's filesystem."""

    def open(self, path: Path) -> File:
        """See FileSystem."""
        return RealFile(path)

    def names(self, directory: Path) -> list[str]:
        """See FileSystem."""
        if not directory.is_dir():
            directory.mkdir(parents=True)
            self.sync_directory(directory.parent)
        return sorted(os.listdir(directory))

    def write_atomically(self, path: Path, data: bytes) -> None:
        """See FileSystem."""
        beside = path.with_suffix(".tmp")
        with open(beside, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
        self.sync_directory(path.parent)

    def read_small(self, path: Path) -> bytes | None:
        """See FileSystem."""
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None

    def remove(self, path: Path) -> None:
        """See FileSystem."""
        path.unlink(missing_ok=True)

    def sync_directory(self, path: Path) -> None:
        """See FileSystem."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
