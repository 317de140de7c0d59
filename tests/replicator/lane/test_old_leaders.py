"""A source whose old leader answers for a log that it doesn't lead any more: that is no truncation."""

from __future__ import annotations

from replicator.model.partition import LogEnds
from tests.replicator.lane.fakes.loads import A, B, numbered
from tests.replicator.lane.fakes.world import World


def test_an_old_leader_whose_log_ends_before_the_position_is_not_believed() -> None:
    """A broker that is cut off from the controllers names it, with the epoch of before; another one is asked next."""
    world = World(idle_s_max=20.0)
    for at in (A, B):
        world.source.log(at).put(*numbered(str(at), 6), epoch=2)
    assert world.run() is None
    for at in (A, B):
        world.source.log(at).put(*numbered("on", 1), epoch=2)
    world.source.by_old_leaders[A] = LogEnds(world.source.topics[A.topic].topic_id, 0, 4, 4, leader_epoch=1)
    assert world.run("another") is None
    assert world.occurrences() == []
    assert [world.copied(at) for at in (A, B)] == [[*numbered(str(at), 6), *numbered("on", 1)] for at in (A, B)]
