"""What the offset map says of records that operators have left out."""

from __future__ import annotations

from replicator.model.commands import Command
from tests.replicator.lane.fakes.loads import A, filled, numbered
from tests.replicator.lane.fakes.map_truth import check_map, sections_of
from tests.replicator.lane.fakes.world import World
from tests.replicator.lane.test_decisions import losing


def test_what_a_decision_leaves_out_is_a_gap_in_the_map() -> None:
    world = losing(World(maps=True, idle_s_max=2.0))
    world.run()
    world.resolve(Command.SKIP, A)
    assert world.run("another") is None
    assert world.copied(A) == [*numbered("t[0]", 6), "later-8", "later-9"]
    gap = next(section for section in sections_of(world, A) if section.gap)
    assert (gap.before, gap.after, gap.base) == (6, 8, False)
    found = check_map(world, A)
    assert (found.said(6), found.said(7), list(found.unmapped), found.passed) == ("gap", "gap", [], 10)
    assert world.run("a third") is None
    assert not any(event["name"] == "map_lost" for event in world.told("incident"))


def test_a_record_that_is_set_aside_is_a_gap_in_the_map() -> None:
    world = World(maps=True, idle_s_max=2.0)
    filled(world, 6)
    world.target.create("__eos.f.aside")
    world.target.topics["t.copy"].refuses = frozenset({"t[0]-3"})
    world.run()
    world.resolve(Command.SET_ASIDE, A)
    assert world.run("another") is None
    assert world.copied(A) == [f"t[0]-{number}" for number in (0, 1, 2, 4, 5)]
    found = check_map(world, A)
    assert (found.said(3), found.by_source.place(3), list(found.unmapped), found.passed) == ("gap", None, [], 6)
