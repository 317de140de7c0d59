"""Partitions whose leader refuses them, with its disk: they wait, it is said once and why, and the others go on."""

from __future__ import annotations

import pytest

from replicator.lane.partition import Copying, PartitionState, Reason, Waiting
from replicator.model.partition import Partition
from tests.replicator.lane.fakes.loads import A, B, U, each_poll, filled, held, numbered
from tests.replicator.lane.fakes.world import World

pytestmark = pytest.mark.tier("default")

TOLD_S_MAX = 10.0


def told(world: World) -> list[tuple[object, ...]]:
    return [(e["topic"], e["partition"], e["reason"]) for e in world.told("waiting")]


def told_of_a_source(fault: str, for_s: float) -> World:
    """Run a lane of which one source partition has this fault once all is copied, until so long after it is told, while
    there is more to copy: it is told within seconds and once, and all is exact in the end."""
    world = World(idle_s_max=60.0)
    filled(world)
    struck_s: list[float] = []
    told_s: list[float] = []

    def one_poll() -> bool:
        log = world.source.log(B)
        if world.position(B) == 8 and not struck_s:
            setattr(log, fault, True)
            struck_s.append(world.time_s)
            for at in (A, B, U):
                world.source.log(at).put(*numbered("more", 5))
        if world.told("waiting") and not told_s:
            told_s.append(world.time_s)
        if told_s and world.time_s > told_s[0] + for_s:
            setattr(log, fault, False)
        return getattr(log, fault) or not struck_s

    each_poll(world, one_poll)
    assert world.run() is None
    world.check_exact(held(world))
    assert told(world) == [("t", 1, "no_answer")], "once"
    assert told_s[0] - struck_s[0] < TOLD_S_MAX
    assert [(e["topic"], e["partition"]) for e in world.told("copying")] == [("t", 1)]
    return world


def test_one_of_the_source_waits_within_seconds_and_goes_on_when_it_is_served_again() -> None:
    world = told_of_a_source("damaged", 20.0)
    assert {type(state) for state in world.states().values()} == {Copying}


def test_one_of_the_target_waits_within_seconds_and_goes_on_when_it_is_served_again() -> None:
    """It is part of the open transaction, which can end there only when it is back: so all others are held up, and that
    is said."""
    world = World(idle_s_max=60.0)
    filled(world)
    struck_s: list[float] = []
    told_s: list[float] = []
    log = world.target.log(Partition("t.copy", 1))

    def stalled() -> None:
        if not told_s and told(world):
            told_s.append(world.time_s)
        if told_s and world.time_s > told_s[0] + 30.0:
            log.damaged = False
        if log.damaged:
            world.on.append(("plane.stalled", stalled))

    def strike() -> None:
        log.damaged = True
        struck_s.append(world.time_s)
        for at in (A, B, U):
            world.source.log(at).put(*numbered("more", 5))
        world.on.append(("plane.stalled", stalled))

    world.on.append(("step.after_end_txn", strike))
    assert world.run() is None
    world.check_exact(held(world))
    assert told_s[0] - struck_s[0] < TOLD_S_MAX
    assert told(world)[0] == ("t", 1, "no_answer")
    assert sorted(set(told(world)[1:])) == [("t", 0, "target_not_ready"), ("u", 0, "target_not_ready")]
    assert len(told(world)) == 3, "once each"
    assert [world.position(at) for at in (A, B, U)] == [13, 13, 13]
    assert {type(state) for state in world.states().values()} == {Copying}


def test_one_of_the_source_that_has_records_of_which_none_comes_is_read_on_and_said_to_wait() -> None:
    world = told_of_a_source("stuck", 40.0)
    assert [world.position(at) for at in (A, B, U)] == [13, 13, 13]


def test_one_of_the_target_that_acknowledges_nothing_is_said_to_wait() -> None:
    world = World(idle_s_max=60.0)
    filled(world)
    times: list[float] = []
    log = world.target.log(Partition("t.copy", 1))

    def stalled() -> None:
        if len(times) == 1 and told(world):
            times.append(world.time_s)
        if len(times) == 2 and world.time_s > times[1] + 5.0:
            log.stuck = False
        if log.stuck:
            world.on.append(("plane.stalled", stalled))

    def strike() -> None:
        log.stuck = True
        times.append(world.time_s)
        for at in (A, B, U):
            world.source.log(at).put(*numbered("more", 5))
        world.on.append(("plane.stalled", stalled))

    world.on.append(("step.after_end_txn", strike))
    assert world.run() is None
    world.check_exact(held(world))
    assert times[1] - times[0] < TOLD_S_MAX
    assert sorted(told(world)) == [("t", 0, "no_answer"), ("t", 1, "no_answer"), ("u", 0, "no_answer")]
    detail = str(world.told("waiting")[0]["detail"])
    assert "t.copy[1]" in detail
    assert "may be down, or slow, or refuse them" in detail, "which of these it is nobody has said"
    assert len(world.told("copying")) == 3


@pytest.mark.tier("unit")  # the only one that sees it
def test_one_of_the_source_is_said_to_wait_again_once_a_hold_up_of_the_whole_lane_is_over() -> None:
    """It isn't served all the while: that the lane commits records of others again says nothing of it."""
    world = World(idle_s_max=60.0)
    filled(world)
    stuck, target = world.source.log(B), world.target.log(Partition("t.copy", 0))
    held_up_s: list[float] = []
    seen: list[PartitionState] = []

    def stalled() -> None:
        if ("u", 0, "target_not_ready") in told(world):
            target.not_ready = ""
        else:
            world.on.append(("plane.stalled", stalled))

    def hold_up() -> None:
        """Let the marker of this transaction not be written, and the next one wait for it."""
        target.not_ready = "no leader"
        world.source.log(U).put(*numbered("behind", 5))
        world.on.append(("plane.stalled", stalled))

    def one_poll() -> bool:
        if world.position(B) == 8 and not stuck.stuck:
            stuck.stuck = True
            world.source.log(B).put(*numbered("more", 5))
        if ("t", 1, "no_answer") in told(world) and not held_up_s:
            held_up_s.append(world.time_s)
            world.source.log(A).put(*numbered("more", 5))
            world.on.append(("step.before_end_txn", hold_up))
        if not held_up_s or world.time_s < held_up_s[0] + 30.0:
            return True
        seen.append(world.states()[B])
        stuck.stuck = False
        return False

    each_poll(world, one_poll)
    assert world.run() is None
    world.check_exact(held(world))
    assert ("u", 0, "target_not_ready") in told(world), "the whole lane was held up"
    (state,) = seen
    assert isinstance(state, Waiting)
    assert state.reason is Reason.NO_ANSWER
    assert [world.position(at) for at in (A, B, U)] == [13, 13, 13]
    assert {type(it) for it in world.states().values()} == {Copying}
