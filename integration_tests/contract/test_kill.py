"""What a broker that was killed still knows: everything that it had acknowledged, and nothing twice."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import TopicPartition

from integration_tests.harness import clients
from integration_tests.harness.broker import BrokerHandle


def test_what_was_acknowledged_is_there_after_a_kill(target: BrokerHandle, unique: Callable[[str], str]) -> None:
    topic, group = unique("survives"), unique("group")
    clients.create_topic(target.bootstrap, topic, 2, {"retention.ms": "123456789"})
    values = [b"%d" % number for number in range(200)]
    clients.put(clients.producer(target.bootstrap, compression_type="zstd"), topic, *values)
    writer = clients.transactional(target.bootstrap, unique("writer"))
    writer.begin_transaction()
    clients.put(writer, topic, b"in a transaction", partition=1)
    positions = clients.consumer(target.bootstrap, group_id=group)
    metadata = positions.consumer_group_metadata()
    writer.send_offsets_to_transaction([TopicPartition(topic, 0, 42)], metadata, clients.TIMEOUT_S)
    writer.commit_transaction(clients.TIMEOUT_S)
    positions.close()
    target.kill()
    target.restart()
    assert clients.values(clients.read(target.bootstrap, topic, 0)) == values
    clients.wait_value(target.bootstrap, topic, 1, b"in a transaction")  # Kafka goes on writing markers after a start
    assert clients.values(clients.read(target.bootstrap, topic, 1)) == [b"in a transaction"]
    assert clients.committed(target.bootstrap, group, topic).offset == 42
    assert clients.topic_configs(target.bootstrap, topic)["retention.ms"] == "123456789"


@pytest.mark.tier(kafka="long")
def test_a_transaction_that_was_open_goes_on_after_a_kill(target: BrokerHandle, unique: Callable[[str], str]) -> None:
    topic = unique("goes-on")
    clients.create_topic(target.bootstrap, topic)
    writer = clients.transactional(target.bootstrap, unique("writer"))
    writer.begin_transaction()
    clients.put(writer, topic, b"before")
    target.kill()
    target.restart()
    assert clients.read(target.bootstrap, topic) == [], "an open transaction became visible"
    clients.put(writer, topic, b"after")
    writer.commit_transaction(clients.TIMEOUT_S)
    clients.wait_value(target.bootstrap, topic, 0, b"after")  # Kafka answers before the markers are written
    assert clients.values(clients.read(target.bootstrap, topic)) == [b"before", b"after"]


def test_a_transaction_that_was_open_can_be_fenced_away_after_a_kill(
    target: BrokerHandle, unique: Callable[[str], str]
) -> None:
    topic, name = unique("fenced-away"), unique("writer")
    clients.create_topic(target.bootstrap, topic)
    writer = clients.transactional(target.bootstrap, name)
    writer.begin_transaction()
    clients.put(writer, topic, b"before")
    target.kill()
    target.restart()
    clients.transactional(target.bootstrap, name)
    clients.put(clients.producer(target.bootstrap), topic, b"plain")
    assert clients.values(clients.read(target.bootstrap, topic)) == [b"plain"]


@pytest.mark.tier(kafka="long")
def test_an_idempotent_producer_goes_on_without_loss_or_double(
    target: BrokerHandle, unique: Callable[[str], str]
) -> None:
    """Killed while records are on their way: the resent ones are recognised by what the log says of their producer."""
    topic = unique("resent")
    clients.create_topic(target.bootstrap, topic)
    writer = clients.producer(target.bootstrap, batch_num_messages=50, retry_backoff_ms=10)
    values = [b"%06d" % number for number in range(20_000)]
    for value in values:
        writer.produce(topic, value, partition=0)
        writer.poll(0)
    target.kill()
    target.restart()
    assert writer.flush(60) == 0
    assert clients.values(clients.read(target.bootstrap, topic)) == values
