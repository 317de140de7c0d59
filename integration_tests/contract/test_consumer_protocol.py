"""The new consumer protocol (KIP-848) with librdkafka: sharing, handing over, a killed member, static members."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from integration_tests.harness import clients
from integration_tests.harness.broker import BrokerHandle

PARTITIONS = 4
Join = Callable[..., Consumer]
POLLING = """
import json, sys
from confluent_kafka import Consumer
consumer = Consumer(json.loads(sys.argv[1]))
consumer.subscribe([sys.argv[2]])
while not consumer.assignment():
    consumer.poll(0.05)
print(len(consumer.assignment()), flush=True)
while True:
    consumer.poll(0.05)
"""


@pytest.fixture
def topic(target: BrokerHandle, unique: Callable[[str], str]) -> str:
    name = unique("shared")
    clients.create_topic(target.bootstrap, name, PARTITIONS)
    return name


def settings(bootstrap: str, group: str, **changes: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "group.protocol": "consumer",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        **clients.QUIET,
        **changes,
    }


@pytest.fixture
def member() -> Iterator[Join]:
    """Joins a group. All are closed after the test, however it ends, while their broker is there: a member that is only
    destroyed, when its broker is gone, keeps the process in rd_kafka_destroy for ever."""
    joined: list[Consumer] = []

    def join(bootstrap: str, group: str, topic: str, **changes: Any) -> Consumer:
        joined.append(Consumer(settings(bootstrap, group, **changes)))
        joined[-1].subscribe([topic])
        return joined[-1]

    yield join
    for each in joined:
        each.close()


def settle(members: Sequence[Consumer], sizes: Sequence[int], timeout_s: float = 30.0) -> list[set[int]]:
    """Poll all members until they hold as many partitions as `sizes` says; returns which."""
    deadline = time.monotonic() + timeout_s
    held: list[set[int]] = []
    while time.monotonic() < deadline:
        for each in members:
            each.poll(0.02)
        held = [{at.partition for at in each.assignment()} for each in members]
        if sorted(map(len, held)) == sorted(sizes) and len(set().union(*held)) == sum(sizes):
            return held
    raise AssertionError(f"after {timeout_s} s members hold {held}, expected sizes {sizes}")


def write(bootstrap: str, topic: str, count: int) -> None:
    producer = clients.producer(bootstrap)
    for number in range(count):
        producer.produce(topic, str(number).encode(), partition=number % PARTITIONS)
    assert producer.flush(clients.TIMEOUT_S) == 0


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_members_come_and_go_and_share_the_partitions(
    target: BrokerHandle, member: Join, topic: str, unique: Callable[[str], str], assignor: str
) -> None:
    group = unique("group")
    first = member(target.bootstrap, group, topic, **{"group.remote.assignor": assignor})
    settle([first], [4])
    second = member(target.bootstrap, group, topic, **{"group.remote.assignor": assignor})
    third = member(target.bootstrap, group, topic, **{"group.remote.assignor": assignor})
    settle([first, second, third], [1, 1, 2])
    third.close()
    settle([first, second], [2, 2])
    second.close()
    settle([first], [4])
    first.close()


def test_offsets_are_kept_from_member_to_member(
    target: BrokerHandle, member: Join, topic: str, unique: Callable[[str], str]
) -> None:
    group = unique("group")
    write(target.bootstrap, topic, 20)
    first = member(target.bootstrap, group, topic)
    seen = 0
    while seen < 20:
        message = first.poll(clients.TIMEOUT_S)
        assert message is not None
        assert message.error() is None
        seen += 1
    first.commit(asynchronous=False)
    asked = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    assert [each.offset for each in first.committed(asked, timeout=clients.TIMEOUT_S)] == [5, 5, 5, 5]
    first.close()
    write(target.bootstrap, topic, 1)
    second = member(target.bootstrap, group, topic)
    message = second.poll(clients.TIMEOUT_S)
    assert message is not None
    assert (message.error(), message.partition(), message.offset()) == (None, 0, 5)
    second.close()


def test_a_killed_member_loses_its_partitions_to_the_others(
    target: BrokerHandle, member: Join, topic: str, unique: Callable[[str], str]
) -> None:
    group = unique("group")
    first = member(target.bootstrap, group, topic)
    settle([first], [4])
    arguments = [sys.executable, "-c", POLLING, json.dumps(settings(target.bootstrap, group)), topic]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as second:
        try:
            settle([first], [2])
            assert second.stdout is not None
            assert second.stdout.readline() in ("1\n", "2\n")
        finally:
            second.kill()
    settle([first], [4])
    first.close()


@pytest.mark.parametrize("kind", ["embedded"], indirect=True, scope="session")
def test_a_broker_that_was_killed_finds_its_members_again(
    target: BrokerHandle, member: Join, topic: str, unique: Callable[[str], str]
) -> None:
    group = unique("group")
    members = [member(target.bootstrap, group, topic) for _ in range(2)]
    before = settle(members, [2, 2])
    target.kill()
    target.restart()
    write(target.bootstrap, topic, 8)
    seen: set[tuple[int | None, int | None]] = set()
    deadline = time.monotonic() + clients.TIMEOUT_S
    while len(seen) < 8 and time.monotonic() < deadline:
        for each in members:
            message = each.poll(0.05)
            if message is not None and message.error() is None:
                seen.add((message.partition(), message.offset()))
    assert len(seen) == 8
    assert settle(members, [2, 2]) == before
    for each in members:
        each.commit(asynchronous=False)
        each.close()


def test_a_static_member_comes_back_to_its_partitions(
    target: BrokerHandle, member: Join, topic: str, unique: Callable[[str], str]
) -> None:
    group = unique("group")
    names = ["one", "two"]
    members = [member(target.bootstrap, group, topic, **{"group.instance.id": name}) for name in names]
    before = settle(members, [2, 2])
    members[1].close()
    members[1] = member(target.bootstrap, group, topic, **{"group.instance.id": "two"})
    assert settle(members, [2, 2]) == before
    for each in members:
        each.close()


def test_a_pattern_is_followed(target: BrokerHandle, member: Join, unique: Callable[[str], str]) -> None:
    prefix, group = unique("pattern"), unique("group")
    clients.create_topic(target.bootstrap, f"{prefix}-1", 1)
    clients.create_topic(target.bootstrap, unique("other"), 1)
    one = member(target.bootstrap, group, f"^{prefix}-[0-9]$")
    deadline = time.monotonic() + clients.TIMEOUT_S
    held: set[str] = set()
    while f"{prefix}-1" not in held and time.monotonic() < deadline:
        one.poll(0.05)
        held = {at.topic for at in one.assignment()}
    assert held == {f"{prefix}-1"}
    one.close()


def test_admin_clients_see_what_a_member_has(
    target: BrokerHandle, member: Join, topic: str, unique: Callable[[str], str]
) -> None:
    group = unique("group")
    one = member(target.bootstrap, group, topic)
    settle([one], [4])
    admin: AdminClient = clients.admin(target.bootstrap)
    described = admin.describe_consumer_groups([group])[group].result(clients.TIMEOUT_S)
    assert described.state is ConsumerGroupState.STABLE
    (seen,) = described.members
    assert {(at.topic, at.partition) for at in seen.assignment.topic_partitions} == {
        (topic, number) for number in range(PARTITIONS)
    }
    write(target.bootstrap, topic, 4)
    while one.poll(clients.TIMEOUT_S) is None:
        pass
    one.commit(asynchronous=False)
    one.close()
    offsets = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(clients.TIMEOUT_S)
    assert any(at.offset > 0 for at in offsets.topic_partitions)
    admin.delete_consumer_groups([group])[group].result(clients.TIMEOUT_S)
