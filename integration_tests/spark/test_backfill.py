"""Backfills by Spark, end to end: whatever can die dies in the middle of a transaction, and the copy is exact."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from integration_tests.conftest import MakeCopying
from integration_tests.harness.copying import Copying
from integration_tests.harness.processes import alive, processes, python_workers, wait_until
from integration_tests.harness.spark_cluster import SparkCluster
from integration_tests.spark.conftest import Start, wait_rounds

BACKLOG = 1_000
STILL_S = 12.0
pytestmark = pytest.mark.timeout(600)


@pytest.mark.tier("long", kafka="long")
def test_live_and_backfill_take_turns_while_the_source_is_written(make_copying: MakeCopying, start: Start) -> None:
    """Local Spark: tasks that die, a driver that dies, one that is stopped; a daemon before, between and after."""
    copying = make_copying()
    local = ("--master", "local[2,4]", "--json", "--range", "1500")
    copying.load.mixed(3_000)
    with copying.writing(step=10):
        worker = copying.running()
        worker.wait_event("committed")
        refused = start("backfill", copying.file, *local)
        assert refused.wait_exit() == 5, refused.said()
        assert "a live worker holds it" in refused.said()
        assert "--take-over" in refused.said()
        assert worker.stop() == 0
        wait_backlog(copying)

        # Each first attempt dies in its first transaction; Spark tries again, and the second finds what the first left.
        killed = start("backfill", copying.file, *local, failpoints="before_end_txn@1=kill")
        done = killed.succeeded()
        assert done["done"], killed.said()
        assert done["records"] >= BACKLOG

        worker = copying.running()
        worker.wait_event("committed")
        worker.suspend()
        wait_backlog(copying)
        # The driver dies while tasks stand in the middle of a transaction; nothing of Spark outlives it.
        dying = start("backfill", copying.file, *local, "--take-over", failpoints="before_offsets@1=stop")
        tasks = dying.wait_stopped_tasks(1)
        worker.resume()
        assert worker.wait_exit() == 5, worker.tail()
        assert "has taken over" in worker.seen("flow_ended")[0]["detail"]
        dying.signal(signal.SIGKILL)
        assert dying.wait_exit() == -signal.SIGKILL
        wait_until(lambda: not any(map(alive, tasks)), f"Python workers {tasks} end with their driver", dying.said)
        daemon = copying.run()
        assert daemon.wait_exit() == 5, daemon.tail()
        assert "run it again if it died" in daemon.seen("flow_ended")[0]["detail"]

        # Begun again, and stopped in the middle, its JVM by the same signal: the flow is handed over all the same.
        stopped = start("backfill", copying.file, *local, failpoints="before_offsets@1=stop")
        tasks = stopped.wait_stopped_tasks(1)
        stopped.signal_all(signal.SIGTERM)
        ended = stopped.succeeded()
        assert (ended["stopped"], ended["done"]) == (True, False), stopped.said()
        assert not any(map(alive, tasks))
        worker = copying.running()
    copying.finish(worker)


def wait_backlog(copying: Copying) -> None:
    """Wait until the writer in the background has written more."""
    enough = copying.load.committed + BACKLOG
    wait_until(lambda: copying.load.committed > enough, f"{enough} records", lambda: "")


def test_executors_die_and_stand_still(
    make_copying: MakeCopying, start: Start, cluster: SparkCluster, tmp_path: Path
) -> None:
    """Two executors, speculation on. The first attempt at each range stands still in its transaction for a while, and a
    second one, elsewhere, gets the range meanwhile; in the first round an executor dies besides."""
    copying = make_copying(partitions=2)
    copying.load.mixed(3_000)
    speculation = {
        "spark.speculation": "true",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.minTaskRuntime": "5s",  # so that the first attempts get to where they stand still
        "spark.speculation.task.duration.threshold": "5s",
    }
    conf = [part for name, value in speculation.items() for part in ("--conf", f"{name}={value}")]
    out = tmp_path / "ranges"
    job = start(
        "backfill",
        copying.file,
        *cluster.options(),
        *conf,
        *("--json", "--range", "1500", "--out", str(out)),
        failpoints="before_end_txn@1=stop",
    )
    wait_until(lambda: len(cluster.executors()) == 2, "there are two executors", job.said)
    executors = cluster.executors()
    standing = job.wait_stopped_tasks(1, *executors)
    below = {executor: [item.pid for item in python_workers(executor)] for executor in executors}
    dying, gone = next((executor, pids) for executor, pids in below.items() if set(pids) & set(standing))
    os.kill(dying, signal.SIGKILL)
    wait_until(lambda: not any(map(alive, gone)), f"Python workers {gone} end with their executor", job.said)
    while job.runs_on(STILL_S):  # whoever stood still for so long wakes up as a zombie, or as the only one left
        for pid in [item.pid for item in python_workers(*cluster.executors()) if item.state == "T"]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
    done = job.succeeded()
    assert done["done"], job.said()
    assert done["records"] == copying.load.committed
    assert "another attempt succeeded" in cluster.tail(1_000), "no attempt was a speculative one"
    assert done["ledger"] == str(out)
    assert list(out.glob("*.parquet"))
    wait_until(lambda: not cluster.executors(), "the executors end with their application", cluster.tail)
    worker = copying.running()
    copying.load.mixed(200)
    copying.finish(worker)


@pytest.mark.tier("long")
def test_a_flow_stays_on_spark_and_goes_anywhere(make_copying: MakeCopying, start: Start) -> None:
    """`run --runner spark` takes over from the daemon and the daemon from it; its JVM dies, and nothing is lost."""
    copying = make_copying()
    rounds = ("--runner", "spark", "--master", "local[2,4]", "--log-format", "json", "--log-level", "debug")
    with copying.writing(step=10):
        first = start("run", copying.file, *rounds)
        wait_rounds(first, 3)
        first.signal(signal.SIGTERM)
        assert first.wait_exit() == 0, first.said()
        worker = copying.running()
        worker.wait_event("committed")
        second = start("run", copying.file, *rounds, failpoints="before_offsets@1=kill")
        wait_rounds(second, 2)
        assert worker.wait_exit() == 5, worker.tail()
        (jvm,) = [item.pid for item in processes() if item.parent == second.pid and b"java" in item.command]
        os.kill(jvm, signal.SIGKILL)
        assert second.wait_exit() == 3, second.said()
        assert "Spark has ended" in second.said()
        assert "Traceback" not in second.said()
        worker = copying.running()
    copying.finish(worker)
