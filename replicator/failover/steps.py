"""The steps of a failover and of its undoing, in their order, and who is told of them. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Protocol

from replicator.failpoints import Failpoint, nothing


class FailoverStep(Enum):
    """What is done, in words."""

    LOOK = "see how the flow stands"
    FREEZE = "fence all workers: from here on nothing is copied"
    ON_FREEZE = "run the hook on_freeze"
    KEEP = "commit the positions again, under the fence"
    VERDICT = "read where the target stands, and keep the verdict"
    ON_VERDICT = "run the hook on_verdict"
    ON_UNDO = "run the hook on_undo"
    OPEN = "open the flow again"

    @property
    def failpoint(self) -> str:
        """The name under which a test can kill or stop the process before the step."""
        return f"failover_{self.name.lower()}"


RUN = (
    FailoverStep.LOOK,
    FailoverStep.FREEZE,
    FailoverStep.ON_FREEZE,
    FailoverStep.KEEP,
    FailoverStep.VERDICT,
    FailoverStep.ON_VERDICT,
)
UNDO = (FailoverStep.LOOK, FailoverStep.ON_UNDO, FailoverStep.OPEN)
DONE = "failover_done"


class StepObserver(Protocol):
    """Is told of each step. What it raises ends the failover."""

    def begun(self, step: FailoverStep) -> None:
        """Note that a step begins."""

    def note(self, step: FailoverStep, text: str) -> None:
        """Say something of a step that is under way."""

    def ended(self, step: FailoverStep, *, done: bool) -> None:
        """Note that a step is done, or has failed."""

    def skipped(self, step: FailoverStep, why: str) -> None:
        """Note that a step isn't needed."""


class UnwatchedSteps:
    """Implements `StepObserver` for whoever wants to know nothing."""

    def begun(self, step: FailoverStep) -> None:
        """See `StepObserver`."""

    def note(self, step: FailoverStep, text: str) -> None:
        """See `StepObserver`."""

    def ended(self, step: FailoverStep, *, done: bool) -> None:
        """See `StepObserver`."""

    def skipped(self, step: FailoverStep, why: str) -> None:
        """See `StepObserver`."""


class Steps:
    """Takes the steps one after the other."""

    def __init__(self, observer: StepObserver | None = None, failpoint: Failpoint = nothing) -> None:
        self._observer: StepObserver = observer or UnwatchedSteps()
        self.failpoint = failpoint

    @contextmanager
    def step(self, step: FailoverStep) -> Iterator[None]:
        """Do one step, which is done where the block ends without an exception."""
        self._observer.begun(step)
        done = False
        try:
            self.failpoint(step.failpoint)
            yield
            done = True
        finally:
            self._observer.ended(step, done=done)

    def note(self, step: FailoverStep, text: str) -> None:
        """Say something of a step."""
        self._observer.note(step, text)

    def skip(self, step: FailoverStep, why: str) -> None:
        """Leave a step out."""
        self._observer.skipped(step, why)
