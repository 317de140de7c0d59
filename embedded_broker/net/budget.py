"""A limit on the bytes that all connections hold together; `Server` has one for requests and one for responses.

Invariants
- Over the limit all holders are paused; they resume when half of it is free again.
- If no bytes are freed within `patience_s`, the holder of the most bytes is shed, repeatedly until enough is free. So
  the limit is enforced, and no holder can block the others for longer than that. At twice the limit holders are shed
  without delay.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar


class Holder(Protocol):
    """Holds bytes of a budget: a connection."""

    def shed(self, what: str) -> None:
        """Release all bytes before this returns. `what` is the reason, in words."""


H = TypeVar("H", bound=Holder)


class Budget(Generic[H]):
    """One limit for the sum of all holders."""

    def __init__(self, what: str, bytes_max: int, changed: Callable[[bool], None], patience_s: float = 1.0) -> None:
        """`what` names what is held; `changed` is called when it is full (True) and when half is free again (False)."""
        self._what, self._bytes_max, self._changed, self._patience_s = what, bytes_max, changed, patience_s
        self._held: dict[H, int] = {}
        self.total_bytes = 0
        self.full = False
        self._timer: asyncio.TimerHandle | None = None
        self._relieved_bytes = 0

    def held(self, holder: H, now_bytes: int) -> None:
        """Set the bytes that `holder` holds now; 0 removes it."""
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
        """Shed the largest holders until the budget is no longer full, unless bytes were freed meanwhile."""
        try:
            if self.total_bytes >= self._relieved_bytes:
                self._shed()
        finally:  # whatever happens, the limit is enforced later
            if self.full:
                self._wait()

    def _shed(self) -> None:
        while self.full and self._held:
            largest = max(self._held, key=self._held.__getitem__)
            largest.shed(f"too many {self._what}, and {self._held[largest]} bytes are its own")
            assert largest not in self._held, "shed, but still holding"
