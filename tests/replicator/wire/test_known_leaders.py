"""Who leads partitions isn't looked up where that was told just now."""

from __future__ import annotations

import pytest

from replicator.kafka.offset_questions import ListedOffset
from replicator.kafka.topic_questions import within
from replicator.model.partition import Partition
from replicator.wire import known_leaders
from tests.replicator.wire.test_offsets import LIMIT_S, TOPICS, scene

pytestmark = pytest.mark.tier("default")  # brokers are asked again after a pause


def test_who_was_told_of_the_topics_just_now_does_not_look_up_their_leaders() -> None:
    """The next question is one round trip. What it doesn't find with those leaders is looked up."""
    with scene() as world:
        within(world.asking.describe(TOPICS), LIMIT_S)
        looked_up = sum(world.requests(number, "metadata") for number in range(3))
        (found,), _ = world.ask()
        assert found == {at: ListedOffset(end, -1) for at, end in world.logs.ends.items()}
        assert sum(world.requests(number, "metadata") for number in range(3)) == looked_up
        within(world.asking.describe(TOPICS), LIMIT_S)
        moved = world.of(1)
        world.logs.leaders |= dict.fromkeys(moved, 2)
        (found,), _ = world.ask()
        assert found == {at: ListedOffset(end, -1) for at, end in world.logs.ends.items()}
        assert sum(world.requests(number, "metadata") for number in range(3)) == looked_up + 2


def test_what_was_told_some_time_ago_is_looked_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what was told to have no leader, or not to be there."""
    with scene() as world:
        world.logs.leaders[Partition("a", 0)] = -1
        within(world.asking.describe(TOPICS), LIMIT_S)
        world.logs.leaders[Partition("a", 0)] = 0
        (found,), _ = world.ask()
        assert all(isinstance(it, ListedOffset) for it in found.values())
        monkeypatch.setattr(known_leaders, "KNOWN_S", 0.0)
        within(world.asking.describe(TOPICS), LIMIT_S)
        before = sum(world.requests(number, "metadata") for number in range(3))
        world.ask()
        assert sum(world.requests(number, "metadata") for number in range(3)) == before + 1


def test_connections_to_leaders_are_made_beforehand() -> None:
    with scene() as world:
        world.asking.connect(TOPICS)
        made = sum(world.requests(number, "api_versions") for number in range(3))
        assert all(world.requests(number, "api_versions") for number in range(3))
        world.ask()
        assert sum(world.requests(number, "api_versions") for number in range(3)) == made
