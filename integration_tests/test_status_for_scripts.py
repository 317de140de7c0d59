"""`status --check` of a real flow, and `status --watch` until ^C."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from integration_tests.conftest import MakeCopying
from integration_tests.harness import clients
from integration_tests.harness.two_topics import INCIDENT, TwoTopics, numbered


def check(path: Path, *options: str) -> tuple[int, str]:
    """The exit code, and what is said to be wrong."""
    command = [sys.executable, "-m", "cli.main", "status", "-c", str(path), "--check", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    return done.returncode, done.stderr


@pytest.mark.tier("full")
def test_what_is_not_well_is_an_exit_code(make_copying: MakeCopying) -> None:
    two = TwoTopics(make_copying(partitions=1))
    path, flow = two.flow.file.path, f"check: flow {two.name}:"
    clients.create_topic(two.target, two.copy_of(two.first), 1, {"cleanup.policy": "compact"})
    worker = two.running(5)
    assert check(path, "--lag-records-max", "0", "--lag-seconds-max", "0") == (0, "")
    two.assert_stops(worker, 0)
    two.put(two.second, numbered("more", 3))
    assert check(path, "--lag-records-max", "3", "--lag-seconds-max", "3600") == (0, "")
    assert check(path) == (1, f"check: flow {two.name} is run by no process, with 3 records to copy\n")
    assert check(path, "--lag-records-max", "2") == (1, f"{flow} {two.second}[0] is 3 records behind, more than 2\n")

    clients.put(clients.producer(two.source), two.first, b"refused", key=None)
    worker = two.flow.running()
    worker.wait_event("incident", name="record_refused")
    two.wait_position(two.second, 8)
    two.assert_stops(worker, INCIDENT)
    code, said = check(path)
    assert code == 1
    assert said.startswith(f"{flow} {two.first}[0] is record_refused: ")
    assert len(said.splitlines()) == 1


def test_it_is_shown_again_until_it_is_interrupted(make_copying: MakeCopying) -> None:
    copying = make_copying(partitions=1)
    command = [sys.executable, "-m", "cli.main", "status", "-c", str(copying.file.path), "--watch", "0.5"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        shown = 0
        while shown < 2:
            line = watching.stdout.readline()
            assert line, watching.stderr.read() if watching.stderr else ""
            shown += "^C ends it" in line
        watching.send_signal(signal.SIGINT)
        assert watching.wait(60) == 0
