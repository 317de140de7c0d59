"""How many fetched bytes all lanes of a process may hold together. Used by `reader`; made by `flow.wiring`."""

from __future__ import annotations

import threading


class FetchBudget:
    """Shared by lanes, each in its own thread.

    Invariant: a lane that holds nothing may always fetch: so no lane waits for another one to copy.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self._held: dict[object, int] = {}
        self._sum = 0

    def hold(self, lane: object, size: int) -> None:
        """Note how much a lane holds now; 0: it is forgotten."""
        with self._lock:
            self._sum += size - self._held.pop(lane, 0)
            if size:
                self._held[lane] = size

    def allows(self, lane: object) -> bool:
        """Tell whether a lane may ask for more."""
        with self._lock:
            return self._sum < self._bytes_max or lane not in self._held
