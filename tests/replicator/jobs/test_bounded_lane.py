"""A lane with an end, in a thread of its own, on simulated clusters."""

from __future__ import annotations

import threading
from collections.abc import MutableMapping
from dataclasses import replace
from typing import Any

import pytest
import structlog

from replicator.jobs import bounded_lane
from replicator.jobs.bounded_lane import BoundedLane
from replicator.jobs.range_policy import RangePolicy
from replicator.lane.driver import Services
from replicator.model.errors import Incident, NotAllowed, Retriable, TakenOver
from replicator.model.partition import Partition
from tests.replicator.jobs.test_range_policy import AT, RECORDS, plan, ranged, upto
from tests.replicator.lane.fakes.world import World

PATIENCE_S = 0.2


def services(world: World) -> Services:
    def note(logger: object, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        world.events.append(dict(event))
        raise structlog.DropEvent

    log = structlog.wrap_logger(None, processors=[note], wrapper_class=structlog.BoundLogger)
    return Services(world._connect, world, lambda step: world.call(f"step.{step}"), log)


def lane(world: World, policy: RangePolicy, at: Partition = AT) -> BoundedLane:
    return BoundedLane(plan(world), policy, services(world), at, PATIENCE_S)


def test_it_returns_when_the_range_is_done() -> None:
    world = ranged()
    made = lane(world, upto(12))
    made.run()
    assert (made.position, world.position(AT)) == (12, 12)
    assert world.copied(AT) == [f"r{number}" for number in range(12)]


def test_the_incident_that_stops_its_partition_is_raised_and_told_once() -> None:
    world = ranged()
    lane(world, upto(5)).run()
    world.source.log(AT).delete_before(9)
    with pytest.raises(Incident, match="source_records_gone"):
        lane(world, upto(RECORDS)).run()
    assert [event["name"] for event in world.told("incident")] == ["source_records_gone"]


def test_an_incident_that_ends_the_whole_lane_is_told_too() -> None:
    world = ranged()
    world.state.lost = True
    with pytest.raises(Incident, match="control_topic_lost"):
        lane(world, upto(5)).run()
    assert [event["name"] for event in world.told("incident")] == ["control_topic_lost"]


def test_asked_to_stop_it_finishes_what_is_open() -> None:
    world = ranged()
    made = lane(world, upto(RECORDS))
    world.on.append(("step.after_end_txn", made.stop))
    made.run()
    assert world.copied(AT) == [f"r{number}" for number in range(world.position(AT))]


def test_it_ends_at_the_time_that_it_is_given() -> None:
    world = ranged()
    made = lane(world, upto(RECORDS))
    made.run(until_s=0.0)
    assert world.copied(AT) == [f"r{number}" for number in range(max(0, world.position(AT)))]


@pytest.mark.tier("default")
def test_without_any_commit_for_too_long_it_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_lane, "PROGRESS_CHECKED_S", 0.05)
    world = ranged()
    ended = threading.Event()

    def never(*_: object) -> None:
        ended.wait(1)

    world.on.append(("plane.flush", never))
    with pytest.raises(Retriable, match="no commit"):
        lane(world, upto(RECORDS)).run()
    ended.set()


def test_a_right_that_is_missing_and_another_attempt_are_told_as_such() -> None:
    world = ranged()
    world.target.denied["t.copy"] = {"Write"}
    with pytest.raises(NotAllowed, match="Write"):
        lane(world, upto(5)).run()
    world = ranged()
    world.on.append(("step.before_end_txn", lambda: lane_of_another(world)))
    with pytest.raises(TakenOver):
        lane(world, upto(5)).run()
    assert world.copied(AT) == [f"r{number}" for number in range(5)]


def lane_of_another(world: World) -> None:
    BoundedLane(replace(plan(world), owner="other"), upto(5), services(world), AT, PATIENCE_S).run()


@pytest.mark.tier("default")
def test_a_lane_that_commits_nothing_asks_whether_its_generation_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_lane, "PROGRESS_CHECKED_S", 0.02)
    world = ranged()
    over, asked = threading.Event(), []

    def closed() -> None:
        asked.append(world.position(AT))
        if len(asked) == 2:
            raise TakenOver("another generation is open")

    def wait() -> None:
        over.wait(5)

    world.on.append(("plane.flush", wait))
    made = BoundedLane(plan(world), upto(RECORDS), services(world), AT, 60.0, closed)
    world.flow = world.flow.model_copy(update={"limits": world.flow.limits.model_copy(update={"stop_timeout_ms": 1})})
    with pytest.raises(TakenOver, match="another generation is open"):
        made.run()
    over.set()
    assert len(asked) == 2


def test_a_lane_that_has_just_committed_does_not_ask() -> None:
    asked: list[int] = []
    made = BoundedLane(plan(world := ranged()), upto(12), services(world), AT, PATIENCE_S, lambda: asked.append(1))
    made.progress.on_committed({}, {}, 0.1)
    made._check_progress()
    assert asked == []
    made.progress.moved_s -= bounded_lane.PROGRESS_CHECKED_S
    made._patience_s = 60.0
    made._check_progress()
    assert asked == [1]
