"""A leader that doesn't answer is an error of what it leads, also where nothing else was asked for; a cluster that
tells of no topic is an error of the question."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import pytest

from replicator.kafka.clusters import KafkaClusterQuestions
from replicator.model.errors import Unreachable
from replicator.model.partition import LogEnds, Partition
from replicator.wire import offsets
from tests.replicator.flow.fakes import flow
from tests.replicator.wire.test_offsets import Scene, scene

pytestmark = pytest.mark.tier("default")


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    """Two brokers: one closes each connection that asks it for offsets."""
    monkeypatch.setattr(offsets, "MOVING_S", 0.0)
    with scene(brokers=2, partitions=2) as made:
        made.brokers[1].instead["list_offsets"] = [None] * 1_000
        yield made


def questions(world: Scene) -> KafkaClusterQuestions:
    made = flow()
    limits = made.limits.model_copy(update={"request_timeout_ms": 300})
    made = made.model_copy(update={"limits": limits})
    return KafkaClusterQuestions(made, made.target, "target", world.asking)


def unreachable(found: dict[Partition, object]) -> set[Partition]:
    return {at for at, it in found.items() if isinstance(it, Unreachable)}


def test_ends_of_logs(world: Scene) -> None:
    found = questions(world).log_ends(list(world.logs.leaders))
    assert unreachable({**found}) == set(world.of(1))
    assert all(isinstance(found[at], LogEnds) for at in world.of(0))


@pytest.mark.parametrize("count", [1, 2])
def test_ends_of_nothing_else(world: Scene, count: int) -> None:
    assert len(asked := world.of(1)[:count]) == count
    assert unreachable({**questions(world).log_ends(asked)}) == set(asked)


def test_ends_of_nothing_else_that_are_waited_for_later(world: Scene) -> None:
    assert unreachable({**questions(world).ask_log_ends(world.of(1))()}) == set(world.of(1))


def test_offsets_of_a_time(world: Scene) -> None:
    found = questions(world).offsets_at(list(world.logs.leaders), 1_000)
    assert unreachable({**found}) == set(world.of(1))
    assert unreachable({**questions(world).offsets_at(world.of(1), 1_000)}) == set(world.of(1))


def silent(world: Scene) -> Collection[Partition]:
    for broker in world.brokers:
        broker.instead["metadata"] = [None] * 1_000
    return list(world.logs.leaders)


def test_no_broker_that_tells_of_topics_is_an_error_of_the_question(world: Scene) -> None:
    asked = silent(world)
    with pytest.raises(Unreachable):
        questions(world).log_ends(asked)
    with pytest.raises(Unreachable):
        questions(world).offsets_at(asked, 1_000)
