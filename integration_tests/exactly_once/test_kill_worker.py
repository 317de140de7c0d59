"""SIGKILL of the worker at every step of its transaction, and takeover by another worker."""

from __future__ import annotations

import signal
import time

import pytest

from integration_tests.conftest import MakeCopying
from integration_tests.harness.copying import Copying

pytestmark = pytest.mark.tier(kafka="full")

TIMEOUT_S = 120
LANE_START = ("fenced", "before_end_claims", "claimed")
STEPS = [
    pytest.param("fenced", marks=pytest.mark.tier("full", kafka="long")),
    pytest.param("before_end_claims", marks=pytest.mark.tier("full")),
    pytest.param("claimed", marks=pytest.mark.tier(embedded="full")),
    pytest.param("before_send", marks=pytest.mark.tier("full", kafka="long")),
    pytest.param("mid_batch", marks=pytest.mark.tier("full", kafka="long")),
    pytest.param("before_flush", marks=pytest.mark.tier("full", kafka="long")),
    pytest.param("before_offsets", marks=pytest.mark.tier("full")),
    "before_end_txn",
    pytest.param("after_end_txn", marks=pytest.mark.tier(kafka="default")),
]
"""`make test` has a kill on either side of each commit, and one on real Kafka."""


@pytest.mark.parametrize("step", STEPS)
def test_a_worker_killed_at_any_step_loses_and_doubles_nothing(copying: Copying, step: str) -> None:
    """Killed in its first transactions, killed again right after the restart, then left alone."""
    copying.load.mixed(300)
    first = "1" if step in LANE_START else "2"
    for number in (first, "1"):
        with copying.writing():
            worker = copying.run(f"{step}@{number}=kill")
            assert worker.wait_exit() == -signal.SIGKILL, worker.tail()
    worker = copying.running()
    copying.load.mixed(100)
    copying.finish(worker)


def test_what_was_written_but_not_committed_is_written_again(copying: Copying) -> None:
    """The rewind is real: the killed transaction's records stand on the target twice, once of them aborted."""
    copying.load.mixed(200)
    worker = copying.run("before_end_txn@1=kill")
    worker.wait_exit()
    uncommitted = sum(copying.target_ends())
    assert uncommitted > 0
    worker = copying.running()
    copying.finish(worker)
    assert sum(copying.target_ends()) >= uncommitted + copying.load.committed


@pytest.mark.parametrize("step", ["before_end_txn", pytest.param("before_end_claims", marks=pytest.mark.tier("full"))])
def test_a_successor_does_not_wait_for_the_dead_one_s_transaction(make_copying: MakeCopying, step: str) -> None:
    """It ends that transaction by fencing; nothing before may wait for its positions or claims to become stable."""
    copying = make_copying(limits={"transaction_timeout_ms": TIMEOUT_S * 1000, "request_timeout_ms": 5_000})
    copying.load.mixed(200)
    worker = copying.run(f"{step}@1=kill")
    worker.wait_exit()
    killed_s = time.monotonic()
    worker = copying.running()
    assert time.monotonic() - killed_s < TIMEOUT_S / 2, worker.tail()
    assert not worker.seen("restarted"), worker.tail()
    copying.finish(worker)


def test_a_second_worker_takes_over_and_the_first_one_leaves(copying: Copying) -> None:
    copying.load.mixed(200)
    first = copying.running()
    first.wait_event("committed")
    with copying.writing():
        second = copying.running()
        assert first.wait_exit() == 5, first.tail()
        second.wait_event("committed")
    assert first.seen("fenced")
    copying.finish(second)


def test_an_idle_worker_notices_that_another_one_has_taken_over(make_copying: MakeCopying) -> None:
    """Nothing is to be written, so nothing tells it that it was fenced: it looks once in a discovery interval."""
    copying = make_copying(limits={"discovery_interval_ms": 1_000})
    copying.load.mixed(100)
    first = copying.running()
    copying.wait_copied()
    second = copying.running()
    second.wait_event("lane_started")
    assert first.wait_exit() == 5, first.tail()
    assert "has taken over" in first.seen("flow_ended")[0]["detail"]
    copying.load.mixed(100)
    copying.finish(second)


@pytest.mark.tier("full")
def test_workers_that_take_over_from_each_other_again_and_again(copying: Copying) -> None:
    with copying.writing():
        workers = []
        for _ in range(4):
            workers.append(copying.running())
            workers[-1].wait_event("committed")
        for worker in workers[:-1]:
            assert worker.wait_exit() == 5, worker.tail()
    copying.finish(workers[-1])


def test_a_crash_between_claim_and_first_record_leaves_the_position_that_start_resolved(copying: Copying) -> None:
    """`start: latest` is resolved once: what comes after the claim is copied, whenever the copy begins."""
    copying.load.mixed(200)
    copying.file.write(start="latest")
    worker = copying.run("claimed@1=kill")
    worker.wait_exit()
    claimed = copying.wait_stable()
    copying.load.mixed(200)
    worker = copying.running()
    assert copying.wait_stable() >= claimed
    copying.wait_copied()
    assert worker.stop() == 0
    seen = copying.compare_from(claimed)
    assert all(verdict.exact for verdict in seen.values()), seen
