"""Steps of a flow's set-up, and of changes to its control topic, tried again while what they meet may pass."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

import structlog

from replicator.backoff import Backoff
from replicator.model.errors import (
    ChangeRefused,
    Fenced,
    ReplicatorError,
    Retriable,
    TakenOver,
    UnknownOutcome,
    Unreachable,
)

PAUSE_S, PAUSE_S_MAX = 0.05, 1.0
CONTROL_PAUSE_S = 0.1
OTHERS_S = 15.0
"""How long others may keep the control id: a change of generations takes a few seconds."""
T = TypeVar("T")


def cut_short(error: ReplicatorError) -> bool:
    """Say whether what an attempt at the control topic met may be gone with the next one, or its outcome isn't known:
    what was written before is found then."""
    return isinstance(error, (Fenced, TakenOver, UnknownOutcome, Retriable)) and not isinstance(error, ChangeRefused)


def beside_others(
    attempt: Callable[[], T],
    may_pass: Callable[[ReplicatorError], bool] = cut_short,
    say: Callable[[ReplicatorError], None] = lambda error: None,
    others_s: float = OTHERS_S,
) -> T:
    """Return what `attempt` makes of a flow's control topic or positions, which others write, too, and are fenced.

    It is tried again where `may_pass` says so of what it raised, for `others_s` seconds; then that is raised. `say` is
    told before each further attempt.
    """
    backoff, give_up_s = Backoff(CONTROL_PAUSE_S, PAUSE_S_MAX), time.monotonic() + others_s
    while True:
        try:
            return attempt()
        except ReplicatorError as error:
            if not may_pass(error) or time.monotonic() >= give_up_s:
                raise
            say(error)
            time.sleep(backoff.next_s())


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
