"""Producing as librdkafka and aiokafka see it: idempotence, faithfulness, refusals."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.structs import RecordMetadata
from confluent_kafka import KafkaError, Message

from integration_tests.harness import clients
from integration_tests.harness.broker import BrokerHandle
from integration_tests.harness.load import Headers
from integration_tests.harness.proxy import Action, Proxy, Side

COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
TIMESTAMP_MS = 1_700_000_000_123
CREATED, APPENDED = 0, 1  # types of a timestamp


@pytest.fixture
def topic(target: BrokerHandle, unique: Callable[[str], str]) -> str:
    name = unique("produced")
    clients.create_topic(target.bootstrap, name)
    return name


def test_acks_carry_consecutive_offsets(target: BrokerHandle, topic: str) -> None:
    reports = clients.put(clients.producer(target.bootstrap), topic, *[b"%d" % n for n in range(500)])
    assert [report.offset() for report in reports] == list(range(500))


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_key_value_headers_and_timestamp_come_back_as_they_were(
    target: BrokerHandle, topic: str, compression: str
) -> None:
    writer = clients.producer(target.bootstrap, compression_type=compression, linger_ms=20)
    headers: Headers = [("a", b"1"), ("a", b"2"), ("", b""), ("null", None), ("ключ", b"\x00\xff")]
    pairs = [(b"k", b"v" * 3_000), (b"k", None), (None, b"v"), (b"", b""), (None, None)]
    for key, value in pairs:
        writer.produce(topic, value, key, 0, timestamp=TIMESTAMP_MS, headers=headers)
    writer.produce(topic, b"bare", timestamp=TIMESTAMP_MS + 1)
    assert writer.flush(clients.TIMEOUT_S) == 0
    found = clients.read(target.bootstrap, topic)
    assert [(message.key(), message.value()) for message in found[:-1]] == pairs
    assert [message.headers() for message in found[:-1]] == [headers] * len(pairs)
    assert found[-1].headers() is None
    assert [message.timestamp()[1] for message in found] == [TIMESTAMP_MS] * len(pairs) + [TIMESTAMP_MS + 1]


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_aiokafka_reads_what_it_wrote_and_so_does_librdkafka(
    target: BrokerHandle, topic: str, compression: str
) -> None:
    values = [b"%d" % number * 200 for number in range(50)]

    async def write_and_read() -> list[bytes | None]:
        kind = None if compression == "none" else compression
        producer = AIOKafkaProducer(
            bootstrap_servers=target.bootstrap, enable_idempotence=True, compression_type=kind, linger_ms=5
        )
        async with producer:
            await asyncio.gather(*[await producer.send(topic, value, partition=0) for value in values])
        async with AIOKafkaConsumer(bootstrap_servers=target.bootstrap, auto_offset_reset="earliest") as reader:
            reader.assign([TopicPartition(topic, 0)])
            return [(await asyncio.wait_for(reader.getone(), 20)).value for _ in values]

    assert asyncio.run(write_and_read()) == values
    assert clients.values(clients.read(target.bootstrap, topic)) == values


@pytest.mark.parametrize("side", Side)
def test_an_idempotent_producer_that_has_to_resend_doubles_nothing(topic: str, proxy: Proxy, side: Side) -> None:
    writer = clients.producer(proxy.bootstrap, batch_num_messages=10, max_in_flight=5, retry_backoff_ms=10)
    clients.put(writer, topic, b"first")
    lost = proxy.rule("Produce", side, Action.CUT, nth=2)
    values = [b"%d" % number for number in range(100)]
    clients.put(writer, topic, *values)
    assert lost.hit
    assert clients.values(clients.read(proxy.bootstrap, topic)) == [b"first", *values]


def test_the_resent_batch_is_acknowledged_with_its_original_offsets(topic: str, proxy: Proxy) -> None:
    """aiokafka reports the offsets of a duplicate's reply as they come; librdkafka leaves them out.

    Kafka puts the batch's own latest time where the time of its append would stand (UnifiedLog.append), though the
    topic has CreateTime.
    """

    async def write() -> list[RecordMetadata]:
        producer = AIOKafkaProducer(
            bootstrap_servers=proxy.bootstrap, enable_idempotence=True, request_timeout_ms=5_000, retry_backoff_ms=10
        )
        async with producer:
            await producer.send_and_wait(topic, b"first", partition=0)
            lost = proxy.rule("Produce", Side.REPLY, Action.CUT)
            sending = producer.send_and_wait(topic, b"second", partition=0, timestamp_ms=TIMESTAMP_MS)
            second = await asyncio.wait_for(sending, 20)
            assert lost.hit
            third = await producer.send_and_wait(topic, b"third", partition=0, timestamp_ms=TIMESTAMP_MS)
        return [second, third]

    second, third = asyncio.run(write())
    assert (second.offset, third.offset) == (1, 2)
    assert [(each.timestamp, each.timestamp_type) for each in (second, third)] == [
        (TIMESTAMP_MS, APPENDED),
        (TIMESTAMP_MS, CREATED),
    ]
    assert clients.values(clients.read(proxy.bootstrap, topic)) == [b"first", b"second", b"third"]


def test_a_record_larger_than_the_topic_takes_is_refused_and_the_next_one_is_not(
    target: BrokerHandle, unique: Callable[[str], str]
) -> None:
    name = unique("small")
    clients.create_topic(target.bootstrap, name, configs={"max.message.bytes": "2000"})
    writer = clients.producer(target.bootstrap)
    refused: list[tuple[KafkaError | None, Message]] = []
    writer.produce(name, b"x" * 5_000, partition=0, on_delivery=lambda *report: refused.append(report))
    writer.flush(clients.TIMEOUT_S)
    assert refused[0][0] is not None
    assert refused[0][0].code() == KafkaError.MSG_SIZE_TOO_LARGE
    assert clients.read(target.bootstrap, name) == []
    after = clients.put(clients.producer(target.bootstrap), name, b"fits")
    assert [report.offset() for report in after] == [0]


def test_a_record_of_almost_a_mebibyte_is_taken(target: BrokerHandle, topic: str) -> None:
    value = b"x" * 1_000_000
    clients.put(clients.producer(target.bootstrap, message_max_bytes=2_000_000), topic, value)
    assert clients.values(clients.read(target.bootstrap, topic)) == [value]


def test_a_topic_that_nobody_created_is_refused(target: BrokerHandle, unique: Callable[[str], str]) -> None:
    writer = clients.producer(target.bootstrap, message_timeout_ms=5_000, topic_metadata_propagation_max_ms=100)
    refused: list[KafkaError | None] = []
    name = unique("nobody")
    writer.produce(name, b"x", on_delivery=lambda error, _: refused.append(error))
    writer.flush(clients.TIMEOUT_S)
    codes = [error.code() for error in refused if error]
    assert codes in ([KafkaError._UNKNOWN_TOPIC], [KafkaError.UNKNOWN_TOPIC_OR_PART])
    assert name not in clients.topics(target.bootstrap)


def test_log_append_time_replaces_the_producers_timestamp(target: BrokerHandle, unique: Callable[[str], str]) -> None:
    name = unique("appended")
    clients.create_topic(target.bootstrap, name, configs={"message.timestamp.type": "LogAppendTime"})
    clients.put(clients.producer(target.bootstrap), name, b"x", timestamp=TIMESTAMP_MS)
    kind, timestamp_ms = clients.read(target.bootstrap, name)[0].timestamp()
    assert kind == 2
    assert timestamp_ms > TIMESTAMP_MS
