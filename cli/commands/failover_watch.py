"""What `failover` shows of its steps, on stderr: a live table on a terminal, else a line for each."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from cli.captured import stderr_lines
from replicator.failover.steps import FailoverStep

WAITING, RUNNING, DONE, FAILED, SKIPPED = "waiting", "running", "done", "failed", "not needed"
_LOOKS = {
    WAITING: ("·", "dim"),
    RUNNING: ("▸", "bold"),
    DONE: ("✓", "green"),
    FAILED: ("✗", "bold red"),
    SKIPPED: ("–", "dim"),  # noqa: RUF001
}
"""Sign and style by state."""


@dataclass(slots=True)
class ShownStep:
    """A step as it is shown. Times are monotonic."""

    state: str = WAITING
    why: str = ""
    began_s: float = 0.0
    ended_s: float | None = None

    def seconds(self) -> float | None:
        """Return how long it took, or takes until now."""
        if not self.began_s:
            return None
        return (time.monotonic() if self.ended_s is None else self.ended_s) - self.began_s


class StepWatch:
    """Implements `StepObserver`. A context manager."""

    def __init__(self, flow: str, steps: Sequence[FailoverStep], console: Console) -> None:
        """`steps`: those that are to come; what comes besides is added."""
        self._flow, self._console = flow, console
        self._steps = {step: ShownStep() for step in steps}
        self._ending = ExitStack()
        self._live: Live | None = None
        if console.is_terminal:
            self._live = Live(console=console, get_renderable=self.drawn, refresh_per_second=4)

    def __enter__(self) -> Self:
        if self._live is not None:
            self._ending.enter_context(stderr_lines(lambda line: self._print(line, style="dim")))
            self._ending.enter_context(self._live)
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.close()

    def begun(self, step: FailoverStep) -> None:
        """See `StepObserver`."""
        self._steps[step] = ShownStep(RUNNING, began_s=time.monotonic())
        self._line(step.value)

    def note(self, step: FailoverStep, text: str) -> None:
        """See `StepObserver`."""
        self._print(f"  {step.name.lower()}: {text}", style="dim")

    def ended(self, step: FailoverStep, *, done: bool) -> None:
        """See `StepObserver`."""
        shown = self._steps[step]
        shown.state, shown.ended_s = DONE if done else FAILED, time.monotonic()
        self._line(f"{shown.state} after {shown.seconds():.1f} s")

    def skipped(self, step: FailoverStep, why: str) -> None:
        """See `StepObserver`."""
        self._steps[step] = ShownStep(SKIPPED, why)
        if why:
            self._line(f"{step.value}: not done, {why}")

    def _line(self, text: str) -> None:
        if self._live is None:
            self._print(f"{time.strftime('%H:%M:%S')} {self._flow}: {text}")

    def _print(self, text: str, style: str = "") -> None:
        self._console.print(text, style=style, markup=False, soft_wrap=True)

    def drawn(self) -> Table:
        """Return all steps as a table."""
        table = Table(box=None, padding=(0, 1, 0, 0), show_header=False)
        table.add_column(width=1)
        table.add_column(overflow="fold")
        table.add_column(justify="right", no_wrap=True)
        for step, shown in self._steps.items():
            sign, style = _LOOKS[shown.state]
            seconds = shown.seconds()
            words = step.value + (f" ({shown.why})" if shown.why else "")
            table.add_row(
                Text(sign, style), Text(words, style), Text("" if seconds is None else f"{seconds:.1f} s", style)
            )
        return table
