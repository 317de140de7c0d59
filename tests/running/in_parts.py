"""Runs that take hours, a part at a time. A pytest plugin, loaded by `conftest.py`; `make test-seeds` uses it.

`pytest --record PART --in-parts MINUTES` leaves out the tests that this part's entry names as passed, begins no test
once the minutes are over, and adds what came out to the entry, with how many tests are left. It begins anew when a file
of the repository that the tests had imported has changed, or the budget.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.budget import LONG
from tests.running import durations
from tests.running.tiers import ROOT


def pytest_addoption(parser: pytest.Parser) -> None:
    """See pytest."""
    parser.getgroup("durations").addoption(
        "--in-parts", type=float, metavar="MINUTES", help="with --record: go on where the last run ended, for so long"
    )


def pytest_configure(config: pytest.Config) -> None:
    """See pytest."""
    if config.option.in_parts is None:
        return
    if not config.option.record:
        raise pytest.UsageError("--in-parts goes on with what --record PART has written")
    if config.getoption("numprocesses", None):
        raise pytest.UsageError("--in-parts runs in one process, without -n")
    config.pluginmanager.register(InParts(config.option.record, config.option.record_in, 60 * config.option.in_parts))


class InParts:
    """Chooses the tests of one run, and adds up what came out."""

    def __init__(self, part: str, path: Path, seconds: float) -> None:
        self._part, self._path = part, path
        self._end_s = time.monotonic() + seconds
        before = durations.load(path).get(part, {})
        self._before = before if before and same_code(before.get("code", {})) and before.get("long") == LONG else {}
        self._passed = set[str](self._before.get("done", ()))
        self._failed = set[str](self._before.get("failures", ()))
        self._all: set[str] = set()
        self._skipped: set[str] = set()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leave out what has passed before."""
        self._all = {item.nodeid for item in items}
        done = [item for item in items if item.nodeid in self._passed]
        config.hook.pytest_deselected(items=done)
        items[:] = [item for item in items if item.nodeid not in self._passed]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test has passed if all of it has; one that failed before may pass now."""
        if report.when == "setup":
            self._failed.discard(report.nodeid)
        if report.failed:
            self._failed.add(report.nodeid)
            self._passed.discard(report.nodeid)
        elif report.skipped:
            self._skipped.add(report.nodeid)
        elif report.when == "call" and report.passed:
            self._passed.add(report.nodeid)

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        """Begin no other test when the time is over."""
        if time.monotonic() > self._end_s:
            item.session.shouldstop = "the time is over; run it again to go on"

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """After the recorder has written this run's entry: add what was known before."""
        parts = durations.load(self._path)
        entry = parts[self._part]
        left = len(self._all - self._passed - self._skipped)
        entry |= {
            "seconds": entry["seconds"] + self._before.get("seconds", 0),
            "passed": len(self._passed),
            "failed": len(self._failed),
            "left": left,
            "failures": sorted(self._failed),
            "long": LONG,
            "done": sorted(self._passed),
            "code": self._before.get("code", {}) | code(),
            "files": _added(self._before.get("files", {}), entry["files"]),
        }
        self._path.write_text(json.dumps(parts, indent=1, ensure_ascii=False) + "\n")
        ours = session.shouldstop and time.monotonic() > self._end_s
        if not session.testsfailed and (ours or session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = pytest.ExitCode.OK


def code() -> dict[str, str]:
    """Digests of the files of the repository that were imported, but for those that only run the tests."""
    found = {}
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        path = Path(file) if file else None
        if path is None or not path.is_relative_to(ROOT) or path.is_relative_to(sys.prefix) or not path.is_file():
            continue
        name = path.relative_to(ROOT)
        if not name.is_relative_to("tests/running"):
            found[str(name)] = _digest(path)
    return dict(sorted(found.items()))


def same_code(known: Mapping[str, str]) -> bool:
    """Whether these files are as they were."""
    return all((ROOT / name).is_file() and _digest(ROOT / name) == digest for name, digest in known.items())


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]


def _added(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """How long tests took, in both."""
    files: Iterable[str] = sorted(before.keys() | now.keys())
    none: dict[str, Any] = {"tests": {}, "others": 0, "others_seconds": 0.0}
    return {
        name: {
            "tests": one["tests"] | other["tests"],
            "others": one["others"] + other["others"],
            "others_seconds": round(one["others_seconds"] + other["others_seconds"], 3),
        }
        for name in files
        for one, other in [(before.get(name, none), now.get(name, none))]
    }
