"""`eos-replicate demo-spark` as a user runs it, smaller."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

RECORDS = 40_000
DEMO_S_MAX = 550.0
pytestmark = pytest.mark.tier("long")  # `make test` has backfills that are killed and planted damage by themselves


@pytest.mark.usefixtures("with_java")
def test_tasks_are_killed_the_copy_is_exact_and_planted_damage_is_found() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "cli.main", "demo-spark", "--json", "--records", str(RECORDS)],
        capture_output=True,
        text=True,
        timeout=DEMO_S_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert (shown["good"], shown["agrees"], shown["backfilled"]) == (True, True, RECORDS)
    assert shown["aborted"] > RECORDS // 2
    assert [damage[0] for damage in shown["found"]] == ["missing", "doubled", "altered", "reordered"]
