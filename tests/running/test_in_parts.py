"""A long run in parts goes on where it ended, and says what is left."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.running import durations, in_parts
from tests.running.tiers import ROOT

pytestmark = pytest.mark.tier("extended")  # each test runs pytest a few times
TESTS = """
from pathlib import Path
import pytest

@pytest.mark.parametrize("part", range(4))
def test_passes(part):
    ran = Path(__file__).parent / "ran"
    ran.write_text(ran.read_text() + f"{part} ")

def test_fails_once():
    assert (Path(__file__).parent / "mended").exists()

@pytest.mark.skip(reason="never")
def test_is_skipped():
    pass
"""


def run(directory: Path, minutes: str, *arguments: str) -> tuple[int, dict[str, Any], str]:
    """One run; its exit code, the entry of its part, and which parts have run."""
    (directory / "test_five.py").write_text(TESTS)
    (directory / "ran").write_text("")
    plugins = [f"-ptests.running.{name}" for name in ("durations", "in_parts")]
    command = [sys.executable, "-m", "pytest", "-q", *plugins, "-p", "no:cacheprovider", "--rootdir", str(directory)]
    kept = ["--record", "five", "--record-in", str(directory / "results.json"), "--in-parts", minutes]
    done = subprocess.run(
        [*command, *kept, *arguments, str(directory)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    entry = json.loads((directory / "results.json").read_text())["five"]
    return done.returncode, entry, (directory / "ran").read_text()


@pytest.mark.tier("full")
def test_each_run_goes_on_where_the_last_one_ended(tmp_path: Path) -> None:
    code, entry, ran = run(tmp_path, "0")
    assert (code, ran, entry["passed"], entry["left"]) == (0, "0 ", 1, 5)
    code, entry, ran = run(tmp_path, "0")
    assert (code, ran, entry["passed"], entry["left"]) == (0, "1 ", 2, 4)
    code, entry, ran = run(tmp_path, "10")
    assert (code, ran, entry["passed"], entry["failed"], entry["left"]) == (1, "2 3 ", 4, 1, 1)
    assert entry["failures"] == ["test_five.py::test_fails_once"]
    assert sum(one["others"] for one in entry["files"].values()) == 6, "the times of all runs"
    (tmp_path / "mended").touch()
    code, entry, ran = run(tmp_path, "10")
    assert (code, ran, entry["passed"], entry["failed"], entry["left"]) == (0, "", 5, 0, 0)
    assert run(tmp_path, "10")[0] == 0, "nothing is left"


def test_it_begins_anew_where_the_code_has_changed(tmp_path: Path) -> None:
    _, entry, _ = run(tmp_path, "0")
    assert in_parts.same_code(entry["code"])
    assert "tests/budget.py" in entry["code"]
    results = tmp_path / "results.json"
    results.write_text(json.dumps({"five": entry | {"code": entry["code"] | {"tests/budget.py": "other"}}}))
    code, entry, ran = run(tmp_path, "0")
    assert (code, ran, entry["passed"], entry["left"]) == (0, "0 ", 1, 5)


@pytest.mark.tier("full")
def test_older_results_count_where_they_are_kept(tmp_path: Path) -> None:
    run(tmp_path, "0")
    results = tmp_path / "results.json"

    def change(**what: Any) -> None:
        entry = json.loads(results.read_text())["five"]
        results.write_text(json.dumps({"five": entry | {"commit": "older"} | what}))

    change(code={"tests/budget.py": "other"})
    code, entry, ran = run(tmp_path, "0", "--keep-older")
    assert (code, ran, entry["passed"], entry["left"]) == (0, "1 ", 2, 4)
    assert [(each["commit"], each["done"]) for each in entry["older"]] == [("older", ["test_five.py::test_passes[0]"])]
    assert entry["done"] == ["test_five.py::test_passes[1]"]
    code, entry, ran = run(tmp_path, "0", "--keep-older")
    assert (ran, entry["passed"]) == ("2 ", 3), "with the same code the newest run goes on"
    assert len(entry["older"]) == 1
    entry["older"][0]["tests"] = {"test_five.py": "another test"}
    change(code={"tests/budget.py": "again another"}, tests={"test_five.py": "another test"}, older=entry["older"])
    code, entry, ran = run(tmp_path, "0", "--keep-older")
    assert (ran, entry["passed"]) == ("0 ", 1), "what a test does stands in its file"


def test_runs_beside_each_other_keep_what_the_others_have_recorded(tmp_path: Path) -> None:
    results, meanwhile = tmp_path / "results.json", threading.Event()

    def other() -> None:
        with durations.changing(results) as parts:
            parts["other"] = {}
        meanwhile.set()

    with durations.changing(results) as parts:
        parts["one"] = {}
        beside = threading.Thread(target=other)
        beside.start()
        assert not meanwhile.wait(0.2), "it waits for this one"
    beside.join(10)
    assert set(durations.load(results)) == {"one", "other"}
