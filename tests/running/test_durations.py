"""What a run keeps of itself, and what is made of it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.running import durations, progress, table
from tests.running.tiers import ROOT

TESTS = """
import time
import pytest

def test_passes():
    time.sleep(0.6)

def test_fails():
    assert False

@pytest.fixture
def broken():
    raise RuntimeError("no")

def test_cannot_begin(broken):
    pass

@pytest.mark.skip(reason="there is no kcat on PATH")
def test_is_skipped():
    pass
"""


def run(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (directory / "test_four.py").write_text(TESTS)
    plugins = [f"-ptests.running.{name}" for name in ("durations", "progress")]
    command = [sys.executable, "-m", "pytest", "-q", *plugins, "-p", "no:cacheprovider", "--rootdir", str(directory)]
    return subprocess.run([*command, *arguments, str(directory)], cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.tier("default")
def test_a_part_is_replaced_and_the_others_stay(tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    results.write_text(json.dumps({"four": {"passed": 99}, "another": {"passed": 7}}))
    done = run(tmp_path, "--record", "four", "--record-in", str(results))
    assert done.returncode == 1, done.stdout + done.stderr
    parts = json.loads(results.read_text())
    assert parts["another"] == {"passed": 7}
    found = parts["four"]
    assert (found["passed"], found["failed"], found["skipped"]) == (1, 2, 1)
    assert found["failures"] == ["test_four.py::test_cannot_begin", "test_four.py::test_fails"]
    assert found["skips"] == {"there is no kcat on PATH": 1}
    assert found["versions"]["python"]
    assert int(found["machine"]["cores"]) >= 1
    (known,) = found["files"].values()
    assert list(known["tests"]) == ["test_passes"]
    assert known["others"] == 3


def test_a_test_takes_what_it_took_or_what_others_of_its_file_did(tmp_path: Path) -> None:
    files = {"a.py": {"tests": {"test_long": 7.5}, "others": 4, "others_seconds": 1.0}}
    (tmp_path / "durations.json").write_text(json.dumps({"part": {"files": files}}))
    asked = ["a.py::test_long", "a.py::test_short", "tests/b.py::test_new", "integration_tests/c.py::test_new"]
    assert durations.expected(asked, tmp_path / "durations.json") == {
        "a.py::test_long": 7.5,
        "a.py::test_short": 0.25,
        "tests/b.py::test_new": durations.UNKNOWN_S["tests"],
        "integration_tests/c.py::test_new": durations.UNKNOWN_S["integration_tests"],
    }


def test_where_two_parts_ran_a_test_the_first_asked_for_counts(tmp_path: Path) -> None:
    alone = {"tests": {}, "others": 2, "others_seconds": 0.4}
    beside_others = {"tests": {"test_long": 7.5}, "others": 1, "others_seconds": 0.3}
    parts = {"quick": {"files": {"a.py": alone}}, "all": {"files": {"a.py": beside_others}}}
    (tmp_path / "durations.json").write_text(json.dumps(parts))
    tests = ["a.py::test_long", "a.py::test_short"]
    assert durations.expected(tests, tmp_path / "durations.json", "quick") == {tests[0]: 0.2, tests[1]: 0.2}
    assert durations.expected(tests, tmp_path / "durations.json", "all") == {tests[0]: 7.5, tests[1]: 0.3}


@pytest.mark.tier("default")
def test_a_person_sees_how_far_it_is_what_failed_and_what_to_install(tmp_path: Path) -> None:
    said = run(tmp_path, "--progress").stdout
    assert "unit 4/4 · 2 failed" in said
    assert re.search(r"FAILED test_four.py::test_cannot_begin \(setup\): \w+\.py:\d+: \w+", said)
    assert "SKIPPED 1 tests: there is no kcat on PATH. To run them, install kcat" in said
    assert "." * 3 not in said.partition("FAILURES")[0]


def test_every_reason_to_skip_here_has_a_remedy() -> None:
    reasons = [
        "Docker isn't there: Error while fetching server API version",
        "Docker has no image apache/kafka:4.3.0",
        "Spark needs Java 17 or later, and there is no java on PATH",
        "there is no kcat on PATH",
        "there is no go on PATH",
        "no user namespaces: unshare failed",
    ]
    lines = progress.skipped_lines((reason, 1) for reason in reasons)
    assert [line for line in lines if "To run them, " not in line] == []
    assert "docker pull apache/kafka:4.3.0" in lines[1]


def test_the_table_adds_up_what_a_command_does() -> None:
    part = {
        "date": "2026-01-02",
        "commit": "0123456789ab",
        "machine": {"cores": 2, "memory_gib": 24},
        "cores_busy_before": 0.0,
        "seconds": 400,
        "environment_seconds": 50,
        "lint_seconds": 30,
        "passed": 1_000,
        "failed": 0,
    }
    text = table.table({"test-unit": {**part, "seconds": 59}, "test": part, "test-rest": {**part, "seconds": 600}})
    unit, usual, full = text.splitlines()[2:]
    assert "| 59 s |" in unit
    assert "| 8 min 0 s (tests 6 min 40 s, environment 50 s, lint 30 s) |" in usual
    assert "| 2,000 | 18 min 0 s (tests 16 min 40 s, environment 50 s, lint 30 s) |" in full
