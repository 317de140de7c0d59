"""Driver, its JVM, executors and Python workers are killed at moments drawn from a seed, and the copy is exact.

EOS_KILL_SEEDS=11,12 runs these seeds instead of those of `budget`.
"""

from __future__ import annotations

import os
import signal

import pytest

from integration_tests.conftest import MakeCopying
from integration_tests.harness.compare import wait_key
from integration_tests.harness.copying import Copying
from integration_tests.harness.killing import Killer
from integration_tests.harness.processes import wait_until
from integration_tests.harness.spark_cluster import SparkCluster
from integration_tests.harness.spark_jobs import SparkProcess
from integration_tests.spark.conftest import Start, committed_rounds, wait_rounds
from tests.budget import budget

GIVEN = os.environ.get("EOS_KILL_SEEDS", "")
SEEDS = [int(text) for text in GIVEN.split(",")] if GIVEN else range(1, budget(1, 50) + 1)
BACKLOG, RATE = 5_000, 800
SPAN_S = 5.0
KILLS_MAX, ROUNDS_KILLS_MAX = 3, 2  # fewer than a task's attempts: what dies more often may give up
pytestmark = pytest.mark.timeout(900)


def copies(job: SparkProcess) -> bool:
    """A backfill says so when its generation is open."""
    return ": generation " in job.said()


@pytest.mark.tier("long")
@pytest.mark.parametrize("seed", SEEDS)
def test_whoever_is_killed_the_copy_is_exact(
    make_copying: MakeCopying, start: Start, cluster: SparkCluster, seed: int
) -> None:
    """A backfill, then rounds while the source is written, both killed; what is left is stopped cleanly."""
    print(f"EOS_KILL_SEEDS={seed}")
    killer = Killer(cluster, seed)
    copying = make_copying(partitions=killer.choose((1, 2, 3)), seed=seed)
    copying.load.mixed(BACKLOG)
    try:
        _backfill(copying, start, cluster, killer)
        copying.assert_exact()
        _rounds(copying, start, cluster, killer)
        copying.assert_exact()
    except AssertionError as error:
        error.add_note("\n".join([*killer.history, cluster.tail(40)]))
        raise
    wait_until(lambda: not cluster.executors(), "the executors end with their application", cluster.tail)


def _backfill(copying: Copying, start: Start, cluster: SparkCluster, killer: Killer) -> None:
    size = killer.choose((300, 1_000, 5_000))
    options = (*cluster.options(), "--json", "--rate", str(RATE), "--range", str(size))
    kills = killer.draw(KILLS_MAX, SPAN_S)
    job = killer.carry_out(lambda: start("backfill", copying.file, *options), kills, copies, ends=True)
    assert job.succeeded()["done"], job.said()


def _rounds(copying: Copying, start: Start, cluster: SparkCluster, killer: Killer) -> None:
    options = (*cluster.options(), "--runner", "spark", "--log-format", "json", "--log-level", "debug")
    kills = killer.draw(ROUNDS_KILLS_MAX, SPAN_S)
    with copying.writing(step=10):
        job = killer.carry_out(
            lambda: start("run", copying.file, *options),
            kills,
            lambda running: committed_rounds(running) > 0,
            ends=False,
        )
        wait_rounds(job, committed_rounds(job) + 1)
    copying.load.finish()
    wait_key(copying.target, copying.copy, copying.partitions, copying.load.last)
    job.signal(signal.SIGTERM)
    assert job.wait_exit() == 0, job.said()
