"""The disk of a simulated broker: it survives a kill of the process, but only synced data survives a power cut."""

from __future__ import annotations

import errno
from collections.abc import Callable
from random import Random
from typing import Any

from embedded_broker.clock import Clock
from embedded_broker.storage.log.memory_fs import MemoryFileSystem, PowerCut


class Disk(MemoryFileSystem):
    """A filesystem in memory. From a power cut until `recover` every operation fails."""

    def __init__(self, clock: Clock, on_power_cut: Callable[[], None], on_failed_sync: Callable[[], None]) -> None:
        super().__init__(clock)
        self._on_power_cut, self._on_failed_sync = on_power_cut, on_failed_sync
        self._has_power = True
        self.has_failed = False
        """Whether an fsync has failed since the last start: what it was to secure may be gone."""

    def step(self, kind: str) -> None:
        """See MemoryFileSystem."""
        self._strikes(super().step, kind)

    def write(self, kind: str, inode: Any, at: int, data: bytes) -> None:
        """See MemoryFileSystem."""
        self._strikes(super().write, kind, inode, at, data)

    def fill(self, bytes_left: int) -> None:
        """Leave disk space for that many more bytes only, until `size_bytes_max` is None again."""
        self.size_bytes_max = self.size_bytes + bytes_left

    def _strikes(self, operation: Callable[..., None], *args: Any) -> None:
        if not self._has_power:
            raise PowerCut
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
        """Before a start: what a power cut has taken is gone; after a mere kill all is as the process left it, even
        what an fsync has failed to secure: the next power cut will take that."""
        if power_lost:
            self.crash(random)
        else:
            self.process_gone()
        self._has_power, self.has_failed = True, False
