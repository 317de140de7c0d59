"""Records that the target refuses for their timestamps."""

from __future__ import annotations

from tests.replicator.lane.fakes.loads import A, filled
from tests.replicator.lane.fakes.world import World


def test_a_timestamp_that_the_target_refuses_is_copied_once_it_takes_it_again() -> None:
    """Its bounds were lowered and raised again between two listings: no route has changed, and no command is needed."""
    world = World()
    records = filled(world, 6)
    topic = world.target.topics["t.copy"]
    topic.refuses, topic.for_timestamp = frozenset({"t[0]-3"}), True
    topic.configs["message.timestamp.before.max.ms"] = "1000"

    def raise_again() -> None:
        topic.refuses = frozenset()
        topic.configs.clear()

    world.on += [("east.topic_shape", lambda: None), ("east.topic_shape", raise_again)]
    assert world.run() is None
    world.check_exact(records)
    assert (world.position(A), len(world.copied(A))) == (6, 6)
    assert [event["name"] for event in world.told("incident")] == ["target_timestamp_bounds"], "once"
    assert not [it for it in world.occurrences() if it.is_open]
