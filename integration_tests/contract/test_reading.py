"""Fetching and looking up offsets."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from kio.schema.errors import ErrorCode as E

from integration_tests.harness import clients
from integration_tests.harness.broker import BrokerHandle
from integration_tests.harness.transacting import TransactionClient

TIMESTAMP_MS = 1_700_000_000_000


@pytest.fixture
def topic(target: BrokerHandle, unique: Callable[[str], str]) -> str:
    name = unique("read")
    clients.create_topic(target.bootstrap, name)
    return name


def next_message(client: Consumer, timeout_s: float = 30.0) -> Message:
    """The next message or event, whatever it is."""
    message = client.poll(timeout_s)
    assert message is not None, f"nothing within {timeout_s} s"
    return message


def error_code(message: Message) -> int | None:
    """Of the event that the client has told instead of a record; None for a record."""
    error = message.error()
    return None if error is None else error.code()


def test_both_ends_of_a_partition(target: BrokerHandle, topic: str) -> None:
    client = clients.consumer(target.bootstrap)
    at = TopicPartition(topic, 0)
    assert client.get_watermark_offsets(at, timeout=30) == (0, 0)
    clients.put(clients.producer(target.bootstrap), topic, b"1", b"2")
    assert client.get_watermark_offsets(at, timeout=30, cached=False) == (0, 2)
    client.close()


def test_the_offset_for_a_time_is_the_first_record_not_before_it(target: BrokerHandle, topic: str) -> None:
    writer = clients.producer(target.bootstrap)
    for step in (0, 10, 20, 20, 30):
        clients.put(writer, topic, b"x", timestamp=TIMESTAMP_MS + step)
    client = clients.consumer(target.bootstrap)
    asked = {-5: 0, 0: 0, 1: 1, 10: 1, 11: 2, 20: 2, 21: 4, 30: 4}
    for step, offset in asked.items():
        found = client.offsets_for_times([TopicPartition(topic, 0, TIMESTAMP_MS + step)], timeout=30)
        assert found[0].offset == offset, step
    after = client.offsets_for_times([TopicPartition(topic, 0, TIMESTAMP_MS + 31)], timeout=30)
    assert after[0].offset < 0
    client.close()


def test_the_offset_for_a_time_finds_a_record_inside_a_batch(target: BrokerHandle, topic: str) -> None:
    writer = clients.producer(target.bootstrap, linger_ms=100)
    for step in range(10):
        writer.produce(topic, b"x", timestamp=TIMESTAMP_MS + step)
    assert writer.flush(clients.TIMEOUT_S) == 0
    client = clients.consumer(target.bootstrap)
    assert client.offsets_for_times([TopicPartition(topic, 0, TIMESTAMP_MS + 7)], timeout=30)[0].offset == 7
    client.close()


def test_a_reader_waits_at_the_end_and_gets_what_comes(target: BrokerHandle, topic: str) -> None:
    client = clients.consumer(target.bootstrap, fetch_wait_max_ms=40_000)
    client.assign([TopicPartition(topic, 0, 0)])
    assert client.poll(1.0) is None, "the fetch was answered before there was anything to tell"
    began = time.monotonic()
    clients.put(clients.producer(target.bootstrap), topic, b"late")
    assert next_message(client).value() == b"late"
    assert time.monotonic() - began < 20, "a waiting fetch is answered when a record comes, not when its wait ends"
    client.close()


@pytest.mark.parametrize("offset", [0, 9])
def test_an_offset_outside_the_log_is_an_error_and_not_a_guess(target: BrokerHandle, topic: str, offset: int) -> None:
    clients.put(clients.producer(target.bootstrap), topic, b"0", b"1", b"2")
    clients.delete_records(target.bootstrap, topic, 0, 1)
    client = clients.consumer(target.bootstrap, auto_offset_reset="error")
    client.assign([TopicPartition(topic, 0, offset)])
    assert error_code(next_message(client)) == KafkaError._AUTO_OFFSET_RESET
    client.close()


def test_the_end_of_a_partition_lies_behind_its_last_marker(target: BrokerHandle, topic: str) -> None:
    writer = clients.transactional(target.bootstrap, topic)
    writer.begin_transaction()
    clients.put(writer, topic, b"1")
    writer.abort_transaction(clients.TIMEOUT_S)
    client = clients.consumer(target.bootstrap)
    client.assign([TopicPartition(topic, 0, 0)])
    ended = next_message(client)
    assert error_code(ended) == KafkaError._PARTITION_EOF
    assert ended.offset() == 2
    client.close()


def stable_end(client: TransactionClient) -> int:
    """Of partition 0; `clients.stable_end` asks for both ends and puts them in order."""
    asked = [
        {"name": client.topic, "partitions": [{"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}]}
    ]
    answer = client.wire("list_offsets", 5, replica_id=-1, isolation_level=1, topics=asked)
    return int(answer.topics[0].partitions[0].offset)


def test_what_an_open_transaction_has_written_can_be_deleted(target: BrokerHandle, client: TransactionClient) -> None:
    """A read_committed reader then waits at the log's start, not below it (in Kafka: if a batch begins there)."""
    producer = client.fresh()
    client.add(producer, 0)
    assert client.produce(producer, 0, count=2) == (E.none, 0)
    assert client.produce(producer, 2) == (E.none, 2)
    assert stable_end(client) == 0
    clients.delete_records(target.bootstrap, client.topic, 0, 2)
    assert stable_end(client) == 2
    assert client.end(producer, commit=False) is E.none
    assert client.end(producer, commit=False) is E.none
    assert stable_end(client) == 4


def test_a_record_larger_than_the_readers_fetch_size_is_read_all_the_same(target: BrokerHandle, topic: str) -> None:
    big = b"x" * 500_000
    clients.put(clients.producer(target.bootstrap), topic, b"small", big, b"small too")
    client = clients.consumer(
        target.bootstrap, fetch_message_max_bytes=1_000, fetch_max_bytes=1_000, message_max_bytes=1_000
    )
    client.assign([TopicPartition(topic, 0, 0)])
    assert [next_message(client).value() for _ in range(3)] == [b"small", big, b"small too"]
    client.close()


def test_a_topic_that_is_not_there_is_an_error(target: BrokerHandle, unique: Callable[[str], str]) -> None:
    name = unique("nowhere")
    admin = clients.admin(target.bootstrap)
    error = admin.list_topics(name, timeout=clients.TIMEOUT_S).topics[name].error
    assert error is not None
    assert error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert name not in clients.topics(target.bootstrap), "asking for a topic has created it"
