"""A slow test that was never recorded must say its tier, or the run fails. A pytest plugin, loaded by `conftest.py`.

How slow it is on a quiet machine follows from the tests of the same run whose times are known (`durations`): where they
take three times as long as usual, so does it. This works with `pytest --progress`, which all of the Makefile's commands
have. Of a file's tests that took no time to speak of only the number is recorded. While a run has no more tests of that
file besides those that are listed, none of them is new, whatever one of them takes for once on a busy machine.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping
from statistics import median
from typing import Any

import pytest

from tests.running import durations
from tests.running.tiers import USUAL_TIER

SECONDS_MAX = {"unit": 5.0, "default": 25.0, "extended": 25.0, "full": 60.0, "long": math.inf}
"""What a test may take that doesn't say its tier."""
KNOWN_S_MIN, KNOWN_MIN = 1.0, 5
"""A run is compared with what is known by so many tests or more, which take so long or longer."""


def pytest_configure(config: pytest.Config) -> None:
    """A worker of pytest-xdist leaves it to whoever started it."""
    if config.option.progress and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Newcomers())


class Newcomers:
    """Finds them at the end of a run."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = defaultdict(float)
        self._usual: dict[str, str] = {}
        self._found: dict[str, float] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Times, and the tier of a test that doesn't say it."""
        self._seconds[report.nodeid] += report.duration
        properties = dict(report.user_properties)
        if USUAL_TIER in properties:
            self._usual[report.nodeid] = str(properties[USUAL_TIER])

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """The run fails if there is one."""
        parts = durations.load()
        single, _ = durations.recorded(parts)
        self._found = slow(self._seconds, single, self._usual, durations.unlisted(parts))
        if self._found and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Name them."""
        for test, seconds in self._found.items():
            said = f"{test} takes {seconds:.0f} s and says no tier: tests/running/tiers.py"
            terminalreporter.write_line(f"FAILED {said}", red=True)


def slow(
    seconds: Mapping[str, float], known: Mapping[str, float], usual: Mapping[str, str], unlisted: Mapping[str, int]
) -> dict[str, float]:
    """Tests that aren't known, are in their `usual` tier and too slow for it, with their seconds on a quiet machine.

    `unlisted`: how many tests each file had, besides those that are known, when it was recorded.
    """
    times = slowness(seconds, known)
    others = Counter(_file(test) for test in seconds if test not in known)
    grown = {file for file, count in others.items() if count > unlisted.get(file, 0)}
    new = {test: seconds[test] / times for test in usual if test not in known and _file(test) in grown}
    return {test: took for test, took in new.items() if took > SECONDS_MAX[usual[test]]}


def slowness(seconds: Mapping[str, float], known: Mapping[str, float]) -> float:
    """How many times as long as usual tests take in this run; 1 where too few are known."""
    compared = [test for test in seconds if known.get(test, 0) >= KNOWN_S_MIN]
    return max(1.0, median(seconds[test] / known[test] for test in compared)) if len(compared) >= KNOWN_MIN else 1.0


def _file(test: str) -> str:
    return test.partition("::")[0]
