"""The leader of one target partition can't be reached, and the cluster takes it for healthy: that partition waits, the
others are copied, and the session goes on."""

from __future__ import annotations

import pytest

from replicator.model.partition import Partition
from tests.replicator.lane.fakes.loads import A, B, U, each_poll, filled, held, more
from tests.replicator.lane.fakes.world import World

pytestmark = pytest.mark.tier("default")

COPY = Partition("u.copy", 0)


def test_a_partition_that_can_not_be_reached_for_long_waits_alone() -> None:
    world = World(idle_s_max=1e9)
    filled(world)
    world.target.log(COPY).unreachable = True
    told: list[tuple[object, ...]] = []

    def one_poll() -> bool:
        if world.time_s > 1_030 and world.source.log(A).end == 8:
            more(world)
        if world.time_s <= 1_060:
            return True
        told.extend((e["topic"], e["partition"], e["reason"]) for e in world.told("waiting"))
        assert [world.position(at) for at in (A, B, U)] == [11, 11, -1]
        world.target.log(COPY).unreachable, world.idle_s_max = False, 60
        return False

    each_poll(world, one_poll)
    assert world.run() is None
    assert told == [("u", 0, "no_answer")], "once"
    assert world.trace.count("plane.fence") == 1
    assert world.position(U) == 11
    world.check_exact(held(world))


def test_the_copy_of_a_deleted_topic_that_can_not_be_reached_keeps_nobody_from_starting() -> None:
    """Its position is read, and committed again, once it can be."""
    world = World(recommit_ms=5_000)
    records = filled(world)
    world.run()
    world.source.delete("u")
    world.target.log(COPY).unreachable = True
    before = world.target.offsets[COPY]
    world.source.log(A).put("more")
    kept: list[bool] = []

    def one_poll() -> bool:
        if world.position(A) == 9 and world.target.log(COPY).unreachable:
            kept.append(world.target.offsets[COPY] == before)
            world.target.log(COPY).unreachable = False
        return not kept or world.target.offsets[COPY] == before

    each_poll(world, one_poll)
    assert world.run("second") is None
    assert kept == [True]
    assert world.copied(A) == [*(value for _, value in records[A]), "more"]
    assert world.position(U) == 8
    assert world.target.offsets[COPY] != before
