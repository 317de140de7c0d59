"""What the offset map says of records that operators have left out."""

from __future__ import annotations

import pytest

from replicator.model.commands import Command
from tests.replicator.lane.fakes.loads import A, filled, numbered
from tests.replicator.lane.fakes.map_truth import check_map, map_of, sections_of, target_of
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


@pytest.mark.parametrize("adopted", [0, 4, 6, 8])
def test_what_an_adoption_copies_again_stands_twice_and_nothing_is_called_truncated(adopted: int) -> None:
    world = World(maps=True, idle_s_max=2.0)
    filled(world, 6)
    assert world.run() is None
    before = {offset: map_of(world, A).by_source.place(offset) for offset in range(6)}
    del world.target.offsets[target_of(A)]
    world.source.log(A).put("on-6", "on-7", "on-8")
    world.run("another")
    world.resolve(Command.ADOPT, A, adopted=adopted)
    assert world.run("a third") is None
    again = [section for section in sections_of(world, A) if section.base][-1]
    assert again.before == adopted
    assert again.count == again.records == 9 - adopted, "counted anew"
    found = map_of(world, A)
    assert list(found.truncated.spans) == []
    kept = {offset: before[offset] for offset in range(min(adopted, 6))}
    assert {offset: found.by_source.place(offset) for offset in kept} == kept
    behind = [found.by_source.place(offset) for offset in range(adopted, 9)]
    assert behind == list(range(again.first_target, again.first_target + 9 - adopted))
    assert [found.said(offset) for offset in range(6, adopted)] == ["unmapped"] * max(0, adopted - 6)
