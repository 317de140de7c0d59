"""How many bytes all connections hold together, and what happens at the limit.

Invariants
- Over the limit the holders are told to wait; they go on when half of it is free again.
- If nothing gets free by itself within `patience_s`, whoever holds most is shed, again and again until enough is free.
  So the limit binds, and nobody can keep the others waiting for longer than that. At twice the limit there is no
  patience.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar


class Holder(Protocol):
    """Somebody who holds bytes."""

    def shed(self, what: str) -> None:
        """Let go of everything: hold nothing by the time this returns."""


H = TypeVar("H", bound=Holder)


class Budget(Generic[H]):
    """One limit over all holders."""

    def __init__(self, what: str, bytes_max: int, changed: Callable[[bool], None], patience_s: float = 1.0) -> None:
        """`what` is held, in words; `changed` is told when it is full (True) and when half is free again (False)."""
        self._what, self._bytes_max, self._changed, self._patience_s = what, bytes_max, changed, patience_s
        self._held: dict[H, int] = {}
        self.total_bytes = 0
        self.full = False
        self._timer: asyncio.TimerHandle | None = None
        self._relieved_bytes = 0

    def held(self, holder: H, now_bytes: int) -> None:
        """`holder` holds so much now; 0 when it is gone."""
        before = self._held.pop(holder, 0)
        if now_bytes:
            self._held[holder] = now_bytes
        self.total_bytes += now_bytes - before
        if not self.full and self.total_bytes > self._bytes_max:
            self.full = True
            self._wait()
            self._changed(True)
        if self.total_bytes > 2 * self._bytes_max:
            self._shed()
        elif self.full and self.total_bytes <= self._bytes_max // 2:
            self.full = False
            if self._timer is not None:
                self._timer.cancel()
            self._changed(False)

    def _wait(self) -> None:
        self._relieved_bytes = self.total_bytes
        self._timer = asyncio.get_running_loop().call_later(self._patience_s, self._relieve)

    def _relieve(self) -> None:
        """Shed the largest until it is no longer full, unless it gets less by itself."""
        if self.total_bytes >= self._relieved_bytes:
            self._shed()
        if self.full:
            self._wait()

    def _shed(self) -> None:
        while self.full and self._held:
            largest = max(self._held, key=self._held.__getitem__)
            largest.shed(f"too many {self._what}, and {self._held[largest]} bytes are its own")
            assert largest not in self._held, "shed, but still holding"
