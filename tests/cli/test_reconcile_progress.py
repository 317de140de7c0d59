"""What `reconcile` says while it runs."""

from __future__ import annotations

import io
import re
from typing import Any, NamedTuple

import pytest
from rich.console import Console

from cli.commands import reconcile_progress
from cli.commands.reconcile_progress import Progress, Tasks, amount


@pytest.mark.parametrize(
    ("tasks", "seconds", "expected"),
    [
        (Tasks(0, 40), 5.0, "0 of 40 tasks"),
        (Tasks(10, 40), 5.0, "10 of 40 tasks, 2.0 tasks/s, about 15 s left"),
        (Tasks(1, 40), 5.0, "1 of 40 tasks, 12.0 tasks/min, about 3 min 15 s left"),
        (Tasks(10, 40, 4_000_000), 5.0, "10 of 40 tasks, about 200,000 offsets/s, about 15 s left"),
        (Tasks(40, 40), 5.0, "40 of 40 tasks, 8.0 tasks/s"),
        (Tasks(39, 40, before=39), 0.00001, "39 of 40 tasks"),
        (Tasks(39, 40, before=29), 5.0, "39 of 40 tasks, 2.0 tasks/s, about 1 s left"),
    ],
)
def test_rate_and_rest_follow_from_the_tasks_that_have_ended(tasks: Tasks, seconds: float, expected: str) -> None:
    assert amount(tasks, seconds) == expected


def test_another_stage_has_a_rate_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now_s[0])
    monkeypatch.setattr(reconcile_progress, "LINE_S", 0.0)
    out = io.StringIO()
    progress = Progress(Console(file=out), "f")
    progress.update("reading", 1_000)
    now_s[0] = 100.0
    progress.tell((1,), 5, 10)
    progress.tell((2,), 0, 4)
    now_s[0] = 102.0
    progress.tell((2,), 2, 4)
    progress.tell((2, 3), 30, 40)  # of another stage most tasks had ended before it was seen
    now_s[0] = 104.0
    progress.tell((2, 3), 32, 40)
    lines = [line.split(" ", 1)[1] for line in out.getvalue().splitlines()]
    assert lines == [
        "f: reading",
        "f: reading: 5 of 10 tasks, about 5 offsets/s, about 1 min 40 s left",
        "f: reading: 0 of 4 tasks",
        "f: reading: 2 of 4 tasks, 1.0 tasks/s, about 2 s left",
        "f: reading: 30 of 40 tasks",
        "f: reading: 32 of 40 tasks, 1.0 tasks/s, about 8 s left",
    ]


class Stage(NamedTuple):
    """As Spark's status tracker tells of a stage."""

    stageId: int
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
        return Stage(number, 100, self.done)


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
    lines = [line.split(" ", 1)[1] for line in out.getvalue().splitlines()]
    assert lines[0] == "reading both sides of a flow with a long name"
    assert lines[-1] == "writing report"
    assert len(lines) < 20, "not at every look"
    assert lines[1].startswith("reading both sides of a flow with a long name: ")
    assert re.search(r": \d+ of 100 tasks, [\d.]+ tasks/(s|min), about .+ left$", lines[1])
