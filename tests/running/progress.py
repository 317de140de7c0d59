"""What a person sees of a long run. A pytest plugin, loaded by `conftest.py`, for `pytest --progress`.

Instead of a dot for each test a line now and then: how many of how many tests of each part are done, and which tests
take long just now. A test that fails is named at once. The end says what was skipped, and what to install to run it.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.running.schedule import kind_of

EVERY_S = 10.0
LONG_S = 20.0
"""A test that runs for longer is named."""
PARTS = {
    "unit": "unit",
    "embedded": "embedded broker",
    "kafka": "real Kafka",
    "frames": "Spark",
    "spark": "Spark with Kafka",
}
"""What a person calls the kinds of the schedule."""
REMEDIES = (
    (r"Docker has no image (\S+)", "get the image: docker pull {0}"),
    (r"Docker", "install Docker, and get the image: docker pull apache/kafka:4.3.0"),
    (r"[Jj]ava", "install Java 17 or later"),
    (r"kcat", "install kcat"),
    (r"\bgo\b|Go |franz-go", "install the Go that integration_tests/clients/franz_go/go.mod names"),
    (r"namespace|unshare", "run as root, or allow user namespaces"),
)
"""What a reason to skip says, and what to do about it."""


def _crash(report: pytest.TestReport) -> str:
    """Where and why in a line: a run that is broken off shows no more of it."""
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is None:
        return ""
    path, why = Path(crash.path), crash.message.splitlines()
    return f": {path.name}:{crash.lineno}: {why[0][:500] if why else ''}"


def pytest_addoption(parser: pytest.Parser) -> None:
    """See pytest."""
    parser.getgroup("progress").addoption("--progress", action="store_true", help="a line now and then, and no dots")


def pytest_configure(config: pytest.Config) -> None:
    """A worker of pytest-xdist shows nothing."""
    if config.option.progress and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Progress(config))


class Progress:
    """Counts tests and says how far they are."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._began = self._told = time.monotonic()
        self._total: Counter[str] = Counter()
        self._done: Counter[str] = Counter()
        self._running: dict[str, float] = {}
        self._failed: set[str] = set()
        self._skipped: Counter[str] = Counter()

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """No dots."""
        if report.passed and report.when == "call":
            return "passed", "", ""
        if report.failed:
            return "failed" if report.when == "call" else "error", "", ""
        return ("skipped", "", "") if report.skipped else None

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Without workers the tests of this process are all there are."""
        self._total = Counter(part_of(item.nodeid) for item in session.items)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """A test begins, here or in a worker."""
        self._running[nodeid] = time.monotonic()
        if not self._total:
            self._total = Counter(map(part_of, self._scheduled()))
        if time.monotonic() - self._told >= EVERY_S:
            self._tell()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """A test is over."""
        self._running.pop(nodeid, None)
        self._done[part_of(nodeid)] += 1

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Say at once what failed."""
        if report.failed:
            self._failed.add(report.nodeid)
            self._write(f"FAILED {report.nodeid} ({report.when}){_crash(report)}")
        if report.skipped and isinstance(report.longrepr, tuple):
            self._skipped[report.longrepr[2].removeprefix("Skipped: ")] += 1

    def pytest_terminal_summary(self) -> None:
        """What was skipped and how to run it."""
        self._tell()
        for line in skipped_lines(self._skipped.items()):
            self._write(line)

    def _scheduled(self) -> Iterable[str]:
        schedule = getattr(self._config.pluginmanager.getplugin("dsession"), "sched", None)
        return getattr(schedule, "collection", None) or ()

    def _tell(self) -> None:
        self._told = now = time.monotonic()
        counts = " · ".join(f"{part} {self._done[part]}/{total}" for part, total in sorted(self._total.items()))
        long = [f"{now - began:.0f} s: {test}" for test, began in self._running.items() if now - began >= LONG_S]
        minutes, seconds = divmod(round(now - self._began), 60)
        self._write(
            "\n".join(
                [f"{minutes:3}:{seconds:02}  {counts} · {len(self._failed)} failed", *map("        ".__add__, long)]
            )
        )

    def _write(self, text: str) -> None:
        reporter: Any = self._config.pluginmanager.getplugin("terminalreporter")
        reporter.ensure_newline()
        reporter.write_line(text)
        reporter.flush()


def part_of(test: str) -> str:
    """What a person calls the kind of a test."""
    return PARTS[kind_of(test)]


def skipped_lines(reasons: Iterable[tuple[str, int]]) -> list[str]:
    """One line for each reason, the most frequent first."""
    lines = []
    for reason, count in sorted(reasons, key=lambda each: -each[1]):
        short = reason.splitlines()[0] if reason else "no reason"
        for pattern, remedy in REMEDIES:
            if (found := re.search(pattern, reason)) is not None:
                short = f"{short}. To run them, {remedy.format(*found.groups())}"
                break
        lines.append(f"SKIPPED {count} tests: {short}")
    return lines
