"""A disk that remembers every write, so that a test can come back to any of them and cut it at any byte."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from embedded_broker.storage.log.memory_fs import MemoryFileSystem, _Inode


@dataclass(frozen=True)
class Write:
    """One write, and the disk just before it."""

    path: Path | None
    """None: a file that has no name yet, which a crash forgets."""
    at: int
    data: bytes
    before: Any
    """The disk's files: (path, bytes, bytes as synced, whether the name is durable)."""
    acked: Any
    """What had been acknowledged by then."""


class Journal(MemoryFileSystem):
    """Keeps what is needed for `cuts`, from `begin` on."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[Write] | None = None
        self.acked: Any = None

    def begin(self, acked: Any) -> None:
        """Remember writes from now on; `acked` is copied at each."""
        self.writes, self.acked = [], acked

    def write(self, kind: str, inode: Any, at: int, data: bytes) -> None:
        if self.writes is not None:
            paths = [path for path, known in self._inodes.items() if known is inode]
            files = [
                (path, bytes(each.data), bytes(each.synced), self._durable.get(path) is each)
                for path, each in self._inodes.items()
                if path.name != "reserve"  # 4 MiB of zeros
            ]
            write = Write(paths[0] if paths else None, at, bytes(data), files, copy.deepcopy(self.acked))
            self.writes.append(write)
        super().write(kind, inode, at, data)


@dataclass(frozen=True)
class Cut:
    """A crash in a write, of which `size` bytes came through. Calling it makes the disk as it is afterwards.

    Either the process was killed, so all that was written before is there; or the machine lost power, so that only what
    was synced is there, and those bytes of the file just written.
    """

    write: Write
    size: int
    power_cut: bool

    def __call__(self, directory: Path | None = None) -> MemoryFileSystem:
        """A new disk; with `directory` only what is in there."""
        disk, write = Disk(), self.write
        for path, data, synced, is_named in write.before:
            if (self.power_cut and not is_named) or directory not in (None, path.parent):
                continue
            content = synced if self.power_cut else data
            if path == write.path:
                content = data[: write.at] + write.data[: self.size] + data[write.at + self.size :]
            disk.put(path, content)
        return disk


class Disk(MemoryFileSystem):
    """Made of files that are durable."""

    def put(self, path: Path, data: bytes) -> None:
        """One file."""
        self._durable[path] = self.put_inode(path, _Inode(bytearray(data), bytearray(data)))
        self._directories.update(dict.fromkeys(path.parents))


def cuts(write: Write) -> Iterator[Cut]:
    """Every number of bytes; of a file without a name none counts."""
    for size in range(len(write.data) + 1) if write.path is not None else (0,):
        for power_cut in (False, True):
            yield Cut(write, size, power_cut)
