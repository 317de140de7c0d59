"""The offset map that ranges and repairs write, beside what they have copied, on simulated clusters."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from replicator.jobs.range_policy import RangePolicy
from replicator.model.errors import UnknownOutcome
from tests.replicator.jobs import test_repair_policy
from tests.replicator.jobs.test_repair_policy import AT, LOST, RECORDS, copied, damage, repair, values
from tests.replicator.lane.fakes.map_truth import check_map, sections_of
from tests.replicator.lane.fakes.world import World


@pytest.fixture(autouse=True)
def mapped(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(test_repair_policy, "World", partial(World, maps=True))
    return iter(())


def test_a_range_is_mapped_and_the_next_one_goes_on() -> None:
    world = World(maps=True)
    world.source.log(AT).put(*(f"r{number}" for number in range(RECORDS)))
    for end in (7, RECORDS):
        assert world.run(policy=RangePolicy({}, {AT: end})) is None
        found = check_map(world, AT)
        assert (found.begin, found.passed, list(found.unmapped)) == (0, end, [])
    assert [section.base for section in sections_of(world, AT)].count(True) == 1


@pytest.mark.parametrize("killed_at", ["", "plane.send_positions", "plane.end", "plane.end_answered"])
def test_what_a_repair_copies_again_has_its_new_place(killed_at: str) -> None:
    world = copied()
    if killed_at:

        def fail() -> None:
            raise UnknownOutcome("away")

        world.on.append(("step.before_flush", lambda: world.on.append((killed_at, fail))))
    _, error = repair(world, damage(world))
    assert error is None
    assert world.copied(AT) == values()
    found = check_map(world, AT)
    assert (found.begin, found.passed, list(found.unmapped)) == (0, RECORDS, [])
    behind = max(run.place for run in found.by_source if run.first not in LOST)
    places = [found.by_source.place(offset) for offset in LOST]
    assert all(place is not None and place > behind for place in places)
    repairs = [section for section in sections_of(world, AT) if section.repair]
    assert sum(section.records for section in repairs) == len(LOST)
    assert not any(section.base for section in repairs)


def test_behind_a_repair_the_newest_block_ends_at_the_position() -> None:
    world = copied()
    assert repair(world, damage(world))[1] is None
    world.source.log(AT).put("one more")
    test_repair_policy.under(world, 3)
    assert repair(world, test_repair_policy.damage(world, (), RECORDS))[1] is None
    assert not [event for event in world.told("incident") if event["name"] == "map_lost"]
