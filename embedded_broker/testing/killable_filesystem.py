"""A filesystem that can be killed: no write happens afterwards, as after a kill of the process.

`BrokerRun` gives it to a broker that runs in a thread of the test's process, where a kill can't end the process.
"""

from __future__ import annotations

import errno
from pathlib import Path

from embedded_broker.storage.log.fs import Data, File, Lock, RealFile, RealFileSystem


class KillableFileSystem(RealFileSystem):
    """The operating system's filesystem until `kill`; from then on tasks that still run can't write anything.

    Invariant: a file's descriptor is closed once and never used afterwards, because its number may be reused.
    """

    def __init__(self) -> None:
        self._killed = False
        self._open: dict[KillableFile, None] = {}
        self._lock: Lock | None = None

    def kill(self) -> None:
        """Make every call from now on raise OSError; calls in progress in other threads are finished."""
        self._killed = True

    def close_all(self) -> None:
        """Close all open files and release the lock. Call after `kill`, when no other thread uses them any more."""
        for file in list(self._open):
            file.close()
        if self._lock is not None:
            self._lock.release()

    def check_alive(self) -> None:
        """Raise OSError after `kill`."""
        if self._killed:
            raise OSError(errno.EIO, "the broker was killed")

    def opened(self, file: KillableFile) -> None:
        """Register an open file."""
        self._open[file] = None

    def closed(self, file: KillableFile) -> bool:
        """Unregister a file; returns whether it was open."""
        if file not in self._open:
            return False
        del self._open[file]
        return True

    def lock(self, directory: Path) -> Lock:
        """See FileSystem."""
        self.check_alive()
        self._lock = super().lock(directory)
        return self._lock

    def open(self, path: Path) -> File:
        """See FileSystem."""
        self.check_alive()
        return KillableFile(self, path)

    def names(self, directory: Path) -> list[str]:
        """See FileSystem."""
        self.check_alive()
        return super().names(directory)

    def write_atomically(self, path: Path, data: bytes) -> None:
        """See FileSystem."""
        self.check_alive()
        super().write_atomically(path, data)

    def overwrite(self, path: Path, data: bytes) -> None:
        """See FileSystem."""
        self.check_alive()
        super().overwrite(path, data)

    def allocate(self, path: Path, size: int) -> None:
        """See FileSystem."""
        self.check_alive()
        super().allocate(path, size)

    def rename(self, path: Path, to: Path) -> None:
        """See FileSystem."""
        self.check_alive()
        super().rename(path, to)

    def remove(self, path: Path) -> None:
        """See FileSystem."""
        self.check_alive()
        super().remove(path)

    def remove_directory(self, path: Path) -> None:
        """See FileSystem."""
        self.check_alive()
        super().remove_directory(path)


class KillableFile(RealFile):
    """A file of a KillableFileSystem."""

    def __init__(self, fs: KillableFileSystem, path: Path) -> None:
        super().__init__(path)
        self._fs = fs
        fs.opened(self)

    def append(self, data: Data) -> None:
        """See File."""
        self._fs.check_alive()
        super().append(data)

    def read(self, at: int, size: int) -> bytes:
        """See File."""
        self._fs.check_alive()
        return super().read(at, size)

    def write_again(self, at: int) -> None:
        """See File."""
        self._fs.check_alive()
        super().write_again(at)

    def truncate(self, size: int) -> None:
        """See File."""
        self._fs.check_alive()
        super().truncate(size)

    def sync(self) -> None:
        """See File."""
        self._fs.check_alive()
        super().sync()

    def close(self) -> None:
        """See File."""
        if self._fs.closed(self):
            super().close()
