"""What an operator has decided about a partition that has no position yet: where it begins."""

from __future__ import annotations

from replicator.model.commands import Command
from tests.replicator.lane.fakes.loads import filled, numbered
from tests.replicator.lane.fakes.world import World
from tests.replicator.lane.test_decisions import A, closed, lose


def test_a_partition_without_position_begins_where_it_was_decided() -> None:
    world = World("latest")
    filled(world, 6)
    world.open_flow()
    lose(world, 8)
    world.run()
    it = world.occurrences()[0]
    assert (it.name, it.offset, it.end) == ("source_records_gone", 6, 8)
    world.resolve(Command.SKIP, A)
    world.run("another")
    assert world.copied(A) == ["later-8", "later-9"]
    assert closed(world).moved == (6, 8)


def without_position() -> World:
    """The flow begins at the end, where two records are gone before its partition is admitted."""
    world = World("latest", idle_s_max=2.0)
    filled(world, 6)
    world.open_flow()
    lose(world, 8)
    world.run()
    return world


def test_without_position_more_that_is_gone_by_now_needs_a_decision_of_its_own() -> None:
    world = without_position()
    world.resolve(Command.SKIP, A)
    lose(world, 9)
    world.run("another")
    assert world.copied(A) == []
    assert closed(world).moved is None, "nothing is said to be left out that isn't"
    (again,) = [it for it in world.occurrences() if it.is_open]
    assert (again.offset, again.end) == (6, 9), "from where the flow begins"
    assert len(world.told("decision_outdated")) == 1
    world.resolve(Command.SKIP, A)
    world.run("a third")
    assert world.copied(A) == ["later-9"]
    assert [it.moved for it in world.occurrences() if it.moved is not None] == [(6, 9)]


def test_without_position_nothing_is_skipped_in_a_topic_that_was_made_again() -> None:
    world = without_position()
    world.resolve(Command.SKIP, A)
    world.source.delete("t")
    world.source.create("t", 2)
    world.source.log(A).put(*numbered("new", 12))
    world.run("another")
    assert world.copied(A) == numbered("new", 12)
    assert all(it.moved is None for it in world.occurrences())


def test_without_position_nothing_is_skipped_in_a_topic_that_is_made_again_under_the_running_lane() -> None:
    """The last discovery knows the topic that was, and so does who decides."""
    world = without_position()

    def recreate() -> None:
        world.source.delete("t")
        world.source.create("t", 2)
        world.source.log(A).put(*numbered("new", 12))
        world.resolve(Command.SKIP, A)

    world.actions[world.calls + 40] = recreate
    world.run("another")
    assert not world.actions, "it was made again while the lane ran"
    assert all(it.moved is None for it in world.occurrences())
    world.run("a third")
    assert world.copied(A) == numbered("new", 12)
