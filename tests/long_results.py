"""A pytest plugin that keeps what the long tests have found: `pytest -p tests.long_results --long-part NAME …`.

The results stand in `tests/long_results.json`, which is committed: one entry for each part, with the day, the commit,
the machine and the versions of that run, so that a part can be run again by itself. A part that failed is kept too.
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
FILE = ROOT / "tests" / "long_results.json"
PACKAGES = ("aiokafka", "confluent-kafka", "hypothesis", "kafka-python", "kio", "pyspark", "pytest")
SLOWEST = 10


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of the plugin."""
    group = parser.getgroup("long results")
    group.addoption("--long-part", help="name of the entry that this run gets in the results")
    group.addoption("--long-results", type=Path, default=FILE, help="the file of the results")


def pytest_configure(config: pytest.Config) -> None:
    """Without a name nothing is kept; a worker of pytest-xdist leaves it to whoever started it."""
    if config.option.long_part and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Part(config.option.long_part, config.option.long_results))


class Part:
    """Counts what one run does and writes it down at its end."""

    def __init__(self, name: str, path: Path) -> None:
        self._name, self._path = name, path
        self._began = time.monotonic()
        self._outcomes: Counter[str] = Counter()
        self._seconds: dict[str, float] = defaultdict(float)
        self._failed: list[str] = []
        self._skipped: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test has an outcome once its call has; a set-up that fails or skips is its outcome."""
        self._seconds[report.nodeid] += report.duration
        if report.failed:
            self._failed.append(report.nodeid)
        if report.skipped and isinstance(report.longrepr, tuple):
            self._skipped[report.longrepr[2]] += 1
        if report.when == "call" or (report.when == "setup" and not report.passed):
            self._outcomes[report.outcome] += 1

    def pytest_sessionfinish(self) -> None:
        """Replace this part's entry, and leave the others as they are."""
        slowest = sorted(self._seconds.items(), key=lambda each: -each[1])
        entry = {
            "date": datetime.now(UTC).strftime("%Y-%m-%d"),
            "commit": _commit(),
            "machine": _machine(),
            "versions": _versions(),
            "seconds": round(time.monotonic() - self._began),
            **{outcome: self._outcomes[outcome] for outcome in ("passed", "failed", "skipped")},
            "failures": sorted(set(self._failed)),
            "skips": dict(sorted(self._skipped.items())),
            "slowest": {name: round(seconds, 1) for name, seconds in slowest[:SLOWEST]},
        }
        replace_entry(self._path, self._name, entry)


def replace_entry(path: Path, name: str, entry: Mapping[str, Any]) -> None:
    """Write one part's entry; several runs may do so at the same time."""
    with path.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        text = file.read()
        parts = json.loads(text) if text else {}
        parts[name] = entry
        file.truncate(0)
        file.write(json.dumps(parts, indent=2, sort_keys=False, ensure_ascii=False) + "\n")


def _commit() -> str:
    """The commit, with `-dirty` behind it if files differ from it; the results themselves don't count."""
    command = ["git", "describe", "--always", "--abbrev=12"]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if said.returncode != 0:
        return "unknown"
    command = ["git", "status", "--porcelain", "--untracked-files=no", "--", ".", f":!{FILE.relative_to(ROOT)}"]
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
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
