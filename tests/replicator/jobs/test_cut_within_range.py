"""Rounds whose source's log is cut while a range is read: an incident only where records are gone that were copied."""

from __future__ import annotations

import pytest

from replicator.jobs.range_policy import RangePolicy
from tests.replicator.lane.fakes.loads import A, numbered
from tests.replicator.lane.fakes.world import World
from tests.replicator.lane.test_truncated import read_ahead_and_cut


def test_a_cut_of_what_was_only_read_ahead_stops_nothing() -> None:
    world = read_ahead_and_cut(9)
    _, tell = world.on.pop()
    assert world.run() is None
    world.source.log(A).put(*numbered("more", 2), epoch=0)
    world.on.append(("plane.seek", tell))
    assert world.run("rounds", RangePolicy({}, {A: 8}, decides=True)) is None
    assert world.incidents() == {}
    assert world.occurrences() == []
    assert world.copied(A)[6:] == numbered("more", 2)


def cut_within_a_range(epoch: int, end: int) -> tuple[World, RangePolicy]:
    """The position is 6 and a range of rounds goes up to 9; its source is cut while it is read."""
    world, policy = World(idle_s_max=2.0), RangePolicy({}, {A: 9}, decides=True)
    world.source.log(A).put(*numbered("t[0]", 6), epoch=epoch)
    assert world.run() is None
    world.source.log(A).put(*numbered("newer", 3), epoch=epoch)
    world.on.append(("plane.seek", lambda: world.source.log(A).truncate(end)))
    world.run("rounds", policy)
    return world, policy


@pytest.mark.parametrize("epoch", [-1, 0])
@pytest.mark.parametrize("end", [6, 7])
def test_a_source_that_is_cut_above_the_position_ends_a_range_and_stops_nobody(epoch: int, end: int) -> None:
    world, policy = cut_within_a_range(epoch, end)
    assert policy.ended_early[A].endswith(f"the source now ends at {end}")
    assert (world.position(A), world.occurrences(), world.incidents()) == (end, [], {})
    world.source.log(A).put(*numbered("newest", 5), epoch=2 * epoch + 1)
    assert world.run("another") is None
    assert world.copied(A) == [*numbered("t[0]", 6), *numbered("newer", end - 6), *numbered("newest", 5)]


def test_a_source_that_is_cut_below_the_position_while_a_range_is_read_stops_it() -> None:
    world, policy = cut_within_a_range(-1, 4)
    assert policy.ended_early == {}
    (it,) = world.occurrences()
    assert (it.name, it.offset, it.is_open) == ("source_truncated", 6, True)
