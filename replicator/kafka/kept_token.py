"""A token that is used for a part of its life, for all logins of the process. Used by `token_command`, `wire.oauth`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from replicator.model.errors import Unreachable

LIFE_SHARE = 0.8  # as librdkafka's
FAILED_AGAIN_S = 1.0
"""Whoever asks so shortly after there was no token is told the same: every connection asks."""
REFUSED_AGAIN_S = 5.0
"""A token that a broker has refused is used again for so long after it was made."""
Ask = Callable[[], tuple[str, float]]
"""Returns a token and for how many seconds it holds. Raises Unreachable: there is none now."""


class KeptToken:
    """The newest token. May be used by any thread: while one asks, the others wait for what it gets."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._lock = threading.Lock()
        self._token = ""
        self._asked_s = self._fresh_until_s = self._valid_until_s = 0.0
        self._failed_s = float("-inf")
        self.failure = ""
        """Why there was no token when it was asked for last; empty when there was one."""

    def token(self) -> str:
        """Return a token that is valid for a while. Raises Unreachable."""
        return self.with_end()[0]

    def with_end(self) -> tuple[str, float]:
        """Return a token and until when it holds, in seconds since 1970. Raises Unreachable."""
        with self._lock:
            if time.monotonic() >= self._fresh_until_s:
                self._renew()
            return self._token, time.time() + self._valid_until_s - time.monotonic()

    def refused(self) -> None:
        """Take note that a broker doesn't take the token: another one is asked for, though it would hold longer."""
        with self._lock:
            self._fresh_until_s = min(self._fresh_until_s, self._asked_s + REFUSED_AGAIN_S)

    def _renew(self) -> None:
        """Ask for a token. While the old one holds, it is enough to go on with."""
        now_s = time.monotonic()
        if now_s < self._failed_s + FAILED_AGAIN_S:
            error = Unreachable(self.failure)
        else:
            try:
                self._token, life_s = self._ask()
            except Unreachable as failed:
                error, self.failure, self._failed_s = failed, str(failed), time.monotonic()
            else:
                self._asked_s, self.failure = now_s, ""
                self._fresh_until_s, self._valid_until_s = now_s + LIFE_SHARE * life_s, now_s + life_s
                return
        if time.monotonic() >= self._valid_until_s:
            raise error
