"""Of what the Kafka client library says, a few lines a minute for each cause: without a broker it says the same 80
times a second. A processor of structlog, put into the log of a process by `logs.configure`.

Invariant: nothing is left out silently. The lines of a cause that were left out in a minute are counted, and the last
of them is written with their number, as soon as the minute is over and anything else is logged.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, MutableMapping
from typing import Any

import structlog

EVENT = "client"
LINES_MAX, WINDOW_S = 3, 60.0
CAUSES_MAX = 200
"""What is said beyond so many different causes in a minute counts as one."""
MANY = "many"
VARIABLE = re.compile(
    r"\[[^\]]*\]"  # the client, its thread, a partition
    r"|\([^)]*\)"  # how long a connection had lasted, how many lines the library has left out itself
    r"|\S*:\d+(?:/\w+)?"  # an address, a broker
    r"|\d+"
)
"""What differs between two lines of one cause."""

Entry = MutableMapping[str, Any]


def cause_of(line: str) -> str:
    """Reduce a line to what it says whichever client, broker and time it is about. Pure."""
    return " ".join(VARIABLE.sub("", line).split())


class _Minute:
    """What was said of one cause since `began_s`; `last`: the last line that was left out."""

    def __init__(self, began_s: float) -> None:
        self.began_s, self.written, self.left_out = began_s, 0, 0
        self.last: dict[str, Any] | None = None


class ClientLines:
    """Lets the first `LINES_MAX` lines of a cause through in each minute. From any thread."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        """`now_s`: a monotonic clock."""
        self._now_s, self._lock = now_s, threading.Lock()
        self._minutes: dict[str, _Minute] = {}

    def __call__(self, logger: Any, method: str, entry: Entry) -> Entry:
        """See structlog. Raises DropEvent for a line that is left out."""
        now_s = self._now_s()
        dropped = False
        with self._lock:
            over = [cause for cause, it in self._minutes.items() if now_s >= it.began_s + WINDOW_S]
            ended = [self._minutes.pop(cause) for cause in over]
            if entry["event"] == EVENT and "left_out" not in entry:
                dropped = not self._passes(entry, now_s)
        for minute in ended:  # one after the other: the next one finds none of them any more
            if minute.last is not None:
                log = structlog.get_logger()
                log.info("client", **minute.last, left_out=minute.left_out - 1)
        if dropped:
            raise structlog.DropEvent
        return entry

    def _passes(self, entry: Entry, now_s: float) -> bool:
        cause = cause_of(str(entry.get("detail", "")))
        if cause not in self._minutes and len(self._minutes) >= CAUSES_MAX:
            cause = MANY
        minute = self._minutes.setdefault(cause, _Minute(now_s))
        if minute.written < LINES_MAX:
            minute.written += 1
            return True
        minute.left_out += 1
        minute.last = {key: value for key, value in entry.items() if key not in ("event", "level", "timestamp")}
        return False
