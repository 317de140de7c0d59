"""Runs that take hours, a part at a time. A pytest plugin, loaded by `conftest.py`; `make test-seeds` uses it.

`pytest --record PART --in-parts MINUTES` leaves out the tests that this part's entry names as passed, begins no test
once the minutes are over, and adds what came out to the entry, with how many tests are left. It begins anew when a file
of the repository that the tests had imported has changed, or the budget. With `--keep-older` what has passed with older
code counts on, unless the file of the test has changed: thousands of seeds take longer than the code stays as it is.
The entry says with which commit each has passed.
"""

from __future__ import annotations

import hashlib
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
    group = parser.getgroup("durations")
    group.addoption(
        "--in-parts", type=float, metavar="MINUTES", help="with --record: go on where the last run ended, for so long"
    )
    group.addoption("--keep-older", action="store_true", help="with --in-parts: count what has passed with older code")


def pytest_configure(config: pytest.Config) -> None:
    """See pytest."""
    if config.option.in_parts is None:
        return
    if not config.option.record:
        raise pytest.UsageError("--in-parts goes on with what --record PART has written")
    if config.getoption("numprocesses", None):
        raise pytest.UsageError("--in-parts runs in one process, without -n")
    option = config.option
    config.pluginmanager.register(
        InParts(option.record, option.record_in, 60 * option.in_parts, config.rootpath, keep_older=option.keep_older)
    )


class InParts:
    """Chooses the tests of one run, and adds up what came out."""

    def __init__(self, part: str, path: Path, seconds: float, root: Path, *, keep_older: bool = False) -> None:
        self._part, self._path, self._root = part, path, root
        self._end_s = time.monotonic() + seconds
        before = durations.load(path).get(part, {})
        same_budget = bool(before) and before.get("long") == LONG
        self._before = before if same_budget and same_code(before.get("code", {})) else {}
        self._older = _older(before, root, again=not self._before) if same_budget and keep_older else []
        self._passed = set[str](self._before.get("done", ())).union(*(each["done"] for each in self._older))
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
        self._passed &= self._all  # others are no longer asked for
        left = len(self._all - self._passed - self._skipped)
        older = [each | {"done": sorted(self._all.intersection(each["done"]))} for each in self._older]
        earlier = set[str]().union(*(each["done"] for each in older))
        with durations.changing(self._path) as parts:
            entry = parts[self._part]
            entry |= {
                "seconds": entry["seconds"] + self._before.get("seconds", 0),
                "passed": len(self._passed),
                "failed": len(self._failed),
                "left": left,
                "failures": sorted(self._failed),
                "long": LONG,
                "done": sorted(self._passed - earlier),
                "tests": _digests(self._root, self._passed - earlier),
                "older": [each for each in older if each["done"]],
                "code": self._before.get("code", {}) | code(),
                "files": _added(self._before.get("files", {}), entry["files"]),
            }
        ours = session.shouldstop and time.monotonic() > self._end_s
        if not session.testsfailed and (ours or session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = pytest.ExitCode.OK


def _older(before: Mapping[str, Any], root: Path, *, again: bool) -> list[dict[str, Any]]:
    """Return what has passed with older code, by commit; `again`: what `before` itself has is older, too.

    What a test does stands in its file: where that has changed, its seeds are others.
    """
    found: list[dict[str, Any]] = list(before.get("older", ()))
    if again:
        taken = ("date", "commit", "machine", "seconds", "done")
        found.append({each: before[each] for each in taken} | {"tests": before.get("tests", before["code"])})
    now = _digests(root, [name for each in found for name in each["done"]])

    def same(name: str, then: Mapping[str, str]) -> bool:
        file = _file(name)
        return file in now and then.get(file) == now[file]

    return [each | {"done": [name for name in each["done"] if same(name, each["tests"])]} for each in found]


def _file(name: str) -> str:
    return name.partition("::")[0]


def _digests(root: Path, names: Iterable[str]) -> dict[str, str]:
    """Return a digest of each file that these tests stand in."""
    files = sorted({_file(name) for name in names})
    return {file: _digest(root / file) for file in files if (root / file).is_file()}


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
