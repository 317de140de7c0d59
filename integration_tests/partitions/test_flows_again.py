"""A flow that ended in a living process is tried again: what ended it may have gone away."""

from __future__ import annotations

import pytest

from integration_tests.conftest import MakeCopying
from integration_tests.harness import clients
from integration_tests.harness.compare import assert_exact, wait_key
from integration_tests.harness.load import Load

INCIDENT = 4
AGAIN_S = 120.0  # the discovery interval of the tests is a second


@pytest.mark.tier("extended")
def test_a_flow_whose_topic_appears_is_started_again(make_copying: MakeCopying) -> None:
    sound, early = make_copying(), make_copying()
    late = f"{early.name}.late"
    early.file.write(topics=[late])
    sound.file.include(early.file)
    worker = sound.run()
    ended = worker.wait_event("flow_ended", flow=early.name)
    assert ended["exit_code"] == INCIDENT
    assert late in ended["detail"]
    worker.wait_event("lane_started", flow=sound.name)
    clients.create_topic(early.source, late, 2)
    load = Load(early.source, late, 2, seed=7)
    load.mixed(100)
    worker.wait_event("flow_started_again", flow=early.name, timeout_s=AGAIN_S)
    load.finish()
    wait_key(early.target, f"{late}.copy", 2, load.last)
    sound.load.mixed(100)
    sound.finish(worker)
    assert worker.seen("stopped")[-1]["flows"] == {sound.name: 0, early.name: 0}
    assert assert_exact(early.source, late, early.target, f"{late}.copy", 2) == load.committed


@pytest.mark.tier(embedded="full")
def test_a_flow_whose_cause_stays_is_told_once_and_shown_at_the_end(make_copying: MakeCopying) -> None:
    """It is tried again at each discovery without filling the log, and the other flow doesn't notice."""
    sound, early = make_copying(), make_copying()
    early.file.write(topics=[f"{early.name}.never"])
    sound.file.include(early.file)
    worker = sound.run()
    worker.wait_event("flow_ended", flow=early.name)
    for _ in range(5):
        sound.load.mixed(50)
        sound.wait_copied()
        assert worker.runs_on(1.0)
    assert len(worker.seen("flow_ended", flow=early.name)) == 1, worker.tail()
    assert worker.stop() == INCIDENT
    assert worker.seen("stopped")[-1]["flows"] == {sound.name: 0, early.name: INCIDENT}
    sound.assert_exact()
