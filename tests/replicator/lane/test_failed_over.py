"""A lane of whose topics some were failed over: nothing of them is read, their positions stay alive, others go on."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from random import Random

import pytest

from replicator.lane.partition import Reason, Waiting
from replicator.model import checkpoint
from replicator.model.partition import Committed, Partition
from replicator.state.claims import read_claims
from tests.budget import budget
from tests.replicator.lane.fakes.loads import each_poll, filled, held, more
from tests.replicator.lane.fakes.world import World

A, B, U = ALL = Partition("t", 0), Partition("t", 1), Partition("u", 0)


def fail_over(world: World, topics: Collection[str]) -> None:
    """The generation that is open leaves these topics out, as a new one does of which lanes are started."""
    control = world.state.current
    assert control.open is not None
    opened = replace(control.open, failed_over=dict.fromkeys(topics, control.newest))
    world.state.current = replace(control, generations={**control.generations, opened.number: opened})


def reasons(world: World) -> dict[Partition, Reason | None]:
    return {at: state.reason if isinstance(state, Waiting) else None for at, state in world.states().items()}


def counts(world: World) -> dict[Partition, int]:
    return {at: len(world.copied(at)) for at in ALL}


def stored(world: World, at: Partition) -> checkpoint.Evidence:
    return checkpoint.decode(world.target.offsets[Partition(f"{at.topic}.copy", at.partition)].metadata)


def test_nothing_of_a_topic_is_copied_its_position_is_committed_again_and_others_go_on() -> None:
    world = World(recommit_ms=1_000)
    filled(world, 6)
    assert world.run() is None
    more(world)
    fail_over(world, ["t"])
    before, began_ms = world.position(A), world.now_ms()
    each_poll(world, lambda: world.now_ms() < began_ms + 10_000)
    assert world.run("another") is None
    assert counts(world) == {A: 6, B: 6, U: 9}
    assert reasons(world) == {A: Reason.FAILED_OVER, B: Reason.FAILED_OVER, U: None}
    assert world.position(A) == before
    assert stored(world, A).committed_ms >= began_ms + 5_000, "it would expire"
    assert len([told for told in world.told("waiting") if told["reason"] == "failed_over"]) == 2, "each once"
    fail_over(world, [])
    assert world.run("a third") is None
    world.check_exact(held(world))
    assert counts(world) == {A: 9, B: 9, U: 9}


def test_a_topic_that_was_never_copied_gets_no_position_and_no_claim() -> None:
    world = World()
    filled(world, 3)
    fail_over(world, ["t"])
    assert world.run() is None
    assert counts(world) == {A: 0, B: 0, U: 3}
    assert [world.position(at) for at in (A, B)] == [-1, -1]
    assert read_claims(world.target.claims).claims.keys() == {Partition("u.copy", 0)}


def test_whatever_becomes_of_either_side_no_incident_stops_it() -> None:
    """Neither is the flow's to judge: consumers and producers have the target, and the source may be gone."""
    world = World(recommit_ms=1_000)
    filled(world, 3)
    assert world.run() is None
    world.source.create("t", 2)
    world.target.log(Partition("t.copy", 0)).put("somebody else's")
    fail_over(world, ["t"])
    assert world.run("another") is None
    assert world.incidents() == {}
    assert reasons(world)[A] is Reason.FAILED_OVER
    assert world.position(A) == 3


def test_one_whose_source_topic_was_deleted_before_the_start_is_said_to_be_failed_over_and_keeps_its_position() -> None:
    """The source may be gone for good: that is no incident of the flow's then."""
    world = World(recommit_ms=1_000)
    filled(world, 3)
    assert world.run() is None
    world.source.delete("t")
    target, began_ms = Partition("t.copy", 0), world.now_ms()
    world.target.offsets[target] = Committed(3, "somebody else's")
    fail_over(world, ["t"])
    each_poll(world, lambda: world.now_ms() < began_ms + 10_000)
    assert world.run("another") is None
    assert world.incidents() == {}
    assert reasons(world) == {A: Reason.FAILED_OVER, B: Reason.FAILED_OVER, U: None}
    assert world.target.offsets[target] == Committed(3, "somebody else's"), "as it stands"
    assert world.position(B) == 3
    assert stored(world, B).committed_ms >= began_ms + 5_000, "it would expire"


@pytest.mark.tier("default")
@pytest.mark.parametrize("seed", range(budget(20, 500)))
def test_any_series_of_failing_over_and_giving_back_copies_each_record_once(seed: int) -> None:
    draw, world = Random(seed), World()
    filled(world, 3)
    for number in range(draw.randint(2, 6)):
        left_out = {name for name in ("t", "u") if draw.random() < 0.5}
        fail_over(world, left_out)
        before = counts(world)
        assert world.run(f"worker {number}") is None
        for at in ALL:
            if at.topic in left_out:
                assert counts(world)[at] == before[at]
        more(world)
    fail_over(world, [])
    assert world.run("the last") is None
    world.check_exact(held(world))
