"""A slow new test is found on a machine of any speed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.running import newcomers
from tests.running.tiers import ROOT

KNOWN = {f"t.py::test_{number}": 2.0 for number in range(6)}


@pytest.mark.parametrize(
    ("times", "took_s", "found"), [(1, 6.0, True), (1, 4.0, False), (10, 60.0, True), (10, 40.0, False)]
)
def test_what_it_takes_is_measured_by_the_others(times: float, took_s: float, found: bool) -> None:
    seconds = {test: known * times for test, known in KNOWN.items()} | {"t.py::test_new": took_s}
    usual = dict.fromkeys(seconds, "unit")
    assert bool(newcomers.slow(seconds, KNOWN, usual, {})) is found


def test_one_that_says_its_tier_or_is_known_may_be_slow() -> None:
    seconds = {"t.py::test_new": 100.0, "t.py::test_known": 100.0}
    assert newcomers.slow(seconds, {"t.py::test_known": 90.0}, {"t.py::test_known": "unit"}, {}) == {}


@pytest.mark.parametrize(("quick", "found"), [(1, True), (2, False)])
def test_one_that_was_quick_when_it_was_recorded_is_not_new(quick: int, found: bool) -> None:
    """Two tests of the file are not listed: with one known to be quick one of them is new, with two none is."""
    seconds = {"t.py::test_quick": 0.1, "t.py::test_waited": 100.0}
    usual = dict.fromkeys(seconds, "unit")
    assert bool(newcomers.slow(seconds, {}, usual, {"t.py": quick, "other.py": 9})) is found


@pytest.mark.tier("default")
@pytest.mark.parametrize(("marker", "code"), [("", 1), ('@pytest.mark.tier("unit")', 0)])
def test_the_run_fails(tmp_path: Path, marker: str, code: int) -> None:
    test = f"import time, pytest\n\n{marker}\ndef test_slow():\n    time.sleep(0.2)\n"
    (tmp_path / "test_new.py").write_text(test)
    limit = "from tests.running import newcomers\nnewcomers.SECONDS_MAX = dict.fromkeys(newcomers.SECONDS_MAX, 0.1)\n"
    (tmp_path / "conftest.py").write_text(limit)
    plugins = [f"-ptests.running.{name}" for name in ("tiers", "durations", "progress", "newcomers")]
    command = [sys.executable, "-m", "pytest", "-q", "--progress", *plugins, "-p", "no:cacheprovider"]
    command += ["--rootdir", str(tmp_path), str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    assert ("test_new.py::test_slow takes 0 s and says no tier" in done.stdout) is bool(code)
