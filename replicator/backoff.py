"""How long to wait before the next try: doubles up to a bound, with jitter. Pure; for whatever is tried again."""

from __future__ import annotations

import random
from collections.abc import Callable

Jitter = Callable[[], float]
"""A number in [0, 1): `random.random`, or a fixed one in tests."""


def longer(delay_s: float, max_s: float) -> float:
    """Return the next delay of a series, without jitter: twice as long, at most `max_s`."""
    return min(max_s, delay_s * 2)


class Backoff:
    """Delays of one series of failures. Each is between half and all of `first_s`, 2 x `first_s`, ... `max_s`."""

    def __init__(self, first_s: float, max_s: float, jitter: Jitter = random.random) -> None:
        """Raises ValueError unless 0 < `first_s` <= `max_s`, both in seconds."""
        if not 0 < first_s <= max_s:
            raise ValueError(f"a back-off from {first_s} s to {max_s} s")
        self._first_s, self._max_s, self._jitter = first_s, max_s, jitter
        self._whole_s = first_s
        self.failures = 0

    def next_s(self) -> float:
        """Return the seconds to wait after one more failure."""
        whole_s, self._whole_s = self._whole_s, longer(self._whole_s, self._max_s)
        self.failures += 1
        return whole_s * (0.5 + 0.5 * self._jitter())

    def reset(self) -> None:
        """Note that the last try succeeded: the next failure begins a new series."""
        self._whole_s, self.failures = self._first_s, 0
