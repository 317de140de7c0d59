"""The number of lanes is changed by a second process while the first one copies."""

from __future__ import annotations

import signal

import pytest

from integration_tests.conftest import MakeCopying
from integration_tests.harness.proxy import Action, Proxy, Side

TAKEN_OVER = 5
PARTITIONS = 6


@pytest.mark.tier("full")
def test_lanes_become_more_and_fewer_under_a_running_process(make_copying: MakeCopying) -> None:
    copying = make_copying(partitions=PARTITIONS, lanes=1)
    worker = copying.running()
    with copying.writing():
        worker.wait_event("committed")
        for generation, lanes in ((2, 3), (3, 2)):
            copying.file.write(lanes=lanes)
            successor = copying.run()
            assert worker.wait_exit() == TAKEN_OVER, worker.tail()
            successor.wait_event("generation_opened", generation=generation, lanes=lanes)
            for lane in range(lanes):
                successor.wait_event("lane_started", lane=lane, generation=generation)
            successor.wait_event("committed", after=successor.mark())
            worker = successor
    copying.finish(worker)


@pytest.mark.parametrize(
    "step",
    [
        *(pytest.param(step, marks=pytest.mark.tier("full", kafka="long")) for step in ("fenced", "claimed")),
        pytest.param("before_end_txn", marks=pytest.mark.tier("full", kafka="long")),
        "after_end_txn",
    ],
)
def test_the_process_that_changed_the_lanes_is_killed(make_copying: MakeCopying, step: str) -> None:
    """The change stands; what its first lanes had begun is ended by the next process."""
    copying = make_copying(partitions=PARTITIONS, lanes=1)
    first = copying.running()
    with copying.writing():
        first.wait_event("committed")
        copying.file.write(lanes=3)
        second = copying.run(f"{step}@2=kill")
        assert first.wait_exit() == TAKEN_OVER, first.tail()
        assert second.wait_exit() == -signal.SIGKILL, second.tail()
        copying.file.write(lanes=2)
        third = copying.running()
        third.wait_event("committed")
    copying.finish(third)


@pytest.mark.parametrize(
    ("lanes", "generation"),
    [
        pytest.param(3, 2, id="the same", marks=pytest.mark.tier("full")),
        pytest.param(2, 3, id="another one", marks=pytest.mark.tier(embedded="full")),
    ],
)
def test_a_change_that_was_left_half_done_is_finished_by_the_next_process(
    make_copying: MakeCopying, proxy: Proxy, lanes: int, generation: int
) -> None:
    """`preparing 2` is written, and its writer dies before it has fenced the first process, which copies on."""
    copying = make_copying(partitions=PARTITIONS, lanes=1, via=proxy.bootstrap)
    first = copying.running()
    with copying.writing():
        first.wait_event("committed")
        copying.file.write(lanes=3)
        # The first is the control id's; the others come side by side, one of them the first process's lane.
        fencing = proxy.rule("InitProducerId", Side.REQUEST, Action.HOLD, nth=2, times=100)
        second = copying.run()
        fencing.wait_hit()
        first.wait_event("committed", after=first.mark())
        second.kill()
        proxy.clear()
        copying.file.write(lanes=lanes)
        third = copying.run()
        opened = third.wait_event("generation_opened")
        assert (opened["generation"], opened["lanes"]) == (generation, lanes), "2 is the one that was left half done"
        assert first.wait_exit() == TAKEN_OVER, first.tail()
        third.wait_event("committed")
    copying.finish(third)
