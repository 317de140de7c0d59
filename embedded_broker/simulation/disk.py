"""The disk of a simulated broker: it outlives the process; what isn't synced may not outlive the machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from embedded_broker.log.memory_fs import MemoryFileSystem, PowerCut


class Disk(MemoryFileSystem):
    """Ends with its machine: from the operation that the power is cut at until `recover`, nothing is done any more."""

    def __init__(self, on_power_cut: Callable[[], None]) -> None:
        super().__init__()
        self._on_power_cut = on_power_cut
        self._has_power = True

    def step(self, kind: str) -> None:
        """See MemoryFileSystem."""
        self._strikes(super().step, kind)

    def write(self, kind: str, inode: Any, at: int, data: bytes) -> None:
        """See MemoryFileSystem."""
        self._strikes(super().write, kind, inode, at, data)

    def allocate(self, path: Path, size: int) -> None:
        """See FileSystem. The room on this disk isn't measured: a few bytes stand for all of them."""
        super().allocate(path, min(size, 64))

    def _strikes(self, operation: Callable[..., None], *args: Any) -> None:
        if not self._has_power:
            raise PowerCut
        try:
            operation(*args)
        except PowerCut:
            self._has_power = False
            self._on_power_cut()
            raise

    def recover(self, random: Random, power_lost: bool) -> None:
        """Before a start: what a power cut has taken is gone; after a kill all is as the process left it."""
        self._has_power = True
        if power_lost:
            self.crash(random)
        else:
            self.process_gone()
