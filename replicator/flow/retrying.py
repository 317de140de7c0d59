"""Steps of a flow's set-up, tried again while what they meet may pass."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

import structlog

from replicator.backoff import Backoff
from replicator.model.errors import Retriable, UnknownOutcome, Unreachable

PAUSE_S, PAUSE_S_MAX = 0.05, 1.0
T = TypeVar("T")


class Retrying:
    """Tries steps that raise UnknownOutcome, Retriable or Unreachable again, until a timeout or until asked to stop.

    A cluster that comes up has no leaders at first, and a broker that goes down takes requests with it.
    """

    def __init__(self, timeout_ms: float, asked: threading.Event, log: structlog.stdlib.BoundLogger) -> None:
        """`timeout_ms`: for how long one step is tried; `asked`: the process shall stop, which cuts waits short."""
        self._timeout_ms, self._asked, self._log = timeout_ms, asked, log

    def __call__(self, step: Callable[[], T], *, attempts_min: int = 1, whatever_is_asked: bool = False) -> T:
        """Return what `step` returns. `attempts_min`: so often even after the timeout; `whatever_is_asked`: it is tried
        on when the process shall stop. Raises what `step` raised last, or Unreachable where a stop has cut it short."""
        backoff, give_up = Backoff(PAUSE_S, PAUSE_S_MAX), time.monotonic() + self._timeout_ms / 1000
        while True:
            try:
                return step()
            except (UnknownOutcome, Retriable, Unreachable) as error:
                pause_s = backoff.next_s()
                if backoff.failures >= attempts_min and time.monotonic() >= give_up:
                    raise
                self._log.warning("setup_tried_again", reason=str(error))
                if self._asked.wait(pause_s):
                    if not whatever_is_asked:
                        raise Unreachable(f"the flow was asked to stop; what it waited for: {error}") from error
                    time.sleep(pause_s)
