"""`eos-replicate demo` as a user runs it: a real process, judged by its last line and its exit code."""

from __future__ import annotations

import json
import subprocess
import sys

MODES = ("at_most_once", "at_least_once", "exactly_once")


def demo(*arguments: str) -> tuple[int, dict[str, float]]:
    done = subprocess.run(
        [sys.executable, "-m", "cli.main", "demo", "--json", *arguments],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout.splitlines()[-1])


def test_everything_is_killed_and_nothing_is_lost() -> None:
    code, last = demo("--seed", "7", "--seconds", "9", "--records", "8000", "--kills", "3")
    assert code == 0
    assert last["records_source"] == last["records_target"] > 1000
    assert (last["lost"], last["doubled"], last["reordered"], last["altered"]) == (0, 0, 0, 0)
    assert (last["worker_kills"], last["broker_kills"]) == (3, 1)


def test_the_same_kills_show_what_each_mode_is_worth() -> None:
    code, last = demo("--seed", "7", "--seconds", "4", "--kills", "2", "--compare")
    assert code == 0
    modes: dict[str, dict[str, float]] = last["modes"]  # type: ignore[assignment]
    worth = {mode: (modes[mode]["lost"] > 0, modes[mode]["doubled"] > 0) for mode in MODES}
    assert worth == {"at_most_once": (True, False), "at_least_once": (False, True), "exactly_once": (False, False)}
