"""Consumer groups: sharing out partitions, committing, leaving."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from integration_tests.harness import clients
from integration_tests.harness.broker import BrokerHandle
from integration_tests.harness.proxy import Action, Proxy, Side

PARTITIONS = 4


@pytest.fixture
def topic(target: BrokerHandle, unique: Callable[[str], str]) -> str:
    name = unique("shared")
    clients.create_topic(target.bootstrap, name, PARTITIONS)
    return name


def member(bootstrap: str, group: str, topic: str, strategy: str = "range") -> Consumer:
    joined = clients.consumer(
        bootstrap,
        group_id=group,
        partition_assignment_strategy=strategy,
        session_timeout_ms=6_000,
        heartbeat_interval_ms=200,
    )
    joined.subscribe([topic])
    return joined


def settle(members: Sequence[Consumer], sizes: Sequence[int], timeout_s: float = 30.0) -> list[set[int]]:
    """Poll all members until they hold as many partitions as `sizes` says; returns which."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        for each in members:
            each.poll(0.05)
        held = [{at.partition for at in each.assignment()} for each in members]
        if sorted(map(len, held)) == sorted(sizes) and len(set().union(*held)) == sum(sizes):
            return held
    raise AssertionError(f"after {timeout_s} s members hold {held}, expected sizes {sizes}")


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_two_members_share_the_partitions_and_the_last_one_gets_them_all(
    target: BrokerHandle, topic: str, unique: Callable[[str], str], strategy: str
) -> None:
    group = unique("group")
    first = member(target.bootstrap, group, topic, strategy)
    settle([first], [PARTITIONS])
    second = member(target.bootstrap, group, topic, strategy)
    settle([first, second], [2, 2])
    second.close()
    settle([first], [PARTITIONS])
    first.close()


def test_a_new_member_goes_on_where_the_group_had_committed(
    target: BrokerHandle, topic: str, unique: Callable[[str], str]
) -> None:
    group = unique("group")
    clients.put(clients.producer(target.bootstrap), topic, b"0", b"1", b"2")
    first = member(target.bootstrap, group, topic)
    settle([first], [PARTITIONS])
    first.commit(offsets=[TopicPartition(topic, 0, 2)], asynchronous=False)
    first.close()
    second = member(target.bootstrap, group, topic)
    deadline = time.monotonic() + 30
    message = None
    while time.monotonic() < deadline and (message is None or message.error() is not None):
        message = second.poll(1.0)
    assert message is not None
    assert message.value() == b"2"
    second.close()


def test_a_member_that_was_rebalanced_away_can_not_commit(
    target: BrokerHandle, topic: str, unique: Callable[[str], str]
) -> None:
    """An old generation's commit is refused."""
    group = unique("group")
    first = member(target.bootstrap, group, topic)
    settle([first], [PARTITIONS])
    metadata = first.consumer_group_metadata()
    second = member(target.bootstrap, group, topic)
    settle([first, second], [2, 2])
    writer = clients.transactional(target.bootstrap, unique("writer"))
    writer.begin_transaction()
    with pytest.raises(KafkaException) as caught:
        writer.send_offsets_to_transaction([TopicPartition(topic, 0, 1)], metadata, clients.TIMEOUT_S)
    assert caught.value.args[0].code() in (KafkaError.ILLEGAL_GENERATION, KafkaError.FENCED_INSTANCE_ID)
    first.close()
    second.close()


def test_a_member_that_falls_silent_loses_its_partitions(
    target: BrokerHandle, topic: str, unique: Callable[[str], str], proxy: Proxy
) -> None:
    """Its session times out; nobody has to hear a LeaveGroup."""
    group = unique("group")
    first = member(target.bootstrap, group, topic)
    settle([first], [PARTITIONS])
    second = member(proxy.bootstrap, group, topic)
    settle([first, second], [2, 2])
    for api in ("Heartbeat", "JoinGroup", "LeaveGroup"):
        proxy.rule(api, Side.REQUEST, Action.DROP, times=1_000_000)
    settle([first], [PARTITIONS])
    proxy.clear()
    first.close()
    second.close()


def test_the_group_is_listed_and_described_with_its_member(
    target: BrokerHandle, topic: str, unique: Callable[[str], str]
) -> None:
    group = unique("group")
    joined = member(target.bootstrap, group, topic)
    settle([joined], [PARTITIONS])
    admin = clients.admin(target.bootstrap)
    listed = admin.list_consumer_groups().result(clients.TIMEOUT_S)
    assert group in [found.group_id for found in listed.valid]
    described = admin.describe_consumer_groups([group])[group].result(clients.TIMEOUT_S)
    assert described.state.name == "STABLE"
    assert described.partition_assignor == "range"
    held = described.members[0].assignment.topic_partitions
    assert {at.partition for at in held} == set(range(PARTITIONS))
    with pytest.raises(KafkaException) as caught:
        admin.delete_consumer_groups([group])[group].result(clients.TIMEOUT_S)
    assert caught.value.args[0].code() == KafkaError.NON_EMPTY_GROUP
    joined.close()
