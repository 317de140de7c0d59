"""Brokers that are killed and come back."""

from __future__ import annotations

import pytest

from integration_tests.harness.broker import BrokerHandle
from integration_tests.harness.copying import Copying
from replicator.lane.driver import WAITING_AFTER
from tests.budget import budget

pytestmark = pytest.mark.tier(kafka="full")


def test_the_target_is_killed_under_a_running_worker(copying: Copying, target: BrokerHandle) -> None:
    worker = copying.running()
    with copying.writing():
        for _ in range(budget(1, 4)):
            mark = worker.mark()
            worker.wait_event("committed", after=mark)
            target.kill()
            target.restart()
            mark = worker.mark()
            worker.wait_event("committed", after=mark)
    copying.finish(worker)


@pytest.mark.tier(kafka="long")
def test_the_target_is_killed_inside_a_transaction(copying: Copying, target: BrokerHandle) -> None:
    for step in budget(("before_end_txn",), ("before_offsets", "before_end_txn")):
        copying.load.mixed(300)  # the worker before may have committed all there was
        worker = copying.run(f"{step}@1=stop")
        worker.wait_stopped()
        target.kill()
        target.restart()
        worker.resume()
        copying.load.mixed(100)  # the transaction in doubt may have been committed: there must be more to commit
        worker.wait_event("committed")
        worker.kill()
    copying.finish(copying.running())


@pytest.mark.tier("full", kafka="long")
def test_worker_and_target_die_together(copying: Copying, target: BrokerHandle) -> None:
    with copying.writing():
        worker = copying.run("after_end_txn@2=kill")
        worker.wait_exit()
        target.kill()
        target.restart()
    copying.finish(copying.running())


def test_the_source_is_killed_under_a_running_worker(copying: Copying, source: BrokerHandle) -> None:
    worker = copying.running()
    copying.load.mixed(200)
    worker.wait_event("committed")
    source.kill()
    source.restart()
    copying.load.mixed(200)
    copying.finish(worker)


@pytest.mark.tier("full")
def test_the_source_is_dead_until_its_partitions_are_asked_about(copying: Copying, source: BrokerHandle) -> None:
    """The lane hears nothing, asks, and makes them wait. The leader that comes back has another epoch."""
    worker = copying.running()
    copying.load.mixed(200)
    worker.wait_event("committed")
    source.kill()
    worker.wait_event("unreachable", cluster="here")
    # The ids of its topics are in doubt, and its partitions wait. A transaction of first records may run into its
    # timeout: before they are committed the source is asked for other flows' claims.
    worker.wait_any(lambda event: event["event"] in ("aborted", "restarted"), "the end of the transaction")
    source.restart()
    copying.load.mixed(200)
    copying.finish(worker)


@pytest.mark.tier("long")
def test_the_target_is_dead_until_its_partitions_are_asked_about(copying: Copying, target: BrokerHandle) -> None:
    worker = copying.running()
    with copying.writing():
        worker.wait_event("committed")
        mark = worker.mark()
        target.kill()
        worker.wait_event("unreachable", cluster="there")
        worker.wait_any(  # then its partitions wait
            lambda _: len(worker.seen("restarted", after=mark)) >= WAITING_AFTER, "failed sessions in a row"
        )
        target.restart()
    copying.finish(worker)
