"""A target partition without a leader, or with too few replicas in sync: it waits, and the others go on."""

from __future__ import annotations

import pytest

from replicator.lane.partition import Copying, Waiting
from replicator.model.partition import Partition
from tests.replicator.lane.fakes.loads import A, B, U, filled, held, numbered
from tests.replicator.lane.fakes.world import World

LEADERLESS = "t.copy[1] has no leader"


def unready(world: World, at: Partition = B, why: str = LEADERLESS) -> None:
    world.target.log(Partition(f"{at.topic}.copy", at.partition)).not_ready = why


def ready(world: World, at: Partition = B) -> None:
    unready(world, at, "")


def reasons(world: World) -> dict[Partition, str]:
    return {at: state.reason.value for at, state in world.states().items() if isinstance(state, Waiting)}


def test_it_gets_no_record_and_the_others_go_on() -> None:
    world = World()
    records = filled(world)
    unready(world)
    assert world.run() is None
    world.check_exact(records)
    assert (world.position(A), world.position(B), world.position(U)) == (8, -1, 8)
    assert reasons(world) == {B: "target_not_ready"}
    assert [(e["topic"], e["partition"], e["detail"]) for e in world.told("waiting")] == [("t", 1, LEADERLESS)]
    assert not world.told("aborted")


def test_it_goes_on_by_itself_when_it_is_ready_again() -> None:
    world = World()
    records = filled(world)
    unready(world)
    world.on.append(("step.after_end_txn", lambda: ready(world)))
    assert world.run() is None
    world.check_exact(records)
    assert [world.position(at) for at in (A, B, U)] == [8, 8, 8]
    assert [(e["topic"], e["partition"]) for e in world.told("copying")] == [("t", 1)]


def test_one_that_goes_away_between_transactions_is_left_out_of_the_next() -> None:
    world = World()
    filled(world)

    def between() -> None:
        unready(world)
        world.time_s += 1.0
        for at in (A, B, U):
            world.source.log(at).put(*numbered("more", 5))

    world.on.append(("step.after_end_txn", between))
    assert world.run() is None
    world.check_exact(held(world))
    assert world.position(A) == world.position(U) == 13
    assert reasons(world) == {B: "target_not_ready"}


def in_the_middle(world: World) -> None:
    """B goes away when its first records of the transaction have been written."""

    def go_away() -> None:
        unready(world)
        world.source.log(B).put(*numbered("late", 3))

    world.on.append(("step.mid_batch", go_away))


def test_one_that_goes_away_in_the_middle_is_aborted_and_left_out_as_soon_as_it_is_known() -> None:
    """Its marker can't be written, so nothing else is committed; that, and what holds it up, is told of all."""
    world = World(idle_s_max=200.0)
    filled(world, 20)
    in_the_middle(world)
    told: list[dict[Partition, str]] = []

    def stalled() -> None:
        told.append(reasons(world))
        if len(told) == 6:
            ready(world)
        else:
            world.on.append(("plane.stalled", stalled))

    world.on.append(("plane.stalled", stalled))
    assert world.run() is None
    world.check_exact(held(world))
    aborted = world.told("aborted")
    assert [(e["kind"], e["reason"]) for e in aborted[:1]] == [("TargetNotReady", LEADERLESS)]
    assert told[-1] == dict.fromkeys((A, B, U), "target_not_ready")
    why = next(e for e in world.told("waiting") if e["topic"] == "u")
    assert LEADERLESS in str(why["detail"])
    assert told[0] == {}
    assert [world.position(at) for at in (A, B, U)] == [20, 23, 20]
    assert {type(state) for state in world.states().values()} == {Copying}


def test_a_lane_that_cannot_be_fenced_says_which_partition_may_be_why() -> None:
    """Its predecessor died within a transaction, which ends only when the marker there is written."""
    world = World(idle_s_max=60.0)
    filled(world)
    world.run()
    for at in (A, B, U):
        world.source.log(at).put("next")
    other = world.target.transactions["eos.f.1.0"]
    other.added.append(world.target.log(Partition("t.copy", 1)))
    unready(world)
    fences: list[dict[Partition, str]] = []

    def fence() -> None:
        fences.append(reasons(world))
        if len(fences) < 4:
            world.on.append(("plane.fence", fence))
        else:
            ready(world)

    world.on.append(("plane.fence", fence))
    assert world.run() is None
    assert fences[1] == dict.fromkeys((A, B, U), "target_not_ready")
    assert [world.position(at) for at in (A, B, U)] == [9, 9, 9]


@pytest.mark.parametrize("at", [A, B, U])
def test_a_new_partition_is_claimed_only_when_it_can_be_written(at: Partition) -> None:
    world = World()
    records = filled(world)
    unready(world, at)
    world.run()
    ready(world, at)
    assert world.run() is None
    world.check_exact(records)
    assert {world.position(each) for each in (A, B, U)} == {8}
