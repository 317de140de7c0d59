"""What a long run keeps of itself."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests import long_results

TESTS = """
import pytest

def test_passes():
    pass

def test_fails():
    assert False

@pytest.fixture
def broken():
    raise RuntimeError("no")

def test_cannot_begin(broken):
    pass

@pytest.mark.skip(reason="not here")
def test_is_skipped():
    pass
"""


def test_a_part_is_replaced_and_the_others_stay(tmp_path: Path) -> None:
    (tmp_path / "test_four.py").write_text(TESTS)
    results = tmp_path / "results.json"
    results.write_text(json.dumps({"four": {"passed": 99}, "another": {"passed": 7}}))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.long_results", "-p", "no:cacheprovider"]
    command += ["--rootdir", str(tmp_path), "--long-part", "four", "--long-results", str(results), str(tmp_path)]
    done = subprocess.run(command, cwd=long_results.ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    parts = json.loads(results.read_text())
    assert parts["another"] == {"passed": 7}
    found = parts["four"]
    assert (found["passed"], found["failed"], found["skipped"]) == (1, 2, 1)
    assert found["failures"] == ["test_four.py::test_cannot_begin", "test_four.py::test_fails"]
    assert found["skips"] == {"Skipped: not here": 1}
    assert found["versions"]["python"]
    assert int(found["machine"]["cores"]) >= 1
    assert len(found["slowest"]) == 4


def test_results_that_are_committed_name_their_day_commit_and_machine() -> None:
    if not long_results.FILE.exists():
        return
    for name, part in json.loads(long_results.FILE.read_text()).items():
        assert {"date", "commit", "machine", "versions", "seconds", "passed", "failed"} <= part.keys(), name
