"""Several processes of one flow share its lanes: they join, leave, die and stand still, and nothing is lost or doubled.

EOS_WORKERS_SEEDS=11,12,13 runs these schedules.
"""

from __future__ import annotations

import os
import random
from typing import Any

import pytest

from integration_tests.conftest import MakeCopying
from integration_tests.harness.broker import BrokerHandle
from integration_tests.harness.crew import LANES, PARTITIONS, WORKERS_MAX, Crew
from integration_tests.harness.replicator import DEFAULT

SEEDS = [int(text) for text in os.environ.get("EOS_WORKERS_SEEDS", "3").split(",")]
SESSION_MS_DEFAULT = 10_000
SESSION_MS = {"embedded": 2_000, "kafka": 6_000}
SESSION_MS_OF_THE_KILLED = 60_000  # a busy machine needs more than the default to start the next process


def crew_of(make_copying: MakeCopying, target: BrokerHandle, seed: int = 1, **settings: Any) -> Crew:
    """A flow of four lanes that nobody runs yet."""

    def kill(_: random.Random) -> str:
        target.kill()
        target.restart()
        return "the target is killed"

    session_ms = settings.get("limits", {}).get("session_timeout_ms", SESSION_MS_DEFAULT)
    copying = make_copying(partitions=PARTITIONS, lanes=LANES, seed=seed, **settings)
    return Crew(copying, seed, session_ms / 1000, kill)


@pytest.mark.tier(kafka="full")
def test_workers_join_leave_and_die(make_copying: MakeCopying, target: BrokerHandle) -> None:
    """Each lane has one worker; those of one that leaves or dies go to the others, and nobody is thrown out."""
    crew = crew_of(make_copying, target)
    with crew.copying.writing():
        first = crew.join()
        first.wait_event("lane_started", lane=LANES - 1)
        second, third = crew.join(), crew.join()
        crew.wait_shared()
        assert crew.shown() == crew.held()
        crew.leave(second)
        crew.wait_shared()
        crew.kill(third)
        crew.wait_shared()
        assert crew.held() == [set(range(LANES))]
    crew.finish()


@pytest.mark.tier("full")
def test_three_begin_a_new_flow_at_once(make_copying: MakeCopying, target: BrokerHandle) -> None:
    """Each finds that nobody has opened it, and that the group is empty."""
    crew = crew_of(make_copying, target)
    crew.copying.load.mixed(300)
    for _ in range(WORKERS_MAX):
        crew.join()
    crew.wait_shared()
    crew.copying.load.mixed(300)
    crew.finish()
    opened = [event for worker in crew.ended for event in worker.seen("generation_opened")]
    assert [event["generation"] for event in opened] == [1]


@pytest.mark.tier("full")
def test_a_worker_with_another_file_is_followed(make_copying: MakeCopying, target: BrokerHandle) -> None:
    """One new generation for each new file. One that the flow has had before is older, until it is applied."""
    crew = crew_of(make_copying, target)
    with crew.copying.writing():
        first = crew.join()
        first.wait_event("lane_started", lane=LANES - 1)
        crew.copying.file.write(lanes=2, commit={"linger_ms": 5})
        second = crew.join()
        first.wait_event("file_is_older", generation=2, differs=["commit.linger_ms", "lanes"])
        for worker in (first, second):
            worker.wait_event("lane_started", generation=2)
        crew.copying.file.write(lanes=LANES, commit={"linger_ms": DEFAULT})
        third = crew.join()
        third.wait_event("file_is_older", generation=2)
        crew.wait_shared(lanes=2)
        code, applied = crew.copying.said("apply")
        assert code == 0
        assert (applied["generation"], applied["opened"], applied["workers"]) == (3, True, 3)
        assert applied["differs"]["lanes"] == {"before": "2", "after": str(LANES)}
        for worker in (first, second, third):
            worker.wait_event("lane_started", generation=3)
        crew.wait_shared()
        assert crew.copying.said("apply")[1]["opened"] is False
    crew.finish()
    opened = [event for worker in crew.ended for event in worker.seen("generation_opened")]
    assert [(event["generation"], event["lanes"]) for event in opened] == [(1, LANES), (2, 2)]


@pytest.mark.tier("full")
def test_idle_workers_follow_another_file_too(make_copying: MakeCopying, target: BrokerHandle) -> None:
    """None of them is fenced on its way, since there is no record, and the next discovery is an hour away."""
    crew = crew_of(make_copying, target)
    crew.copying.file.write(limits={"discovery_interval_ms": 3_600_000})
    first = crew.join()
    first.wait_event("lane_started", lane=LANES - 1)
    crew.copying.file.write(lanes=2)
    second = crew.join()
    for worker in (first, second):
        worker.wait_event("lane_started", generation=2)
    crew.wait_shared(lanes=2)
    crew.copying.load.mixed(100)
    crew.finish()


def test_a_restarted_worker_waits_for_no_session(make_copying: MakeCopying, target: BrokerHandle) -> None:
    """The group still has the killed process: its lanes are opened before that one is expelled."""
    crew = crew_of(make_copying, target, limits={"session_timeout_ms": SESSION_MS_OF_THE_KILLED})
    crew.copying.load.mixed(200)
    crew.join().wait_event("committed")
    crew.kill(crew.alive[0])
    crew.copying.load.mixed(200)
    again = crew.join()
    again.wait_event("committed")
    assert again.seen("lanes_opened_early"), again.tail()
    assert not again.seen("lanes_assigned"), again.tail()
    crew.finish()


@pytest.mark.tier("full")
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.timeout(900)
def test_any_schedule_loses_and_doubles_nothing(make_copying: MakeCopying, target: BrokerHandle, seed: int) -> None:
    print(f"EOS_WORKERS_SEEDS={seed}")
    crew_of(make_copying, target, seed, limits={"session_timeout_ms": SESSION_MS[target.kind]}).schedule()


@pytest.mark.tier("long", kafka="long")
def test_nobody_gets_lanes_of_one_that_is_no_member_any_more(make_copying: MakeCopying, target: BrokerHandle) -> None:
    """It was given some before. The schedules stop a worker at any time, also where the group has just expelled it."""
    crew = crew_of(make_copying, target)
    with crew.copying.writing():
        first, second = crew.join(), crew.join()
        crew.wait_shared()
        assert crew.stand_still(first, long=True)
        crew.wait_shared()
        first.suspend()
        second.wait_event("lanes_assigned", after=second.mark(), lanes=list(range(LANES)))
        assert not crew.stand_still(first, long=True)
        crew.wait_shared()
    crew.finish()


@pytest.mark.tier("full")
def test_a_session_that_the_target_refuses_is_said(make_copying: MakeCopying, target: BrokerHandle) -> None:
    crew = crew_of(make_copying, target, limits={"session_timeout_ms": 1_000})
    worker = crew.join()
    assert worker.wait_exit() == 2, worker.tail()
    assert "refuses limits.session_timeout_ms, 1000" in worker.tail()
    code, plan = crew.copying.asked("plan")
    assert code == 4
    assert any("group.min.session.timeout.ms" in found["message"] for found in plan["findings"])
