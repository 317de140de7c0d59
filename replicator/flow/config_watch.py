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

from replicator.config import Config, Flow
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
        return () if self._files is None else file_states(self._files())

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
            self._tell(self._once())

    def _once(self) -> ReadConfig | UnreadConfig:
        try:
            return self._read()
        except ConfigError as error:
            return UnreadConfig(error)
