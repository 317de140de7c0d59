"""The broker's wall clock, injected into `Broker` so that tests and simulations can control it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Wall time."""

    def now_ms(self) -> int:
        """Return milliseconds since 1970."""


class SystemClock:
    """The operating system's clock."""

    def now_ms(self) -> int:
        """See Clock."""
        return time.time_ns() // 1_000_000
