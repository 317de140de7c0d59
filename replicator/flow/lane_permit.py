"""Implements `lane.permit` for a worker that shares its flow with others: the lane's thread asks, the flow's answers.

What the lane tells goes into the flow's queue; `flow.group_worker` gives it to `workers.membership`, and answers by
`give` once that says FENCE.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LaneConnected:
    """A lane's clients are connected: it wants to initialise its transactional id."""

    lane: int


@dataclass(frozen=True, slots=True)
class LaneInitialised:
    """A lane has initialised its transactional id."""

    lane: int


class LanePermit:
    """Of one lane."""

    shared = True

    def __init__(
        self, lane: int, tell: Callable[[LaneConnected | LaneInitialised], None], still: Callable[[], bool]
    ) -> None:
        """
        Args:
            tell: puts what the lane says into the flow's queue.
            still: whether the lane may initialise its id now. Asked right before it does, in its own thread: between
                the proof and this moment the group may have taken it away.
        """
        self._lane, self._tell, self._still = lane, tell, still
        self._condition = threading.Condition()
        self._answered = self._given = False

    def give(self) -> None:
        """Let the lane initialise its id, once. From the flow's thread."""
        with self._condition:
            self._answered = self._given = True
            self._condition.notify()

    def wake(self) -> None:
        """See `FencePermit`."""
        with self._condition:
            self._answered = True
            self._condition.notify()

    def ask(self, pause: threading.Event) -> bool:
        """See `FencePermit`."""
        while True:
            with self._condition:
                self._answered = self._given = False
            if pause.is_set():  # it is set before `wake`, so either this sees it or the wait ends
                return False
            self._tell(LaneConnected(self._lane))
            with self._condition:
                self._condition.wait_for(lambda: self._answered)
                given = self._given
            if pause.is_set():
                return False
            if given and self._still():
                return True

    def initialised(self) -> None:
        """See `FencePermit`."""
        self._tell(LaneInitialised(self._lane))
