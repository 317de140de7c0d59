"""A source partition that nobody leads while the lane runs: it waits, and the others go on."""

from __future__ import annotations

from replicator.lane.partition import Copying, Waiting
from tests.replicator.lane.fakes.loads import A, B, U, each_poll, filled, held, numbered
from tests.replicator.lane.fakes.world import World

WAITING = [("t", 1, "no_answer", "cluster 'west': t[1] has no leader")]


def told(world: World) -> list[tuple[object, ...]]:
    return [(e["topic"], e["partition"], e["reason"], e["detail"]) for e in world.told("waiting")]


def test_a_partition_that_loses_its_leader_waits_within_seconds_and_is_told_of_once() -> None:
    world = World(idle_s_max=60.0)
    filled(world)

    def lost() -> None:
        world.source.log(B).leaderless = True
        for at in (A, B, U):
            world.source.log(at).put(*numbered("more", 5))

    world.on.append(("step.after_end_txn", lost))
    assert world.run() is None
    assert [world.position(at) for at in (A, B, U)] == [13, 8, 13]
    assert told(world) == WAITING
    state = world.states()[B]
    assert isinstance(state, Waiting)
    assert not world.told("copying")
    assert not world.told("aborted")


def test_one_that_was_at_its_end_waits_too_and_goes_on_when_it_is_led_again() -> None:
    world = World(idle_s_max=60.0)
    filled(world)
    seen: list[bool] = []

    def one_poll() -> bool:
        log = world.source.log(B)
        if world.position(B) == 8 and not seen:
            log.leaderless = True
        if log.leaderless and isinstance(world.states().get(B), Waiting):
            seen.append(True)
            log.leaderless = len(seen) < 20
            if not log.leaderless:
                log.put("again")
        return len(seen) < 20

    each_poll(world, one_poll)
    assert world.run() is None
    world.check_exact(held(world))
    assert told(world) == WAITING
    assert [(e["topic"], e["partition"]) for e in world.told("copying")] == [("t", 1)]
    assert {type(state) for state in world.states().values()} == {Copying}
