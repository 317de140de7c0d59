"""`eos-replicate failover` on a flow under test, and hooks that say that they have run."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from integration_tests.harness.copying import ASKED_S_MAX, Copying
from integration_tests.harness.processes import alive, wait_until
from integration_tests.harness.replicator import FAILPOINTS
from tests.running.users_packages import users_packages

UNCHANGED = ("--rehearse", "--show")
"""Options with which nothing has to be confirmed."""


def words(copying: Copying, *options: str) -> list[str]:
    """The command line, confirmed."""
    meant = () if set(options) & set(UNCHANGED) else ("--yes-i-mean", copying.name)
    return [sys.executable, "-m", "cli.main", "failover", "-c", str(copying.file.path), *meant, *options]


def asked(copying: Copying, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end, whatever that is."""
    return subprocess.run(
        words(copying, *options), capture_output=True, text=True, check=False, timeout=ASKED_S_MAX,
        env=users_packages(),
    )  # fmt: skip


def failover(copying: Copying, *options: str) -> tuple[int, dict[str, Any]]:
    """Exit code and JSON of the command."""
    done = asked(copying, "--json", *options)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def started(copying: Copying, *options: str, failpoints: str = "") -> subprocess.Popen[str]:
    """Start the command; what it says is in its pipes."""
    told: Mapping[str, str] = {FAILPOINTS: failpoints} if failpoints else {}
    return subprocess.Popen(
        words(copying, *options), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**users_packages(), **told},
    )  # fmt: skip


def command(copying: Copying, *more: str) -> None:
    """A command that must succeed."""
    line = [sys.executable, "-m", "cli.main", *more, "-c", str(copying.file.path)]
    subprocess.run(line, check=True, capture_output=True, timeout=ASKED_S_MAX, env=users_packages())


def wait_ends_noted(copying: Copying, ends: list[int]) -> None:
    """Until the flow has noted that the source ends there."""

    def noted() -> bool:
        (flow,) = [failover(copying, "--rehearse")[1]]
        found = {row["partition"]: row["source_end_seen"] for row in flow["partitions"]}
        return [found.get(number) for number in range(copying.partitions)] == ends

    wait_until(noted, "the source's ends are noted", lambda: str(ends))


def wait_stopped(process: subprocess.Popen[str]) -> None:
    """Until it stands still at the failpoint at which it stops itself."""

    def state() -> str:
        return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]

    wait_until(lambda: state() in "TZ", "it stands still", state)
    assert state() == "T", process.communicate()[1]


def wait_gone(pids: Path) -> None:
    """Until none of the processes runs whose ids stand in this file."""
    numbers = [int(word) for word in pids.read_text().split()]
    assert numbers
    wait_until(lambda: not any(map(alive, numbers)), "they are gone", lambda: str(numbers))


class Hook:
    """A script that keeps what it was told, one line of JSON for each time that it has run."""

    def __init__(self, directory: Path, name: str, then: str = "") -> None:
        """`then`: what it does afterwards, as lines of sh."""
        self.path, self._told = directory / name, directory / f"{name}.told"
        self.then(then)

    def then(self, text: str) -> None:
        """Do something else from now on."""
        draft = self.path.with_suffix(".new")
        draft.write_text(f"#!/bin/sh\ncat >> {self._told}\n{text}\n")
        draft.chmod(0o755)
        draft.replace(self.path)

    def then_wait(self, begun: Path, go_on: Path, text: str) -> None:
        """From now on, make the file `begun`, wait until there is a file `go_on`, and do that."""
        self.then(f": > {begun}\nwhile [ ! -e {go_on} ]; do sleep 0.05; done\n{text}")

    @property
    def command(self) -> Sequence[str]:
        """What the flow file has."""
        return [str(self.path)]

    @property
    def told(self) -> list[dict[str, Any]]:
        """What it was told, each time."""
        return [json.loads(line) for line in self._told.read_text().splitlines()] if self._told.exists() else []
