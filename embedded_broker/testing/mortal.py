"""A filesystem that can die: what a kill of the process is to a real one, in a process that lives on."""

from __future__ import annotations

import errno
from pathlib import Path

from embedded_broker.log.fs import Data, File, Lock, RealFile, RealFileSystem


class MortalFileSystem(RealFileSystem):
    """The operating system's, until `die`. From then on nothing is written by whoever still runs.

    Invariant: a file's descriptor is closed once, and never used afterwards: its number may be another file's by then.
    """

    def __init__(self) -> None:
        self._dead = False
        self._open: set[MortalFile] = set()
        self._lock: Lock | None = None

    def die(self) -> None:
        """Every call raises OSError from now on; one that another thread has begun is finished."""
        self._dead = True

    def bury(self) -> None:
        """Close what is still open, and let go of the lock. Only after `die`, when no other thread is left."""
        for file in list(self._open):
            file.close()
        if self._lock is not None:
            self._lock.release()

    def alive(self) -> None:
        """Raises OSError after `die`."""
        if self._dead:
            raise OSError(errno.EIO, "the broker was killed")

    def opened(self, file: MortalFile) -> None:
        """A file is open."""
        self._open.add(file)

    def closed(self, file: MortalFile) -> bool:
        """A file is closed; whether it had been open."""
        was_open = file in self._open
        self._open.discard(file)
        return was_open

    def lock(self, directory: Path) -> Lock:
        """See FileSystem."""
        self.alive()
        self._lock = super().lock(directory)
        return self._lock

    def open(self, path: Path) -> File:
        """See FileSystem."""
        self.alive()
        return MortalFile(self, path)

    def names(self, directory: Path) -> list[str]:
        """See FileSystem."""
        self.alive()
        return super().names(directory)

    def write_atomically(self, path: Path, data: bytes) -> None:
        """See FileSystem."""
        self.alive()
        super().write_atomically(path, data)

    def overwrite(self, path: Path, data: bytes) -> None:
        """See FileSystem."""
        self.alive()
        super().overwrite(path, data)

    def allocate(self, path: Path, size: int) -> None:
        """See FileSystem."""
        self.alive()
        super().allocate(path, size)

    def rename(self, path: Path, to: Path) -> None:
        """See FileSystem."""
        self.alive()
        super().rename(path, to)

    def remove(self, path: Path) -> None:
        """See FileSystem."""
        self.alive()
        super().remove(path)

    def remove_directory(self, path: Path) -> None:
        """See FileSystem."""
        self.alive()
        super().remove_directory(path)


class MortalFile(RealFile):
    """A file of it."""

    def __init__(self, fs: MortalFileSystem, path: Path) -> None:
        super().__init__(path)
        self._fs = fs
        fs.opened(self)

    def append(self, data: Data) -> None:
        """See File."""
        self._fs.alive()
        super().append(data)

    def read(self, at: int, size: int) -> bytes:
        """See File."""
        self._fs.alive()
        return super().read(at, size)

    def truncate(self, size: int) -> None:
        """See File."""
        self._fs.alive()
        super().truncate(size)

    def sync(self) -> None:
        """See File."""
        self._fs.alive()
        super().sync()

    def close(self) -> None:
        """See File."""
        if self._fs.closed(self):
            super().close()
