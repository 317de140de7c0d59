"""How much the reader of a source asks for at once: less after answers that didn't arrive. Pure.

A fetch whose answer takes longer than the connection lives, or than the client waits, is thrown away, and the same one
is asked for again, for ever: on a slow line, or one that breaks now and then, nothing is copied. So less is asked for
and it is waited for longer, until answers arrive; after a while without such a failure more is tried again.

Made by `flow.wiring` for all lanes of a flow, which share the line to the source.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

STEPS_MAX, STEP = 3, 4
"""Of 1 MiB of a partition 256, 64, 16 KiB are asked for in steps. Brokers send one batch of each answer whole."""
PARTITIONS_AT_ONCE = 4
"""That answers have room for, where less than everything is asked for."""
GROW_AFTER_S, GROW_AFTER_S_MAX = 300.0, 6 * 3600.0
"""Without a failure, before more is asked for; doubled with each failure."""


@dataclass(frozen=True, slots=True)
class FetchStep:
    """What one reader asks for. `step`: how often it was made less; 0 is everything."""

    step: int = 0

    @property
    def divisor(self) -> int:
        """By how much less than everything is asked for of a partition."""
        return int(STEP**self.step)

    @property
    def patience(self) -> int:
        """By how much longer than usual an answer is waited for: a batch can't be divided."""
        return int(2**self.step)


WHOLE_FETCH = FetchStep()


class FetchSize:
    """Of one flow. Its lanes may find the same failure at the same time: that is one step."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._step, self._changed_s = FetchStep(), now_s()
        self._grow_after_s = GROW_AFTER_S

    @property
    def step(self) -> FetchStep:
        """What a reader that is made now asks for."""
        return self._step

    def failed(self, step: FetchStep) -> bool:
        """Note that answers to a reader with this step don't arrive; return whether it is made anew, to ask for less.

        Where that had gone well before, and more was tried too soon, the next try is later.
        """
        if step.step < self._step.step:
            return True  # another lane has found that before
        if step.step == STEPS_MAX:
            self._changed_s = self._now_s()
            return False
        self._step, self._changed_s = FetchStep(step.step + 1), self._now_s()
        self._grow_after_s = min(2 * self._grow_after_s, GROW_AFTER_S_MAX)
        return True

    def grows(self, step: FetchStep) -> bool:
        """Return whether a reader with this step is made anew, to ask for more."""
        if step.step == self._step.step > 0 and self._now_s() >= self._changed_s + self._grow_after_s:
            self._step, self._changed_s = FetchStep(step.step - 1), self._now_s()
        return step.step > self._step.step
