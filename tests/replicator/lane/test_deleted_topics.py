"""A source topic that is deleted: its partitions stop or wait, as `deleted_topics` says. Nothing is lost."""

from __future__ import annotations

import pytest

from replicator.lane.partition import Reason, Stopped, Waiting
from replicator.model import checkpoint
from replicator.model.partition import Partition
from tests.replicator.lane.fakes.loads import filled
from tests.replicator.lane.fakes.world import World

A, B, U = Partition("t", 0), Partition("t", 1), Partition("u", 0)
REASONS = {"report": Reason.GONE, "keep": Reason.KEPT}


def world_that(does: str) -> World:
    world = World(idle_s_max=20.0, recommit_ms=10_000)
    world.flow = world.flow.model_copy(update={"deleted_topics": does})
    filled(world, 6)
    return world


def waits(world: World) -> list[object]:
    return [told["reason"] for told in world.told("waiting") if told["topic"] == "u"]


@pytest.mark.parametrize("does", ["report", "keep"])
def test_one_that_goes_while_it_is_copied_waits_and_its_position_is_kept(does: str) -> None:
    world = world_that(does)
    world.actions[60] = lambda: world.source.delete("u")
    assert world.run() is None
    state = world.states()[U]
    assert isinstance(state, Waiting)
    assert state.reason is REASONS[does]
    assert waits(world) == ["source_topic_missing", REASONS[does]], "told once each"
    assert world.incidents() == {}
    assert world.position(U) == 6
    again = checkpoint.decode(world.target.offsets[Partition("u.copy", 0)].metadata)
    assert again.committed_ms > 1_010_000, "it is kept alive"
    assert [len(world.copied(at)) for at in (A, B, U)] == [6, 6, 6]


@pytest.mark.parametrize("does", ["stop", "report", "keep"])
def test_one_that_went_before_the_start_is_told_at_once(does: str) -> None:
    world = world_that(does)
    world.run()
    world.source.delete("u")
    world.source.log(A).put("more")
    assert world.run("another") is None
    state = world.states()[U]
    if does == "stop":
        assert isinstance(state, Stopped)
        assert world.incidents() == {U: "source_topic_deleted"}
    else:
        assert isinstance(state, Waiting)
        assert waits(world) == [REASONS[does]]
    assert len(world.copied(A)) == 7
    assert world.position(U) == 6


@pytest.mark.parametrize("does", ["report", "keep"])
def test_one_that_comes_back_is_another_one_and_stops(does: str) -> None:
    world = world_that(does)
    world.run()
    world.source.delete("u")
    world.run("another")
    world.source.create("u")
    world.source.log(U).put(*(f"new-{number}" for number in range(9)))
    world.run("a third")
    assert world.incidents()[U] == "source_topic_recreated"
    assert len(world.copied(U)) == 6
