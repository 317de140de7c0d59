"""Transactions as a client sees them: visibility, the last stable offset, fencing, time-outs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from integration_tests.harness import clients
from integration_tests.harness.broker import BrokerHandle
from integration_tests.harness.proxy import Action, Proxy, Side

FENCED = {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}


@pytest.fixture
def topic(target: BrokerHandle, unique: Callable[[str], str]) -> str:
    name = unique("transacted")
    clients.create_topic(target.bootstrap, name, 2)
    return name


@pytest.fixture
def writer(target: BrokerHandle, unique: Callable[[str], str]) -> Producer:
    return clients.transactional(target.bootstrap, unique("writer"))


def seen(broker: BrokerHandle, topic: str, partition: int = 0, isolation: str = "read_committed") -> list[bytes | None]:
    return clients.values(clients.read(broker.bootstrap, topic, partition, isolation=isolation))


def high(broker: BrokerHandle, topic: str, isolation: str) -> int:
    """High watermark, or under read_committed the last stable offset."""
    client = clients.consumer(broker.bootstrap, isolation_level=isolation)
    try:
        return int(client.get_watermark_offsets(TopicPartition(topic, 0), timeout=30, cached=False)[1])
    finally:
        client.close()


def wait_value(client: Consumer, value: bytes, timeout_s: float = 30.0) -> None:
    """Poll until `value` comes."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        message = client.poll(1.0)
        if message is not None and message.error() is None and message.value() == value:
            return
    raise AssertionError(f"{value!r} did not come within {timeout_s} s")


def test_committed_records_appear_together_and_aborted_ones_never(
    target: BrokerHandle, topic: str, writer: Producer
) -> None:
    for value, ending in ((b"1", writer.commit_transaction), (b"2", writer.abort_transaction)):
        writer.begin_transaction()
        for partition in (0, 1):
            clients.put(writer, topic, value, partition=partition)
            assert value not in seen(target, topic, partition)
            assert value in seen(target, topic, partition, "read_uncommitted")
        ending(clients.TIMEOUT_S)
    for partition in (0, 1):
        assert seen(target, topic, partition) == [b"1"]
        assert seen(target, topic, partition, "read_uncommitted") == [b"1", b"2"]


def test_each_end_of_a_transaction_takes_one_offset_in_each_of_its_partitions(
    target: BrokerHandle, topic: str, writer: Producer
) -> None:
    offsets = []
    for ending in (writer.commit_transaction, writer.abort_transaction, writer.commit_transaction):
        writer.begin_transaction()
        offsets += [report.offset() for report in clients.put(writer, topic, b"a", b"b")]
        ending(clients.TIMEOUT_S)
    assert offsets == [0, 1, 3, 4, 6, 7]
    assert high(target, topic, "read_committed") == 9
    assert clients.read(target.bootstrap, topic, 1) == []


def test_an_open_transaction_holds_the_last_stable_offset(target: BrokerHandle, topic: str, writer: Producer) -> None:
    plain = clients.producer(target.bootstrap)
    clients.put(plain, topic, b"before")
    writer.begin_transaction()
    clients.put(writer, topic, b"inside")
    clients.put(plain, topic, b"behind")
    assert high(target, topic, "read_committed") == 1
    assert high(target, topic, "read_uncommitted") == 3
    assert seen(target, topic) == [b"before"]
    writer.commit_transaction(clients.TIMEOUT_S)
    assert seen(target, topic) == [b"before", b"inside", b"behind"]
    assert high(target, topic, "read_committed") == 4


def test_two_open_transactions_hold_it_at_the_earlier_one(
    target: BrokerHandle, topic: str, writer: Producer, unique: Callable[[str], str]
) -> None:
    second = clients.transactional(target.bootstrap, unique("second"))
    for each, value in ((writer, b"early"), (second, b"late")):
        each.begin_transaction()
        clients.put(each, topic, value)
    second.commit_transaction(clients.TIMEOUT_S)
    assert seen(target, topic) == []
    writer.abort_transaction(clients.TIMEOUT_S)
    assert seen(target, topic) == [b"late"]


def test_a_reader_that_starts_inside_an_aborted_transaction_skips_the_rest_of_it(
    target: BrokerHandle, topic: str, writer: Producer
) -> None:
    writer.begin_transaction()
    clients.put(writer, topic, *[b"%d" % number for number in range(10)])
    writer.abort_transaction(clients.TIMEOUT_S)
    clients.put(clients.producer(target.bootstrap), topic, b"plain")
    for offset in (0, 5, 9, 10):
        assert clients.values(clients.read(target.bootstrap, topic, 0, offset)) == [b"plain"]


def test_a_second_init_producer_id_fences_the_first_and_aborts_its_transaction(
    target: BrokerHandle, topic: str, unique: Callable[[str], str]
) -> None:
    name = unique("fenced")
    old = clients.transactional(target.bootstrap, name)
    old.begin_transaction()
    clients.put(old, topic, b"old")
    new = clients.transactional(target.bootstrap, name)
    new.begin_transaction()
    clients.put(new, topic, b"new")
    new.commit_transaction(clients.TIMEOUT_S)
    with pytest.raises(KafkaException) as caught:
        old.commit_transaction(clients.TIMEOUT_S)
    assert caught.value.args[0].code() in FENCED
    assert seen(target, topic) == [b"new"]


def test_a_fenced_producer_can_not_append(target: BrokerHandle, topic: str, unique: Callable[[str], str]) -> None:
    name = unique("fenced")
    old = clients.transactional(target.bootstrap, name)
    old.begin_transaction()
    clients.put(old, topic, b"old")
    clients.transactional(target.bootstrap, name)
    old.produce(topic, b"zombie", partition=0)
    with pytest.raises(KafkaException) as caught:
        old.flush(clients.TIMEOUT_S)
    assert caught.value.args[0].code() in FENCED
    assert seen(target, topic, isolation="read_uncommitted") == [b"old"]


def test_a_transaction_past_its_timeout_is_aborted_and_its_producer_fenced(
    target: BrokerHandle, topic: str, unique: Callable[[str], str]
) -> None:
    slow = clients.transactional(target.bootstrap, unique("slow"), transaction_timeout_ms=1_000)
    slow.begin_transaction()
    clients.put(slow, topic, b"late")
    clients.put(clients.producer(target.bootstrap), topic, b"behind")
    reader = clients.consumer(target.bootstrap)
    reader.assign([TopicPartition(topic, 0, 0)])
    wait_value(reader, b"behind")
    reader.close()
    with pytest.raises(KafkaException) as caught:
        slow.commit_transaction(clients.TIMEOUT_S)
    assert caught.value.args[0].code() in FENCED
    assert seen(target, topic) == [b"behind"]


def test_a_timeout_above_the_brokers_maximum_is_refused(target: BrokerHandle, unique: Callable[[str], str]) -> None:
    greedy = clients.producer(target.bootstrap, transactional_id=unique("greedy"), transaction_timeout_ms=900_001)
    with pytest.raises(KafkaException) as caught:
        greedy.init_transactions(clients.TIMEOUT_S)
    assert caught.value.args[0].code() == KafkaError.INVALID_TRANSACTION_TIMEOUT


@pytest.mark.parametrize("side", Side)
def test_a_commit_whose_request_or_reply_is_lost_happens_once(topic: str, proxy: Proxy, side: Side) -> None:
    writer = clients.transactional(proxy.bootstrap, topic, retry_backoff_ms=10)
    writer.begin_transaction()
    clients.put(writer, topic, b"1", b"2")
    lost = proxy.rule("EndTxn", side, Action.CUT)
    writer.commit_transaction(clients.TIMEOUT_S)
    lost.wait_hit()
    assert proxy.count("EndTxn") >= 2, "librdkafka resends by itself and reports success"
    writer.begin_transaction()
    clients.put(writer, topic, b"3")
    writer.commit_transaction(clients.TIMEOUT_S)
    clients.wait_value(proxy.bootstrap, topic, 0, b"3")  # Kafka answers before the markers are written
    assert clients.values(clients.read(proxy.bootstrap, topic)) == [b"1", b"2", b"3"]


def test_a_producer_keeps_its_id_but_not_its_open_transaction_when_it_comes_back(
    target: BrokerHandle, topic: str, unique: Callable[[str], str]
) -> None:
    name = unique("comes-back")
    for round_ in range(3):
        writer = clients.transactional(target.bootstrap, name)
        writer.begin_transaction()
        clients.put(writer, topic, b"kept %d" % round_)
        writer.commit_transaction(clients.TIMEOUT_S)
        writer.begin_transaction()
        clients.put(writer, topic, b"left open %d" % round_)
        del writer  # librdkafka sends nothing at its end: the transaction stays open
    clients.transactional(target.bootstrap, name)
    assert seen(target, topic) == [b"kept 0", b"kept 1", b"kept 2"]


def test_many_transactions_in_a_row_leave_what_was_committed(
    target: BrokerHandle, topic: str, writer: Producer
) -> None:
    kept = []
    for number in range(60):
        writer.begin_transaction()
        clients.put(writer, topic, b"%d" % number)
        if number % 3:
            writer.commit_transaction(clients.TIMEOUT_S)
            kept.append(b"%d" % number)
        else:
            writer.abort_transaction(clients.TIMEOUT_S)
    assert seen(target, topic) == kept


def test_aiokafkas_transactions(target: BrokerHandle, topic: str, unique: Callable[[str], str]) -> None:
    async def write() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=target.bootstrap, transactional_id=unique("aio"))
        async with producer:
            async with producer.transaction():
                await producer.send_and_wait(topic, b"kept", partition=0)
            await producer.begin_transaction()
            await producer.send_and_wait(topic, b"dropped", partition=0)
            await producer.abort_transaction()
            async with producer.transaction():
                await producer.send_and_wait(topic, b"kept too", partition=0)

    asyncio.run(write())
    assert seen(target, topic) == [b"kept", b"kept too"]
