"""A lane whose flow, or a topic of it, is paused or limited: nothing of it is read, and nothing of it is lost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from replicator.lane.partition import Reason, Waiting
from replicator.lane.throttle import TOPIC_RECORDS_MIN
from replicator.model.partition import Partition
from replicator.state.control_topic import Control
from replicator.state.generation import Generation, LaneAssignment, Phase
from replicator.state.run_settings import NO_SETTINGS, Paused, RateLimit
from tests.replicator.lane.fakes.loads import filled, held, more
from tests.replicator.lane.fakes.world import World

A, B, U = ALL = Partition("t", 0), Partition("t", 1), Partition("u", 0)
BY = Paused(by="ann", at_ms=1, why="the target is moved")


def reasons(world: World) -> dict[Partition, Reason | None]:
    return {at: state.reason if isinstance(state, Waiting) else None for at, state in world.states().items()}


def test_what_is_paused_at_the_start_is_not_read_and_has_no_position_yet() -> None:
    world = World()
    filled(world, 6)
    world.state.current = replace(world.state.current, settings=NO_SETTINGS.pause(["t"], BY))
    assert world.run() is None
    assert [world.copied(at) for at in (A, B)] == [[], []]
    assert len(world.copied(U)) == 6
    assert reasons(world) == {A: Reason.PAUSED, B: Reason.PAUSED, U: None}
    assert world.position(A) == -1
    (said, _) = world.told("waiting")
    assert said["detail"] == "paused by ann (the target is moved)"
    world.state.current = replace(world.state.current, settings=world.state.current.settings.resume([]))
    assert world.run("another") is None
    world.check_exact(held(world))
    assert len(world.copied(A)) == 6


def test_a_pause_while_it_copies_and_what_is_written_meanwhile_is_copied_afterwards() -> None:
    world = World(idle_s_max=200.0)
    filled(world, 6)
    calls = list[int]()

    def pause() -> None:
        world.throttle.take(NO_SETTINGS.pause([], BY), 1)
        world.actions[world.calls + 300] = write

    def write() -> None:
        more(world)
        calls.append(sum(len(world.copied(at)) for at in ALL))
        world.actions[world.calls + 300] = resume

    def resume() -> None:
        assert set(reasons(world).values()) == {Reason.PAUSED}
        calls.append(sum(len(world.copied(at)) for at in ALL))
        world.throttle.take(world.throttle.settings.resume([]), 1)

    world.actions[40] = pause
    assert world.run() is None
    assert calls == [18, 18], "nothing was copied between"
    assert [len(world.copied(at)) for at in ALL] == [9, 9, 9]
    world.check_exact(held(world))
    assert world.trace.count("plane.fence") == 1, "it has kept its fence"
    assert len(world.told("copying")) == 3


def test_a_paused_partition_keeps_its_position_alive() -> None:
    world = World(recommit_ms=60_000, idle_s_max=200.0)
    filled(world, 3)

    def pause() -> None:
        world.throttle.take(NO_SETTINGS.pause([], BY), 1)

    world.actions[40] = pause
    assert world.run() is None
    assert set(reasons(world).values()) == {Reason.PAUSED}
    assert len(world.told("recommitted")) >= 2


def test_what_would_stop_a_paused_partition_once_it_is_resumed_is_told_while_it_is_paused() -> None:
    world = World(idle_s_max=200.0)
    filled(world, 6)

    def pause() -> None:
        world.throttle.take(NO_SETTINGS.pause([], BY), 1)
        world.actions[world.calls + 300] = lose

    def lose() -> None:
        assert set(reasons(world).values()) == {Reason.PAUSED}
        more(world)
        world.source.log(A).delete_before(8)
        world.source.delete("u")
        world.source.create("u")

    world.actions[40] = pause
    assert world.run() is None
    assert world.incidents() == {A: "source_records_gone", U: "source_topic_recreated"}
    assert {it.source: it.name for it in world.occurrences()} == world.incidents(), "to be decided about"
    assert reasons(world) == {A: None, B: Reason.PAUSED, U: None}
    assert [world.position(at) for at in ALL] == [6, 6, 6]
    assert len(world.told("waiting")) == 3, "what stays paused is told once"
    assert world.trace.count("plane.fence") == 1


def test_a_paused_lane_whose_source_does_not_answer_stays_paused() -> None:
    world = World(idle_s_max=200.0)
    filled(world, 6)

    def away() -> None:
        world.source.down = True
        world.actions[world.calls + 100] = back

    def back() -> None:
        assert set(reasons(world).values()) == {Reason.PAUSED}
        world.source.down = False

    def pause() -> None:
        world.throttle.take(NO_SETTINGS.pause([], BY), 1)

    world.actions[40] = pause
    world.actions[300] = away
    assert world.run() is None
    assert set(reasons(world).values()) == {Reason.PAUSED}
    assert world.trace.count("plane.fence") == 1


def test_a_limited_flow_keeps_its_rate_on_average_and_copies_all() -> None:
    world = World(idle_s_max=60.0)
    world.throttle.take(NO_SETTINGS.limit([], RateLimit(records_per_s=2)), 1)
    filled(world, 20)
    began_s = world.time_s
    assert world.run() is None
    world.check_exact(held(world))
    assert [len(world.copied(at)) for at in ALL] == [20, 20, 20]
    committed = [event for event in world.told("committed") if event["records"]]
    assert len(committed) > 20, "in small transactions"
    assert 60 / 2 - 3 <= world.happened_s - began_s <= 60 / 2 + 3


def test_a_lane_of_a_flow_that_others_share_keeps_to_its_part_of_the_rate() -> None:
    world = World(idle_s_max=60.0)
    world.assignment = LaneAssignment(2)
    world.state.current = Control({1: Generation(1, Phase.OPEN, 2, partitions={"t": 2, "u": 1})})
    world.throttle.take(NO_SETTINGS.limit([], RateLimit(records_per_s=4)), 1)
    filled(world, 20)
    began_s = world.time_s
    assert world.run() is None
    assert [len(world.copied(at)) for at in ALL] == [20, 20, 20]
    assert 60 / 2 - 3 <= world.happened_s - began_s <= 60 / 2 + 3


@pytest.mark.tier("default")
def test_a_limited_topic_holds_back_no_other() -> None:
    world = World(idle_s_max=60.0)
    world.throttle.take(NO_SETTINGS.limit(["t"], RateLimit(records_per_s=10)), 1)
    filled(world, 300)
    began_s, seen = world.time_s, list[tuple[int, int]]()
    world.actions[400] = lambda: seen.append((len(world.copied(U)), len(world.copied(A)) + len(world.copied(B))))
    assert world.run() is None
    world.check_exact(held(world))
    assert [len(world.copied(at)) for at in ALL] == [300, 300, 300]
    assert seen[0][0] == 300
    assert 0 < seen[0][1] < 400
    assert world.happened_s - began_s >= (600 - 2 * TOPIC_RECORDS_MIN) / 10
    assert world.told("waiting") == [], "nobody is to blame but the limit"


def test_a_lane_that_waits_for_its_rate_looks_after_all_else() -> None:
    """The first record is worth ten minutes: positions are kept alive, and a stop is heard meanwhile."""
    world = World(idle_s_max=300.0, recommit_ms=60_000)
    world.throttle.take(NO_SETTINGS.limit([], RateLimit(records_per_s=1)), 1)
    filled(world, 1)
    world.throttle.spent(world.time_s, {"t": (600, 0)})
    assert world.run() is None
    assert len(world.told("recommitted")) >= 3
    assert [len(world.copied(at)) for at in ALL] == [0, 0, 0]
