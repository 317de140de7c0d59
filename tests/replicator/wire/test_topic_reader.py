"""A reader asks for topics and their ends without its consumers: no frozen broker holds it up."""

from __future__ import annotations

import time
from collections.abc import Mapping

import pytest

from replicator.kafka.topic_reader import KeyAndValue, LogBounds, TopicReader
from replicator.model.errors import NotAllowed, Retriable, TopicMissing, Unreachable
from replicator.model.partition import Partition
from tests.replicator.wire.fake_broker import flow_of
from tests.replicator.wire.old_leader import cut_off
from tests.replicator.wire.test_offsets import Scene, scene

pytestmark = pytest.mark.tier("default")  # brokers are waited for that do not answer
DENIED, MISSING = 29, 3
SOON_S = 10.0
HELD_UP_MS = 30_000
"""So long who is held up by a broker waits for it; who isn't, goes on after an attempt of a second or two."""


def reader(world: Scene, request_timeout_ms: int = 3_000) -> TopicReader:
    """Its consumers would go to a port where nobody is."""
    flow = flow_of(1, request_timeout_ms=request_timeout_ms)
    return TopicReader(flow, flow.source, world.asking)


def test_partitions_are_counted_and_a_missing_topic_has_none() -> None:
    with scene(partitions=6) as world:
        assert reader(world).partition_count("a") == 6
        assert reader(world).partition_count("nowhere") == 0
        world.logs.topic_errors["b"] = DENIED
        with pytest.raises(NotAllowed):
            reader(world).partition_count("b")


def test_ends_of_all_partitions_come_at_once() -> None:
    with scene() as world:
        found = reader(world).bounds(list(world.logs.leaders))
        assert found == {at: (1, end) for at, end in world.logs.ends.items()}
        assert [world.requests(number) for number in range(3)] == [2, 2, 2]


def test_a_frozen_broker_holds_up_its_own_partitions_alone() -> None:
    with scene() as world:
        patient, hasty = reader(world, HELD_UP_MS), reader(world)
        patient.bounds(list(world.logs.leaders))
        world.brokers[1].frozen = True
        began_s = time.monotonic()
        assert patient.partition_count("a") == 6
        others = [*world.of(0), *world.of(2)]
        assert patient.bounds(others) == {at: (1, world.logs.ends[at]) for at in others}
        assert time.monotonic() - began_s < HELD_UP_MS / 1000
        with pytest.raises(Unreachable, match=r"no answer in time|timed out"):
            hasty.whole("a", [1])


def delete(world: Scene, topic: str) -> None:
    """As all brokers see it: who led its partitions doesn't know them any more."""
    world.logs.topic_errors[topic] = MISSING
    for number, broker in enumerate(world.brokers):
        broker.errors |= {at: [MISSING] * 1_000 for at in world.of(number) if at.topic == topic}


def test_a_topic_that_goes_before_its_ends_are_asked_for_is_not_waited_for() -> None:
    with scene() as world:
        asked = reader(world, HELD_UP_MS)
        assert asked.partition_count("a") == 6
        delete(world, "a")
        began_s = time.monotonic()
        with pytest.raises(TopicMissing):
            asked.whole("a", [0])
        assert time.monotonic() - began_s < SOON_S


def test_a_topic_that_goes_while_it_is_read_is_not_waited_for() -> None:
    gone, kept = Partition("a", 0), Partition("b", 0)
    with scene() as world:
        delete(world, "a")
        began_s = time.monotonic()
        found = reader(world, HELD_UP_MS).records({gone: (0, 5)})
        assert isinstance(found[gone], TopicMissing)
        assert time.monotonic() - began_s < SOON_S
        world.logs.ends[kept] = 4
        anew = reader(world, HELD_UP_MS).records({kept: (0, 5)})
        assert "made anew" in str(anew[kept])
        assert isinstance(anew[kept], Retriable)


def test_a_topic_that_is_there_is_waited_for_as_long_as_a_transaction_may_stay_open() -> None:
    at = Partition("a", 1)
    with scene() as world:
        flow = flow_of(1, request_timeout_ms=2_000)
        flow = flow.model_copy(update={"limits": flow.limits.model_copy(update={"transaction_timeout_ms": 1_000})})
        began_s = time.monotonic()
        found = TopicReader(flow, flow.source, world.asking).records({at: (0, world.logs.ends[at])})
        assert "could not be read up to" in str(found[at])
        assert time.monotonic() - began_s >= 3.0


def test_a_topic_is_read_up_to_no_end_that_an_old_leader_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another broker is asked instead, at once. A topic that was created again begins anew."""
    at, ends = Partition("a", 0), list[int]()

    def records(_: object, bounds: Mapping[Partition, LogBounds]) -> dict[Partition, list[KeyAndValue]]:
        ends.extend(end for _, end in bounds.values())
        return {at: [] for at in bounds}

    monkeypatch.setattr(TopicReader, "records", records)
    with cut_off(at) as cluster:
        asked = TopicReader(cluster.flow, cluster.flow.target, cluster.topics)
        for number, end in ((0, 3), (1, 5), (0, 5)):  # at first nobody knows better
            cluster.connect_to(number)
            asked.whole(at.topic, [0])
            assert ends.pop() == end
        cluster.connect_to(0)
        (told,) = asked.bounds([at]).values()
        assert "leader epoch 7 is told, but 8 was before" in str(told)
        assert isinstance(told, Retriable)
        assert asked.bounds([at]) == {at: (1, 5)}
        cluster.logs[0].ids[at.topic] = b"another-id-of-a."
        cluster.connect_to(0)
        assert asked.bounds([at]) == {at: (1, 3)}
