"""Something else commits offsets of the flow's group: its partition stops until the flow's own position stands again,
the others go on, and no process takes it for a successor."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from integration_tests.conftest import MakeCopying
from integration_tests.harness import clients
from integration_tests.harness.advised import advised
from integration_tests.harness.copying import Copying
from integration_tests.harness.processes import wait_until
from integration_tests.harness.replicator import Replicator
from integration_tests.test_incidents_played import asked

STRAY = 1
"""An offset that the flow's position is past."""


@pytest.fixture
def copying(make_copying: MakeCopying) -> Copying:
    return make_copying(limits={"discovery_interval_ms": 1_000})


def started(copying: Copying) -> Replicator:
    """A worker that has copied what there is."""
    worker = copying.running()
    copying.load.mixed(300)
    copying.wait_copied()
    return worker


def reset(client: Consumer, copying: Copying, partitions: int = 1) -> None:
    """Commit as `kafka-consumer-groups --reset-offsets` does, for so many partitions at once."""
    offsets = [TopicPartition(copying.copy, number, STRAY) for number in range(partitions)]
    found = client.commit(offsets=offsets, asynchronous=False) or []
    assert [each.error for each in found] == [None] * partitions


def test_an_operator_resets_an_offset(copying: Copying) -> None:
    worker = started(copying)
    client = clients.consumer(copying.target, group_id=copying.group)
    reset(client, copying)
    client.close()
    worker.wait_event("incident", name="position_unreadable", topic=copying.topic, partition=0)
    worker.wait_event("copying", topic=copying.topic, partition=0)
    copying.load.mixed(300)
    copying.finish(worker)
    assert {event["partition"] for event in worker.seen("incident")} == {0}


@pytest.mark.tier("full")
def test_an_operator_resets_all_offsets_and_the_worker_goes_on(copying: Copying) -> None:
    """It runs the flow alone, and would end once everything is stopped."""
    worker = started(copying)
    client = clients.consumer(copying.target, group_id=copying.group)
    reset(client, copying, copying.partitions)
    client.close()
    for number in range(copying.partitions):
        worker.wait_event("copying", topic=copying.topic, partition=number)
    copying.load.mixed(300)
    copying.finish(worker)
    told = [(event["name"], event["partition"]) for event in worker.seen("incident")]
    assert sorted(told) == [("position_unreadable", number) for number in range(copying.partitions)]


@pytest.mark.tier("full")
def test_a_consumer_joins_the_group(copying: Copying) -> None:
    worker = started(copying)
    client = clients.consumer(copying.target, group_id=copying.group)
    client.subscribe([copying.copy])
    while not client.assignment():
        client.poll(0.1)
    reset(client, copying)
    worker.wait_event("incident", name="position_unreadable", partition=0)
    copying.load.mixed(300)
    client.close()
    worker.wait_event("copying", topic=copying.topic, partition=0)
    copying.finish(worker)


@pytest.mark.tier("extended")
def test_the_offset_was_reset_while_no_worker_runs(copying: Copying) -> None:
    """Nobody knows the position then: the partition stops, and what was committed stays as it is."""
    assert started(copying).stop() == 0
    client = clients.consumer(copying.target, group_id=copying.group)
    reset(client, copying)
    worker = copying.running()
    worker.wait_event("incident", name="position_unreadable", partition=0)
    copying.load.mixed(300)
    worker.wait_event("committed")
    worker.stop()
    (left,) = client.committed([TopicPartition(copying.copy, 0)], timeout=clients.TIMEOUT_S)
    client.close()
    assert left.offset == STRAY


@pytest.mark.tier("long", kafka="long")
@pytest.mark.parametrize("by", ["map", "offset"])
def test_a_position_that_was_reset_while_no_worker_ran_is_adopted_and_the_flow_goes_on(
    copying: Copying, by: str
) -> None:
    """position_unreadable: `--adopt map` as it is printed, or the offset in its place."""
    assert started(copying).stop() == 0
    client = clients.consumer(copying.target, group_id=copying.group)
    reset(client, copying)
    client.close()
    end = clients.stable_end(copying.source, copying.topic, 0)
    copying.load.mixed(300)
    worker = copying.running()
    worker.wait_event("incident", name="position_unreadable", topic=copying.topic, partition=0)
    wait_until(lambda: bool(shown(copying)["commands"]), "the lane has written it down", worker.tail)
    it = shown(copying)
    words = advised(it["advice"], "incident resolve")
    assert words[:5] == ["incident", "resolve", it["id"], "--adopt", "map"]
    if by == "offset":
        words = [str(end) if word == "map" else word for word in words]
    code, done, said = asked(copying, *words)
    assert (code, done["acted"], done["moved"][-1]) == (0, "adopted", end), said
    worker.wait_event("copying", topic=copying.topic, partition=0)
    assert listed(copying) == []
    copying.load.mixed(100)
    copying.finish(worker)


def shown(copying: Copying) -> dict[str, Any]:
    """The one incident that is open, as `incident show` has it."""
    (it,) = asked(copying, "incident", "list")[1]["incidents"]
    assert it["name"] == "position_unreadable"
    return asked(copying, "incident", "show", it["id"])[1]


@pytest.mark.tier("long", kafka="long")
def test_a_position_of_another_flow_is_named_and_its_map_is_not_missed(make_copying: MakeCopying) -> None:
    """Somebody has taken one flow's exported offsets for the other's: nothing is wrong with this flow's map."""
    copying, other = make_copying(partitions=2), make_copying(partitions=2)
    for each in (copying, other):
        assert started(each).stop() == 0
    theirs = clients.committed(other.target, other.group, other.copy)
    client = clients.consumer(copying.target, group_id=copying.group)
    commit = TopicPartition(copying.copy, 0, theirs.offset, metadata=theirs.metadata)
    (found,) = client.commit(offsets=[commit], asynchronous=False) or []
    assert found.error is None
    client.close()
    assert listed(copying) == ["source_topic_changed"]
    worker = copying.running()
    worker.wait_event("incident", name="source_topic_changed", topic=copying.topic, partition=0)
    copying.load.mixed(100)
    worker.wait_event("committed")
    assert listed(copying) == ["source_topic_changed"]
    assert [event["name"] for event in worker.seen("incident")] == ["source_topic_changed"]
    worker.stop()


def listed(copying: Copying) -> list[str]:
    """The names of all incidents that are open, as `incident list` has them."""
    return [it["name"] for it in asked(copying, "incident", "list")[1]["incidents"]]
