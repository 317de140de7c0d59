"""Who owns positions: a predecessor's name that could not be overwritten yet is no successor's."""

from __future__ import annotations

import pytest

from replicator.model.checkpoint import NOBODY
from tests.replicator.lane.fakes.loads import A, B, U, each_poll, filled
from tests.replicator.lane.fakes.world import World


class Killed(BaseException):
    """The process is gone."""


@pytest.fixture
def world() -> World:
    """A worker has copied everything, and was killed: positions have its name."""
    made = World(recommit_ms=3_600_000, idle_s_max=400.0)
    filled(made, 3)

    def look() -> bool:
        if all(made.position(at) == 3 for at in (A, B, U)):
            raise Killed
        return True

    each_poll(made, look)
    with pytest.raises(Killed):
        made.run("old")
    made.on.clear()
    return made


@pytest.mark.parametrize("back_s", [20.0, None], ids=["it comes back", "it stays missing"])
def test_a_right_is_missing_at_the_start(world: World, back_s: float | None) -> None:
    """Without Read on a target topic its positions can't be committed again, with the new name."""
    world.target.denied["t.copy"] = {"Read"}
    began_s = world.time_s
    gone_on: list[bool] = []

    def look() -> bool:
        past_s = world.time_s - began_s
        if back_s is not None and past_s > back_s:
            world.target.denied.clear()
        if past_s > 90 and not gone_on:
            gone_on.append(True)
            world.source.log(U).put("later")
        return past_s < 120

    each_poll(world, look)
    assert world.run("new") is None
    assert world.copied(U)[-1] == "later"
    assert world.owner(A) == ("old" if back_s is None else NOBODY)


def test_a_broker_that_comes_up_denies_a_topic_for_a_moment(world: World) -> None:
    began_s = world.time_s
    plan = world.plan("new")
    kept = world.target.topics.pop("u.copy")

    def look() -> bool:
        if world.time_s > began_s + 1:
            world.target.topics["u.copy"] = kept
        return world.time_s < began_s + 20

    each_poll(world, look)
    assert world.run("new", plan=plan) is None
    assert not world.incidents()
