"""A token that is used for a part of its life, for all logins of the process. Used by `token_command`, `wire.oauth`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

LIFE_SHARE = 0.8  # as librdkafka's
FAILED_AGAIN_S = 1.0
"""Whoever asks so shortly after there was no token is told the same: every connection asks."""
REFUSED_AGAIN_S = 5.0
"""A token that a broker has refused is used again for so long after it was made."""
LONG_ENOUGH_S = 5.0
"""A login is begun with a token that holds for so long; with another one, where that can be had."""
Ask = Callable[[], tuple[str, float]]
"""Returns a token and for how many seconds it holds. Raises Unreachable: there is none now."""


class KeptToken:
    """The newest token. May be used by any thread; one asks at a time, in a thread of its own, as it may hang until
    its deadline. Whoever wants a token waits for that only where there is none that holds long enough."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._changed = threading.Condition()
        self._asking = self._refused = False
        self._token = ""
        self._asked_s = self._fresh_until_s = self._valid_until_s = 0.0
        self._error: Exception | None = None
        self._failed_s = float("-inf")

    @property
    def failure(self) -> str:
        """Why there was no token when it was asked for last; empty when there was one."""
        error = self._error
        return str(error) if error is not None else ""

    def token(self) -> str:
        """Return a token that is valid for a while. Raises Unreachable."""
        return self.with_end()[0]

    def with_end(self) -> tuple[str, float]:
        """Return a token and until when it holds, in seconds since 1970. Raises Unreachable."""
        with self._changed:
            if time.monotonic() >= self._fresh_until_s:
                self._renew()
                holds = time.monotonic() < self._valid_until_s - LONG_ENOUGH_S
                if not holds or self._refused:
                    self._changed.wait_for(lambda: not self._asking)
                    if self._error is not None and time.monotonic() >= self._valid_until_s:
                        raise self._error.with_traceback(None)  # once more: it would grow
            return self._token, time.time() + self._valid_until_s - time.monotonic()

    def refused(self) -> None:
        """Take note that a broker doesn't take the token: another one is asked for, though it would hold longer."""
        with self._changed:
            self._refused = True
            self._fresh_until_s = min(self._fresh_until_s, self._asked_s + REFUSED_AGAIN_S)

    def _renew(self) -> None:
        """Begin to ask for a token, unless somebody does, or has just been told that there is none."""
        if not self._asking and time.monotonic() >= self._failed_s + FAILED_AGAIN_S:
            threading.Thread(target=self._asked, name="token", daemon=True).start()
            self._asking = True

    def _asked(self) -> None:
        """Ask for a token, and hand over what comes of it. While the old one holds, it is enough to go on with."""
        now_s = time.monotonic()
        found, error = None, None
        try:
            found = self._ask()
        except Exception as failed:  # noqa: BLE001 - raised to whoever waits for the token
            error = failed
        with self._changed:
            self._asking, self._error = False, error
            if found is not None:
                (self._token, life_s), self._asked_s, self._refused = found, now_s, False
                self._fresh_until_s, self._valid_until_s = now_s + LIFE_SHARE * life_s, now_s + life_s
            else:
                self._failed_s = time.monotonic()
            self._changed.notify_all()
