"""One timer of a connection: what must happen in time, or the connection is closed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Deadline:
    """Runs at most once at a time."""

    def __init__(self, why: str) -> None:
        """`why`: what is said when the time has passed."""
        self._why = why
        self._timer: asyncio.TimerHandle | None = None

    @property
    def runs(self) -> bool:
        """Whether it was begun and not cancelled; also once it has passed."""
        return self._timer is not None

    def begin(self, seconds: float, closing: Callable[[str], object]) -> None:
        """Begin now, unless it runs already; `closing` is called with the reason. It is only held meanwhile."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(seconds, closing, self._why)

    def cancel(self) -> None:
        """Cancel it, if it runs."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
