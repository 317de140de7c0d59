"""Partitions that the flow's limit holds back take turns, and are judged meanwhile."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from replicator.lane.flow_turns import TURN_S
from replicator.model.partition import Partition
from replicator.state.run_settings import NO_SETTINGS, RateLimit
from tests.replicator.lane.fakes.loads import filled, held
from tests.replicator.lane.fakes.world import World

A, B, U = ALL = Partition("t", 0), Partition("t", 1), Partition("u", 0)


def limited(rate: int, records: int, topics: tuple[str, ...] = (), idle_s_max: float = 60.0) -> World:
    world = World(idle_s_max=idle_s_max)
    world.throttle.take(NO_SETTINGS.limit(list(topics), RateLimit(records_per_s=rate)), 1)
    filled(world, records)
    return world


def at_time(world: World, time_s: float, act: Callable[[], object]) -> None:
    """Do it once so many seconds from now have passed; before the world runs."""
    due_s, advance, left = world.time_s + time_s, world.advance, [act]

    def advancing(by_s: float) -> None:
        advance(by_s)
        if world.time_s >= due_s and left:
            left.pop()()

    world.advance = advancing  # type: ignore[method-assign]


def test_partitions_under_the_flow_s_limit_take_turns() -> None:
    """The fake plane returns what it has of the first two before the third one."""
    world, seen = limited(4, 100), list[list[int]]()
    began_s = world.time_s
    at_time(world, 3 * TURN_S + 3, lambda: seen.append([len(world.copied(at)) for at in ALL]))
    assert world.run() is None
    world.check_exact(held(world))
    assert min(seen[0]) >= 4 * TURN_S / 4, "each had a turn by then"
    assert [len(world.copied(at)) for at in ALL] == [100, 100, 100]
    assert 300 / 4 - 5 <= world.happened_s - began_s <= 300 / 4 + 5, "turns cost nothing of the rate"


def test_one_that_alone_has_anything_keeps_its_rate() -> None:
    world = limited(4, 0)
    world.source.log(A).put(*(f"a-{number}" for number in range(120)))
    began_s = world.time_s
    assert world.run() is None
    world.check_exact(held(world))
    assert 120 / 4 - 5 <= world.happened_s - began_s <= 120 / 4 + 3


def test_a_limit_that_is_not_reached_has_nothing_read_anew() -> None:
    world = limited(10_000, 100)
    assert world.run() is None
    assert world.trace.count("plane.seek") == 1


def test_without_the_limit_all_are_read_again() -> None:
    world = limited(4, 200)
    at_time(world, TURN_S + 2, lambda: world.throttle.take(world.throttle.settings.limit([], None), 1))
    began_s = world.time_s
    assert world.run() is None
    world.check_exact(held(world))
    assert world.happened_s - began_s < TURN_S + 5


@pytest.mark.parametrize("topics", [(), ("t",)])
def test_what_a_limit_holds_back_is_judged_meanwhile(topics: tuple[str, ...]) -> None:
    """B isn't read for more than a discovery interval: only a look at both clusters tells what it has lost."""
    world, told = limited(1, 100, topics, 400.0), list[dict[Partition, str]]()
    world.throttle.spent(world.time_s, {"t": (600, 0)})  # ten minutes of its rate

    interval_s = world.flow.limits.discovery_interval_ms / 1000
    at_time(world, 5.0, lambda: world.source.log(B).delete_before(50))
    at_time(world, 5.0 + 2 * interval_s, lambda: told.append(world.incidents()))
    world.run()
    assert told == [{B: "source_records_gone"}]
    assert {it.source: it.name for it in world.occurrences()} == {B: "source_records_gone"}, "to be decided about"
