"""How long a lane waits for the answers of one cluster. Used by `clusters`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from concurrent.futures import Future, wait
from typing import Any

STOPPING_S = 2.0
SLICE_S = 0.2  # between two looks at whether a stop is asked for


class AnswerWait:
    """Waits for futures as long as each question may take, until a stop is asked for.

    From then on all questions together are waited for `STOPPING_S` at most: a lane that stops asks several of them one
    after the other, and each could have to wait for a cluster that doesn't answer. Used by one thread.
    """

    def __init__(self, stop_asked: threading.Event) -> None:
        self._stop_asked, self._left_s = stop_asked, STOPPING_S

    def complete(self, futures: Collection[Future[Any]], timeout_s: float) -> None:
        """Return when all are done, `timeout_s` is over, or a stop leaves no time to wait."""
        self.until(lambda slice_s: not wait(futures, timeout=slice_s).not_done, timeout_s)

    def until(self, poll: Callable[[float], bool], timeout_s: float) -> None:
        """Return when `poll`, which waits so many seconds at most, says that all is there, or as `complete`."""
        deadline_s = time.monotonic() + timeout_s
        while not (stopping := self._stop_asked.is_set()):
            left_s = deadline_s - time.monotonic()
            if poll(max(0.0, min(left_s, SLICE_S))) or left_s <= 0:  # what has come meanwhile counts, however late
                break
        if stopping:
            began_s = time.monotonic()
            poll(max(0.0, min(deadline_s - began_s, self._left_s)))
            self._left_s -= time.monotonic() - began_s
