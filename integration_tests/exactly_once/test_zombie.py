"""SIGSTOP: a worker that sleeps past its transaction's time-out and wakes up again."""

from __future__ import annotations

import signal

import pytest

from integration_tests.conftest import MakeCopying
from integration_tests.harness.copying import Copying
from integration_tests.harness.replicator import Replicator

pytestmark = pytest.mark.tier(kafka="full")

LIMITS = {"transaction_timeout_ms": 1_500}
STEPS = [
    *(pytest.param(step, marks=pytest.mark.tier("full")) for step in ("before_send", "before_flush")),
    "before_offsets",
    "before_end_txn",
]


@pytest.mark.parametrize("step", STEPS)
def test_a_worker_that_wakes_up_after_its_successor_came_writes_nothing_more(
    make_copying: MakeCopying, step: str
) -> None:
    copying = make_copying(limits=LIMITS)
    copying.load.mixed(200)
    with copying.writing():
        zombie = copying.run(f"{step}@2=stop")
        zombie.wait_stopped()
    copying.wait_stable()  # the time-out has aborted whatever was open over the positions
    successor = copying.running()
    copying.wait_copied()
    ends = copying.target_ends()
    zombie.resume()
    assert zombie.wait_exit() == 5, zombie.tail()
    ended = zombie.seen("lane_ended")
    assert [event["kind"] for event in ended] == ["TakenOver"], zombie.tail()
    assert copying.target_ends() == ends, "the zombie wrote to the target"
    copying.load.mixed(100)  # its successor goes on, even if the zombie has fenced it on its way out
    copying.finish(successor)


def asleep_until_timed_out(copying: Copying) -> Replicator:
    """A worker that stands still in a transaction, which the target has aborted by now."""
    worker = copying.run("before_end_txn@2=stop")
    worker.wait_stopped()
    copying.wait_stable()
    return worker


@pytest.mark.tier("full")
def test_a_worker_that_wakes_up_alone_goes_on(make_copying: MakeCopying) -> None:
    """A transaction time-out looks like fencing; the positions' owner tells that nobody else came."""
    copying = make_copying(limits=LIMITS)
    copying.load.mixed(200)
    with copying.writing():
        worker = asleep_until_timed_out(copying)
        mark = worker.mark()
        worker.resume()
        worker.wait_event("restarted", after=mark)
        worker.wait_event("committed", after=mark)
    copying.finish(worker)


@pytest.mark.tier("full", kafka="long")
def test_a_stop_of_a_worker_that_wakes_up_alone_is_not_told_as_a_takeover(make_copying: MakeCopying) -> None:
    """Its transaction was timed out, and is given up: that is 3, or 0 where the lane has copied it again in time."""
    copying = make_copying(limits=LIMITS)
    copying.load.mixed(200)
    with copying.writing():
        worker = asleep_until_timed_out(copying)
        worker.signal(signal.SIGTERM)
        worker.resume()
        assert worker.wait_exit() in (0, 3), worker.tail()
    copying.finish(copying.running())


@pytest.mark.tier("full")
def test_a_worker_that_is_fenced_in_the_middle_of_writing_leaves_its_successor_alone(
    make_copying: MakeCopying,
) -> None:
    """It hears of it from the next record that it hands over, and must not fence in its turn."""
    copying = make_copying(commit={"interval_ms": 20_000}, limits={"transaction_timeout_ms": 30_000})
    copying.load.plain(40_000)
    zombie = copying.run("before_send@1=stop")
    zombie.wait_stopped()
    successor = copying.running()
    zombie.resume()
    assert zombie.wait_exit() == 5, zombie.tail()
    assert not zombie.seen("restarted"), zombie.tail()
    copying.finish(successor)
