"""The disk of a simulated broker: it survives a kill of the process, but only synced data survives a power cut."""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from random import Random
from typing import Any

from embedded_broker.simulation.fibers import Mutex
from embedded_broker.simulation.loop import PROCESS, SimulatedLoop
from embedded_broker.storage.log.format import LOG_START
from embedded_broker.storage.log.memory_fs import MemoryFileSystem, PowerCut

SYNCS_THAT_TAKE_TIME = 0.5


class Disk(MemoryFileSystem):
    """A filesystem in memory. From a power cut until `recover` every operation fails; those of dead processes, always.

    A sync in a thread takes time, in which others write: that is not secured by it.
    """

    def __init__(
        self,
        loop: SimulatedLoop,
        random: Random,
        sync_s_max: float,
        on_power_cut: Callable[[], None],
        on_failed_sync: Callable[[], None],
    ) -> None:
        """
        Args:
            loop: says what time it is.
            random: of the disk.
            sync_s_max: how long a sync takes at most.
            on_power_cut: called when the power fails within an operation.
            on_failed_sync: called when an fsync has failed.
        """
        super().__init__(loop)
        self._loop, self._random, self._sync_s_max = loop, random, sync_s_max
        self._on_power_cut, self._on_failed_sync = on_power_cut, on_failed_sync
        self.on_log_start: Callable[[], None] = lambda: None
        """Called when the start of a log has been raised: what was before it is gone, whatever comes now."""
        self._has_power = True
        self.has_failed = False
        """Whether an fsync has failed since the last start: what it was to secure may be gone."""

    def step(self, *kinds: str) -> None:
        """See MemoryFileSystem."""
        self._strikes(super().step, *kinds)

    def write(self, kind: str, inode: Any, at: int, data: bytes) -> None:
        """See MemoryFileSystem."""
        self._strikes(super().write, kind, inode, at, data)

    def write_atomically(self, path: Path, data: bytes) -> None:
        """See FileSystem."""
        super().write_atomically(path, data)
        if path.name == LOG_START:
            self.on_log_start()

    def while_syncing(self) -> None:
        """See MemoryFileSystem."""
        self._refuse_the_dead()
        if self._sync_s_max and self._random.random() < SYNCS_THAT_TAKE_TIME:
            self._loop.fibers.pause(self._random.uniform(0, self._sync_s_max))

    def mutex(self) -> AbstractContextManager[object]:
        """See FileSystem."""
        return Mutex(self._loop.fibers)

    def fill(self, bytes_left: int) -> None:
        """Leave disk space for that many more bytes only, until `size_bytes_max` is None again."""
        self.size_bytes_max = self.size_bytes + bytes_left

    def _refuse_the_dead(self) -> None:
        process = PROCESS.get(None)
        if not self._has_power or (process is not None and not process.alive):
            raise PowerCut

    def _strikes(self, operation: Callable[..., None], *args: Any) -> None:
        self._refuse_the_dead()
        try:
            operation(*args)
        except PowerCut:
            self._has_power = False
            self._on_power_cut()
            raise
        except OSError as error:
            if error.errno == errno.EIO:
                self.has_failed = True
                self._on_failed_sync()
            raise

    def recover(self, random: Random, power_lost: bool) -> None:
        """Recover before a start: what a power cut has taken is gone; after a mere kill all is as the process left it,
        even what an fsync has failed to secure: the next power cut will take that."""
        if power_lost:
            self.crash(random)
        else:
            self.process_gone()
        self._has_power, self.has_failed = True, False
