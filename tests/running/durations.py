"""How long each test takes, kept in `tests/durations.json`. A pytest plugin, loaded by `conftest.py`.

`pytest --record PART` replaces that part's entry: when, on which commit and machine it ran, how busy the machine was,
how long the whole run and each test took, what failed and what was skipped. `make test-full` records all parts, and
writes the table of CONTRIBUTING.md from the file. The file decides in which order tests run (`schedule`), and
`tests/test_tiers.py` holds the tiers to their limits with it.

Tests that take no time to speak of are kept as a number and a sum for each file.
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pytest

from tests.running.tiers import ROOT

FILE = ROOT / "tests" / "durations.json"
SINGLE_S_MIN = 0.5
"""What takes less isn't listed by itself."""
UNKNOWN_S = {"tests": 0.03, "integration_tests": 5.0}
"""What a test that was never recorded counts for, by where it stands."""
PACKAGES = ("aiokafka", "confluent-kafka", "hypothesis", "kafka-python", "kio", "pyspark", "pytest")
WRITTEN = (
    "tests/durations.json",
    "tests/long_results.json",
    "tests/version_results.json",
    "docs/operate/kafka-versions.md",
    "tests/compat_results.json",
    "docs/compat.md",
    "CONTRIBUTING.md",
)
PREPARED = ("environment", "lint")
"""What comes before the tests: the Makefile leaves the seconds that each took in a file of the environment."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """See pytest."""
    group = parser.getgroup("durations")
    group.addoption("--record", metavar="PART", help="keep how long the tests took as this part")
    group.addoption("--record-in", type=Path, default=FILE, help="the file that keeps it")


def pytest_configure(config: pytest.Config) -> None:
    """A worker of pytest-xdist leaves it to whoever started it."""
    if config.option.record and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(config.option.record, config.option.record_in, config))


class Recorder:
    """Takes the times of one run and writes them down at its end."""

    def __init__(self, part: str, path: Path, config: pytest.Config) -> None:
        self._part, self._path, self._config = part, path, config
        self._busy = _busy_cores()
        self._began = time.monotonic()
        self._outcomes: Counter[str] = Counter()
        self._seconds: dict[str, float] = defaultdict(float)
        self._failed: set[str] = set()
        self._skipped: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test has an outcome once its call has; a set-up that fails or skips is its outcome."""
        self._seconds[report.nodeid] += report.duration
        if report.failed:
            self._failed.add(report.nodeid)
        if report.skipped and isinstance(report.longrepr, tuple):
            self._skipped[report.longrepr[2].removeprefix("Skipped: ")] += 1
        if report.when == "call" or (report.when == "setup" and not report.passed):
            self._outcomes[report.outcome] += 1

    def pytest_sessionfinish(self) -> None:
        """Replace this part's entry, and leave the others as they are."""
        entry = {
            "date": datetime.now(UTC).strftime("%Y-%m-%d"),
            "commit": _commit(),
            "machine": _machine(),
            "versions": _versions(),
            "workers": self._config.getoption("numprocesses", None) or 1,
            "cores_busy_before": self._busy,
            "seconds": round(time.monotonic() - self._began),
            **_prepared(),
            **{outcome: self._outcomes[outcome] for outcome in ("passed", "failed", "skipped")},
            "failures": sorted(self._failed),
            "skips": dict(sorted(self._skipped.items())),
            "files": _by_file(self._seconds),
        }
        with changing(self._path) as parts:
            parts[self._part] = entry


def load(path: Path = FILE) -> dict[str, Any]:
    """All parts of the file by their names."""
    return dict(json.loads(path.read_text())) if path.exists() else {}


@contextmanager
def changing(path: Path) -> Iterator[dict[str, Any]]:
    """All parts of the file, written again at the end. Others, who record their parts beside this one, wait."""
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        parts = load(path)
        yield parts
        path.write_text(json.dumps(parts, indent=1, ensure_ascii=False) + "\n")
    finally:
        os.close(directory)


def recorded(parts: Mapping[str, Any], first: str = "") -> tuple[dict[str, float], dict[str, float]]:
    """Seconds of each test that is listed by itself; and what one of the others takes, by file. Where several parts ran
    a test, the part `first` counts: the same test takes longer in a run with more workers."""
    single: dict[str, float] = {}
    others: dict[str, float] = {}
    preferred = parts[first]["files"] if first in parts else {}
    for part in parts.values():
        for path, own in part["files"].items():
            known = preferred.get(path, own)
            single |= {f"{path}::{name}": seconds for name, seconds in known["tests"].items()}
            if known["others"]:
                others[path] = known["others_seconds"] / known["others"]
    return single, others


def unlisted(parts: Mapping[str, Any]) -> dict[str, int]:
    """How many tests of each file are not listed by themselves: the most of any part that ran it."""
    counts: Counter[str] = Counter()
    for part in parts.values():
        for path, known in part["files"].items():
            counts[path] = max(counts[path], known["others"])
    return dict(counts)


def expected(tests: Iterable[str], path: Path = FILE, first: str = "") -> dict[str, float]:
    """What each test takes by what was recorded, in the part `first` if that ran it; `UNKNOWN_S` where nothing was."""
    single, others = recorded(load(path), first)

    def seconds(test: str) -> float:
        path = test.partition("::")[0]
        return single.get(test, others.get(path, UNKNOWN_S.get(path.partition("/")[0], 1.0)))

    return {test: seconds(test) for test in tests}


def _by_file(seconds: Mapping[str, float]) -> dict[str, Any]:
    files: dict[str, Any] = {}
    for test, took in sorted(seconds.items()):
        path, _, name = test.partition("::")
        known = files.setdefault(path, {"tests": {}, "others": 0, "others_seconds": 0.0})
        if took >= SINGLE_S_MIN:
            known["tests"][name] = round(took, 1)
        else:
            known["others"] += 1
            known["others_seconds"] = round(known["others_seconds"] + took, 3)
    return files


def _prepared() -> dict[str, int]:
    """Seconds that what came before the tests took, where it was done for this run."""
    found = {}
    for name in PREPARED:
        path = Path(sys.prefix) / f".seconds-{name}"
        if path.exists():
            found[f"{name}_seconds"] = int(path.read_text())
    return found


def _busy_cores(for_s: float = 1.0) -> float:
    """How many cores were busy for a moment, before the tests begin: with others' work."""
    idle = _idle_s()
    time.sleep(for_s)
    return round(max(0.0, len(os.sched_getaffinity(0)) - (_idle_s() - idle) / for_s), 1)


def _idle_s() -> float:
    """Seconds that all cores together were idle since the machine started."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    return (int(fields[4]) + int(fields[5])) / os.sysconf("SC_CLK_TCK")


def _commit() -> str:
    """The commit, with `-dirty` behind it if files differ from it; what a recorded run writes doesn't count."""
    command = ["git", "describe", "--always", "--abbrev=12"]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if said.returncode != 0:
        return "unknown"
    command = ["git", "status", "--porcelain", "--untracked-files=no", "--", ".", *(f":!{path}" for path in WRITTEN)]
    changed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return said.stdout.strip() + ("-dirty" if changed else "")


def _machine() -> dict[str, str | int]:
    """Processor, how many cores of it, memory and system."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    memory_kib = int(Path("/proc/meminfo").read_text().split()[1])
    return {
        "cpu": models[0] if models else platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory_kib / 2**20),
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
    }


def _versions() -> dict[str, str]:
    """Of what the tests stand on."""
    found = {"python": platform.python_version()}
    if "EOS_KAFKA_IMAGE" in os.environ:
        found["kafka"] = os.environ["EOS_KAFKA_IMAGE"]
    chosen = ("EOS_SOURCE_KAFKA", "EOS_TARGET_KAFKA", "EOS_TARGET_TRANSACTIONS")
    found |= {name.removeprefix("EOS_").lower(): os.environ[name] for name in chosen if name in os.environ}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
