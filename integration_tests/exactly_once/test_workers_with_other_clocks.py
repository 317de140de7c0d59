"""Workers whose wall clocks are hours apart, and jump while they run: nothing that they agree on depends on them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from integration_tests.conftest import MakeCopying
from integration_tests.harness.crew import LANES, PARTITIONS, Crew

SESSION_MS = 6_000
DAY_MS = 86_400_000

pytestmark = pytest.mark.tier("full")

CLOCK = """\
import pathlib, time
real_ns, path = time.time_ns, pathlib.Path({path!r})
time.time_ns = lambda: real_ns() + int(path.read_text()) * 1_000_000
time.time = lambda: time.time_ns() / 1e9
"""


class Clock:
    """The wall clock of one worker, as it is told; monotonic clocks are left alone, as they are when a clock is set.

    Python reads `sitecustomize` before anything else.
    """

    def __init__(self, directory: Path, offset_ms: int) -> None:
        directory.mkdir()
        self._directory, self._path = directory, directory / "offset"
        (directory / "sitecustomize.py").write_text(CLOCK.format(path=str(self._path)))
        self.set(offset_ms)

    def set(self, offset_ms: int) -> None:
        """Go so far ahead from now on, or behind."""
        new = self._directory / "new"
        new.write_text(str(offset_ms))
        new.replace(self._path)

    @property
    def environment(self) -> dict[str, str]:
        """Variables of a process that has this clock."""
        before = os.environ.get("PYTHONPATH", "")
        return {"PYTHONPATH": os.pathsep.join(filter(None, (str(self._directory), before)))}


def test_clocks_that_jump_change_nothing(make_copying: MakeCopying, tmp_path: Path) -> None:
    limits = {"session_timeout_ms": SESSION_MS}
    crew = Crew(make_copying(partitions=PARTITIONS, lanes=LANES, limits=limits), 1, SESSION_MS / 1000)
    early, late = Clock(tmp_path / "early", -DAY_MS), Clock(tmp_path / "late", DAY_MS)
    with crew.copying.writing():
        first, second = (crew.join(environment=clock.environment) for clock in (early, late))
        crew.wait_shared()
        crew.shown()
        since = {it["pid"]: it["lanes"][0]["since_ms"] for it in crew.copying.asked("workers")[1]["workers"]}
        assert since[second.pid] - since[first.pid] > DAY_MS, "they have clocks of their own"
        marks = first.mark(), second.mark()
        early.set(2 * DAY_MS)
        late.set(-2 * DAY_MS)
        first.wait_event("committed", after=marks[0])
        second.wait_event("committed", after=marks[1])
        crew.join()
        crew.wait_shared()
        crew.kill(first)
        crew.wait_shared()
        crew.leave(second)
        crew.wait_shared()
    crew.finish()
