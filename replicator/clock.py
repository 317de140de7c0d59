"""The real clock. Made by `flow.wiring` and by jobs, given to lanes; their unit tests have a simulated one."""

from __future__ import annotations

import threading
import time


class RealClock:
    """Implements `lane.ports.Clock` with the machine's clocks."""

    def now_s(self) -> float:
        """Return monotonic seconds."""
        return time.monotonic()

    def now_ms(self) -> int:
        """Return milliseconds since 1970 UTC."""
        return time.time_ns() // 1_000_000

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        """Wait until `event` is set, at most so long; whether it is set."""
        return event.wait(timeout_s)
