"""Reads the flow file again, when somebody asks for it or when it has changed, in a thread of its own: a file may lie
on a disk that doesn't answer, and signals must be heard meanwhile. Started by `flow.daemon`.

Invariant: what it hands over was read and checked as a whole, or is an error; there is nothing in between.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from replicator.config import Config, Flow, FlowFileError
from replicator.model.errors import ConfigError

LOOK_S = 1.0
"""Between two looks at files that are watched."""
FileStates = tuple[tuple[int, int, int, int] | None, ...]
"""Of each file: device, inode, size, time of its last change in ns; None where there is no such file."""


@dataclass(frozen=True, slots=True)
class ReadConfig:
    """The file as it is now, and those of its flows that this process runs."""

    config: Config
    flows: Sequence[Flow]


@dataclass(frozen=True, slots=True)
class UnreadConfig:
    """The file has a fault."""

    error: ConfigError


def file_states(files: Iterable[Path]) -> FileStates:
    """Look at files, through links: one that is replaced by another has another inode."""
    return tuple(_state(file) for file in files)


def _state(file: Path) -> tuple[int, int, int, int] | None:
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


class Settled:
    """Tells once of each change, when two looks in a row have seen the same: who writes may not be done. Pure."""

    def __init__(self, first: FileStates) -> None:
        """`first`: as it was when the file was read."""
        self._read = self._last = first

    def look(self, now: FileStates) -> bool:
        """Take a look; whether the files have changed since they were read last, and stand still."""
        still, self._last = now == self._last, now
        if not still or now == self._read:
            return False
        self._read = now
        return True

    def read(self, now: FileStates) -> None:
        """Note that the files are read as they are now."""
        self._read = self._last = now


class NamedFiles:
    """Reads the flow file, and knows it and the files that it names: as it was read last without a fault, and, where it
    has faults since, also those that it names now. So one that was missing is looked for."""

    def __init__(self, path: Path, loaded: Config, read: Callable[[], ReadConfig]) -> None:
        """`loaded`: what stands in `path` at the start."""
        self._path, self._read = path, read
        self._good = tuple(loaded.files)
        self._files = self._of(())

    def files(self) -> Sequence[Path]:
        """Return them, the flow file first."""
        return self._files

    def read(self) -> ReadConfig:
        """Read and check the flow file. Raises ConfigError."""
        try:
            found = self._read()
        except FlowFileError as error:
            self._files = self._of(error.files)
            raise
        self._good = tuple(found.config.files)
        self._files = self._of(())
        return found

    def _of(self, more: Sequence[str]) -> Sequence[Path]:
        return [self._path, *map(Path, dict.fromkeys((*self._good, *more)))]


class ConfigReader:
    """The thread."""

    def __init__(
        self,
        read: Callable[[], ReadConfig],
        files: Callable[[], Sequence[Path]] | None = None,
        first: FileStates = (),
    ) -> None:
        """
        Args:
            read: reads and checks the file. Raises ConfigError.
            files: whose changes make it read again; None: only when asked.
            first: these files before they were read at the start.
        """
        self._read, self._files = read, files
        self._tell: Callable[[ReadConfig | UnreadConfig], None] = lambda found: None
        self._asked, self._requests = threading.Condition(), 0
        self._settled = Settled(first)

    def start(self, tell: Callable[[ReadConfig | UnreadConfig], None]) -> None:
        """Start the thread."""
        self._tell = tell
        threading.Thread(target=self._main, name="config", daemon=True).start()

    def ask(self) -> None:
        """Have the file read again. From any thread; asked twice before it is read, it is read once."""
        with self._asked:
            self._requests += 1
            self._asked.notify()

    def _look(self) -> FileStates:
        return file_states(self._names())

    def _main(self) -> None:
        while True:
            with self._asked:
                if not self._requests:
                    self._asked.wait(None if self._files is None else LOOK_S)
                asked, self._requests = self._requests > 0, 0
            before = self._look()  # what is written while it is read is another change
            if asked:
                self._settled.read(before)
            elif not self._settled.look(before):
                continue
            self._tell(self._found())

    def _found(self) -> ReadConfig | UnreadConfig:
        """Read the file, and once more where it names other files now: what these were before wasn't looked at."""
        before = self._names()
        found = self._once()
        if self._names() != before:
            self._settled.read(self._look())
            found = self._once()
        return found

    def _names(self) -> Sequence[Path]:
        return () if self._files is None else self._files()

    def _once(self) -> ReadConfig | UnreadConfig:
        try:
            return self._read()
        except ConfigError as error:
            return UnreadConfig(error)
