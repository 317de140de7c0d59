"""`apply` dies between the two records of a change: the workers finish it, and copy on until then."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from integration_tests.conftest import MakeCopying
from integration_tests.harness.broker import BrokerHandle
from integration_tests.harness.copying import Copying
from integration_tests.harness.crew import LANES
from integration_tests.harness.processes import wait_until
from integration_tests.harness.replicator import FAILPOINTS
from replicator.workers.settings import FINISH_AFTER_S
from tests.running.users_packages import users_packages

pytestmark = pytest.mark.tier("long", kafka="long")


def dies_prepared(copying: Copying) -> None:
    """Have `apply` killed once the control topic says that a generation is being prepared, and nobody is fenced."""
    asked = [sys.executable, "-m", "cli.main", "apply", "-c", str(copying.file.path)]
    environment = users_packages() | {FAILPOINTS: "change_prepared@1=kill"}
    assert subprocess.run(asked, env=environment, check=False).returncode == -signal.SIGKILL


def generation(copying: Copying) -> int | None:
    """The open one, as `workers` shows it."""
    code, found = copying.asked("workers")
    assert code == 0
    number: int | None = found["generation"]
    return number


@pytest.mark.parametrize("writes", [True, False])
def test_workers_finish_a_change_whose_command_has_died(
    make_copying: MakeCopying, target: BrokerHandle, writes: bool
) -> None:
    """None of them is fenced, and none reads the topic for another reason: the next discovery is an hour away."""
    copying = make_copying(partitions=8, lanes=LANES, limits={"discovery_interval_ms": 3_600_000})
    copying.load.mixed(200)
    first = copying.run("", "--shared")
    first.wait_event("lane_started", lane=LANES - 1)
    second = copying.run("", "--shared")
    second.wait_event("lane_started")
    copying.file.write(lanes=2)
    dies_prepared(copying)
    assert generation(copying) is None
    if writes:
        with copying.writing():
            marks = first.mark(), second.mark()
            for worker, mark in zip((first, second), marks, strict=True):
                worker.wait_event("committed", after=mark)
            for worker in (first, second):
                worker.wait_event("lane_started", generation=2)
    for worker in (first, second):
        over = worker.wait_event("generation_over")
        assert f"for {FINISH_AFTER_S:.0f} s nobody has opened it" in over["reason"] or "generation 2" in over["reason"]
        worker.wait_event("lane_started", generation=2)
    assert generation(copying) == 2
    copying.load.mixed(200)
    copying.wait_copied()
    for worker in (first, second):
        assert worker.stop() == 0, worker.tail()
    copying.assert_exact()


def test_a_process_that_runs_the_flow_alone_copies_on(make_copying: MakeCopying, target: BrokerHandle) -> None:
    """What would make it go over to the other generation is its next start."""
    copying = make_copying(partitions=2)
    copying.load.mixed(200)
    alone = copying.run("", "--standalone")
    alone.wait_event("committed")
    copying.file.write(lanes=2)
    dies_prepared(copying)
    began = alone.mark()
    wait_until(lambda: alone.seen("summary", after=began), "it has copied for longer than workers wait", alone.tail)
    copying.load.mixed(200)
    copying.wait_copied()
    assert alone.stop() == 0, alone.tail()
    again = copying.run("", "--standalone")
    again.wait_event("lane_started", generation=2)
    assert again.stop() == 0, again.tail()
    copying.assert_exact()
