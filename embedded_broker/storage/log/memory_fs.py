"""A filesystem in memory that fails on purpose: the worst that FileSystem's promises allow.

It remembers what has been synced. `crash` takes the rest away, all of it or a random choice of it; faults let the
n-th operation fail, in part or with a power cut.
"""

from __future__ import annotations

import errno
import os
import threading
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from embedded_broker.runtime.clock import Clock, SystemClock
from embedded_broker.storage.log.fs import Data, File, Lock, SyncFailed


class PowerCut(BaseException):
    """The machine stopped in the middle of an operation. Nothing may catch it but the test that asked for it."""


@dataclass(slots=True, eq=False)
class _Inode:
    """A file's content. `pending` are changes since the last sync, in order: (position, bytes), or (size, None) for a
    cut. What a failed sync was to secure is in neither `pending` nor `synced`, but can be read: the system keeps such
    pages, takes them for clean, and loses them in a power cut."""

    data: bytearray = field(default_factory=bytearray)
    synced: bytearray = field(default_factory=bytearray)
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)
    modified_ms: int = 0
    changes: int = 0
    """How many there have been; `pending` are the last of them."""

    def change(self, at: int, new: bytes | None) -> None:
        self.changes += 1
        self.pending.append((at, new))
        _apply(self.data, at, new)

    def sync(self, changes: int) -> None:
        """Note that the first `changes` are on the disk: those before the sync began."""
        for at, new in self.sync_failed(changes):
            _apply(self.synced, at, new)

    def sync_failed(self, changes: int) -> list[tuple[int, bytes | None]]:
        count = max(len(self.pending) - (self.changes - changes), 0)
        done, self.pending = self.pending[:count], self.pending[count:]
        return done

    def crash(self, random: Random | None) -> None:
        """Go back to what was synced; with `random`, each change since may have reached the disk, or a part of it."""
        image = bytearray(self.synced)
        for at, new in self.pending if random else ():
            assert random is not None
            fate = random.choice(("lost", "part", "whole"))
            if fate == "whole":
                _apply(image, at, new)
            elif fate == "part" and new is not None:
                _apply(image, at, new[: random.randrange(len(new) + 1)])
        self.data, self.synced, self.pending = image, bytearray(image), []


def _apply(data: bytearray, at: int, new: bytes | None) -> None:
    if new is None:
        del data[at:]
        return
    data.extend(bytes(max(at - len(data), 0)))  # a hole reads as zeros
    data[at : at + len(new)] = new


@dataclass(slots=True)
class _Fault:
    """Strikes at the operation that finds `countdown` at 0."""

    kind: str
    countdown: int
    error: BaseException
    bytes_written: int


class MemoryFileSystem:
    """Implements FileSystem.

    Kinds of operations: append, truncate, sync (`sync_data`, if not of `write_atomically`), create, write, rename,
    remove, sync_directory. Reads (`read` of an open file, `read_small`) can fail, too, but don't count: nothing can be
    lost at them. A crash keeps the object usable: it is the disk after the restart. Files opened before belong to the
    past.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        """`clock` says when files are modified; None: the operating system's."""
        self.clock = clock or SystemClock()
        self.operations = 0
        """How many there have been: the range for `power_cut`."""
        self.size_bytes_max: int | None = None
        """How much all files may hold together."""
        self._inodes: dict[Path, _Inode] = {}
        self._children: dict[Path, dict[Path, None]] = {}  # by directory: all files that it has, or has had
        self._directories: dict[Path, None] = {}
        self._durable: dict[Path, _Inode] = {}  # names as of the last sync of their directories
        self._faults: list[_Fault] = []
        self._locks: dict[Path, _MemoryLock] = {}
        self._directory_syncs = 0
        self._synced_since: dict[Path, int] = {}  # number of the last sync of a directory that has ended well

    def fail(self, kind: str, error_number: int, *, after: int = 0, bytes_written: int = 0) -> None:
        """Let an operation raise OSError.

        Args:
            kind: which operations count.
            error_number: as in `errno`.
            after: how many of them succeed before.
            bytes_written: how much of a failed append, or of a write, is done nevertheless.
        """
        self._faults.append(_Fault(kind, after, OSError(error_number, os.strerror(error_number)), bytes_written))

    def power_cut(self, after: int) -> None:
        """Raise PowerCut after that many more operations of any kind; then call `crash`."""
        self._faults.append(_Fault("", after, PowerCut(), 0))

    def step(self, *kinds: str) -> None:
        """Count an operation about to be done; raises what was asked for, before anything is done."""
        fault = self._strike(*kinds)
        if fault is not None:
            raise fault.error

    def while_syncing(self) -> None:
        """Do nothing between the beginning of a sync and its end. What is changed meanwhile is not secured by it."""

    def mutex(self) -> AbstractContextManager[object]:
        """See FileSystem."""
        return threading.Lock()

    def before_read(self, kind: str) -> None:
        """Raise what was asked for, before a read."""
        fault = self._struck((kind,))
        if fault is not None:
            raise fault.error

    def _strike(self, *kinds: str) -> _Fault | None:
        self.operations += 1
        return self._struck(("", *kinds))

    def _struck(self, kinds: tuple[str, ...]) -> _Fault | None:
        for fault in self._faults:
            if fault.kind in kinds:
                fault.countdown -= 1
                if fault.countdown < 0:
                    self._faults.remove(fault)
                    return fault
        return None

    def write(self, kind: str, inode: _Inode, at: int, data: bytes) -> None:
        """Count a write and do it; a fault may have done a part of it before it raises."""
        fault = self._strike(kind)
        if fault is not None:
            done = data if isinstance(fault.error, PowerCut) else data[: fault.bytes_written]
            if done:
                inode.change(at, done)  # `crash` decides how much of it a power cut has left
            raise fault.error
        growth = at + len(data) - len(inode.data)
        if self.size_bytes_max is not None and growth > 0 and self.size_bytes + growth > self.size_bytes_max:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        inode.change(at, data)
        inode.modified_ms = self.clock.now_ms()

    @property
    def size_bytes(self) -> int:
        """Of all files together."""
        return sum(len(inode.data) for inode in self._inodes.values())

    def crash(self, random: Random | None = None) -> None:
        """Lose what was not synced; with `random`, a choice of it. Names, too: of files created, renamed, removed."""
        for path in sorted(self._inodes.keys() | self._durable.keys()):  # the same choice for the same seed
            now, then = self._inodes.get(path), self._durable.get(path)
            kept = now if random and random.random() < 0.5 else then
            if kept is None:
                self._durable.pop(path, None)
            else:
                self._durable[path] = kept
        self._inodes = dict(self._durable)
        for inode in self._inodes.values():
            inode.crash(random)
        self.process_gone()

    def process_gone(self) -> None:
        """Note that the process died and the machine did not: what was written is still there, and no lock is."""
        self._faults = []
        self._locks.clear()

    def corrupt(self, path: Path, at: int) -> None:
        """Flip a bit of what is stored, as a bad disk does."""
        inode = self._inodes[path]
        inode.data[at] ^= 0x01
        inode.synced, inode.pending = bytearray(inode.data), []

    def put_inode(self, path: Path, inode: _Inode) -> _Inode:
        """Give a file a name, not durably."""
        self._children.setdefault(path.parent, {})[path] = None
        self._inodes[path] = inode
        return inode

    def lock(self, directory: Path) -> Lock:
        """See FileSystem."""
        if directory in self._locks:
            raise BlockingIOError(errno.EWOULDBLOCK, os.strerror(errno.EWOULDBLOCK))
        self._locks[directory] = lock = _MemoryLock(self._locks, directory)
        return lock

    def open(self, path: Path) -> File:
        """See FileSystem."""
        if path not in self._inodes:
            self.step("create")
            self.put_inode(path, _Inode(modified_ms=self.clock.now_ms()))
        return _MemoryFile(self, self._inodes[path], path)

    def names(self, directory: Path) -> list[str]:
        """See FileSystem."""
        self._directories[directory] = None
        files = (path for path in self._children.get(directory, ()) if path in self._inodes)
        return sorted(path.name for path in (*files, *(each for each in self._directories if each.parent == directory)))

    def read_small(self, path: Path) -> bytes | None:
        """See FileSystem."""
        self.before_read("read_small")
        inode = self._inodes.get(path)
        return None if inode is None else bytes(inode.data)

    def write_atomically(self, path: Path, data: bytes) -> None:
        """See FileSystem."""
        inode = _Inode()
        self.write("write", inode, 0, data)
        self.while_syncing()
        self.step("sync")
        inode.sync(inode.changes)
        self.step("rename")
        self.put_inode(path, inode)
        self.sync_directory(path.parent)

    def overwrite(self, path: Path, data: bytes) -> None:
        """See FileSystem."""
        self.write("write", self._inodes.get(path) or self.put_inode(path, _Inode()), 0, data)

    def allocate(self, path: Path, size: int) -> None:
        """See FileSystem."""
        self.write("write", self._inodes.get(path) or self.put_inode(path, _Inode()), 0, bytes(size))

    def rename(self, path: Path, to: Path) -> None:
        """See FileSystem."""
        self.step("rename")
        self.put_inode(to, self._inodes.pop(path))

    def remove(self, path: Path) -> None:
        """See FileSystem."""
        self.step("remove")
        self._inodes.pop(path, None)

    def remove_directory(self, path: Path) -> None:
        """See FileSystem."""
        self.step("remove")
        self._directories.pop(path, None)

    def sync_directory(self, path: Path) -> None:
        """See FileSystem."""
        self._directory_syncs += 1
        number = self._directory_syncs
        children = self._children.setdefault(path, {})
        names = {name: self._inodes[name] for name in children if name in self._inodes}
        self.while_syncing()
        try:
            self.step("sync_directory")
        except OSError as error:
            raise SyncFailed(path, error) from error
        if number > self._synced_since.get(path, 0):  # else one that began later has ended before
            self._synced_since[path] = number
            for name in children:
                self._durable.pop(name, None)
            self._durable.update(names)


class _MemoryLock:
    """Held until released, or until the crash."""

    def __init__(self, locks: dict[Path, _MemoryLock], directory: Path) -> None:
        self._locks, self._directory = locks, directory

    def release(self) -> None:
        """See Lock. One from before a crash locks nothing any more."""
        if self._locks.get(self._directory) is self:
            del self._locks[self._directory]


class _MemoryFile:
    """An open file of a MemoryFileSystem."""

    def __init__(self, fs: MemoryFileSystem, inode: _Inode, path: Path) -> None:
        self._fs, self._inode, self._path = fs, inode, path
        self._size = len(inode.data)

    def append(self, data: Data) -> None:
        """See File."""
        if len(self._inode.data) > self._size:  # what a failed append has left
            self.truncate(self._size)
        self._fs.write("append", self._inode, self._size, bytes(data))
        self._size += len(data)

    def read(self, at: int, size: int) -> bytes:
        """See File."""
        self._fs.before_read("read")
        return bytes(self._inode.data[at : min(at + size, self._size)])

    def size(self) -> int:
        """See File."""
        return self._size

    def write_again(self, at: int) -> None:
        """See File."""
        if data := bytes(self._inode.data[at : self._size]):
            modified_ms = self._inode.modified_ms
            self._fs.write("write", self._inode, at, data)
            self._inode.modified_ms = modified_ms

    def modified_ms(self) -> int:
        """See File."""
        return self._inode.modified_ms

    def set_modified_ms(self, time_ms: int) -> None:
        """See File."""
        self._inode.modified_ms = time_ms

    def truncate(self, size: int) -> None:
        """See File."""
        self._fs.step("truncate")
        self._inode.change(size, None)
        self._inode.modified_ms = self._fs.clock.now_ms()
        self._size = size

    def sync(self) -> None:
        """See File."""
        changes = self._inode.changes
        self._fs.while_syncing()
        try:
            self._fs.step("sync", "sync_data")
        except OSError as error:
            self._inode.sync_failed(changes)
            raise SyncFailed(self._path, error) from error
        self._inode.sync(changes)

    def close(self) -> None:
        """See File."""
