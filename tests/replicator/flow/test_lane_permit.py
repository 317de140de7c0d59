"""What a lane is told that asks whether it may initialise its transactional id."""

from __future__ import annotations

import queue
import threading

from replicator.flow.lane_permit import LaneConnected, LaneInitialised, LanePermit

WAIT_S = 10.0


def test_a_permit_that_the_group_takes_back_is_asked_for_again() -> None:
    """Between the proof and the lane's last look the lane was revoked."""
    told: queue.SimpleQueue[object] = queue.SimpleQueue()
    still = [False, True]
    permit = LanePermit(3, told.put, lambda: still.pop(0))
    got: queue.SimpleQueue[bool] = queue.SimpleQueue()
    threading.Thread(target=lambda: got.put(permit.ask(threading.Event())), daemon=True).start()
    for _ in range(2):
        assert told.get(timeout=WAIT_S) == LaneConnected(3)
        permit.give()
    assert got.get(timeout=WAIT_S) is True
    permit.initialised()
    assert told.get(timeout=WAIT_S) == LaneInitialised(3)


def test_a_pause_ends_the_wait_for_a_permit() -> None:
    told: queue.SimpleQueue[object] = queue.SimpleQueue()
    permit, pause, got = LanePermit(0, told.put, lambda: True), threading.Event(), queue.SimpleQueue[bool]()
    threading.Thread(target=lambda: got.put(permit.ask(pause)), daemon=True).start()
    told.get(timeout=WAIT_S)
    pause.set()
    permit.wake()
    assert got.get(timeout=WAIT_S) is False
    assert permit.ask(pause) is False
