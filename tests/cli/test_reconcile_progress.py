"""What `reconcile` says while it runs."""

from __future__ import annotations

import io
from typing import Any, NamedTuple

import pytest
from rich.console import Console

from cli.commands import reconcile_progress
from cli.commands.reconcile_progress import Progress, Tasks, amount


@pytest.mark.parametrize(
    ("tasks", "seconds", "expected"),
    [
        (Tasks(0, 40), 5.0, "0 of 40 tasks"),
        (Tasks(10, 40), 5.0, "10 of 40 tasks, about 15 s left"),
        (Tasks(1, 40), 5.0, "1 of 40 tasks, about 3 min 15 s left"),
        (Tasks(40, 40), 5.0, "40 of 40 tasks"),
    ],
)
def test_the_rest_is_estimated_by_the_rate_so_far(tasks: Tasks, seconds: float, expected: str) -> None:
    assert amount(tasks, seconds) == expected


class Stage(NamedTuple):
    """As Spark's status tracker tells of a stage."""

    numTasks: int
    numCompletedTasks: int


class Spark:
    """Stands in for a session: its tracker tells of one stage, and of one that has just gone."""

    def __init__(self) -> None:
        self.sparkContext = self  # Spark's name
        self.done = 0

    def statusTracker(self) -> Any:
        """Itself."""
        return self

    def getActiveStageIds(self) -> list[int]:
        """Two of them."""
        return [1, 2]

    def getStageInfo(self, number: int) -> Stage | None:
        """One more task has ended at each look."""
        if number == 2:
            return None
        self.done += 1
        return Stage(100, self.done)


def test_without_a_terminal_each_step_and_now_and_then_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconcile_progress, "LOOK_S", 0.01)
    monkeypatch.setattr(reconcile_progress, "LINE_S", 0.05)
    out, spark = io.StringIO(), Spark()
    with Progress(Console(file=out, width=40)) as progress:
        progress.update("reading both sides of a flow with a long name")
        with progress.watching(spark):  # type: ignore[arg-type]
            while spark.done < 20:
                pass
        progress.update("writing report")
    lines = out.getvalue().splitlines()
    assert lines[0] == "reading both sides of a flow with a long name"
    assert lines[-1] == "writing report"
    assert len(lines) < 20, "not at every look"
    assert lines[1].startswith("reading both sides of a flow with a long name: ")
    assert " of 100 tasks, about " in lines[1]
