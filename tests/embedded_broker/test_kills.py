"""Killed at random moments under transactional load: acked is there, transactions are whole, nothing is twice."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.embedded_broker.process import BrokerProcess

pytestmark = pytest.mark.tier("extended")  # brokers in processes

TOPIC, PARTITIONS = "load", 3
KILLS = 5
SEED = 20261121
COMMITTED_MIN = 11  # of each writer
COMMITTED_S_MAX = 120.0


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path / "data")
    process.start()
    yield process
    process.kill()


@dataclass
class Writer(threading.Thread):
    """Transactions of one producer, each with one value in each partition and a position; some are aborted.

    `committed` and `aborted` are those whose end was acknowledged; `unknown` those whose end was not.
    """

    address: str
    name_: str
    stop: threading.Event
    committed: list[int] = field(default_factory=list)
    aborted: list[int] = field(default_factory=list)
    unknown: list[int] = field(default_factory=list)
    failure: Exception | None = None
    ended: threading.Condition = field(default_factory=threading.Condition)  # notified of each transaction that ended

    def __post_init__(self) -> None:
        super().__init__()

    __hash__ = threading.Thread.__hash__

    def run(self) -> None:
        number = 0
        try:
            while not self.stop.is_set():
                number = self._one_producer(number)
        except Exception as error:  # noqa: BLE001 - shown by the test
            with self.ended:
                self.failure = error
                self.ended.notify_all()

    def _one_producer(self, number: int) -> int:
        """Transactions until one fails. The next producer of this id fences this one."""
        producer = Producer({
            "bootstrap.servers": self.address, "transactional.id": self.name_, "linger.ms": 1,
            "transaction.timeout.ms": 10_000, "retry.backoff.ms": 20, "reconnect.backoff.max.ms": 200, "log_level": 0,
            # librdkafka 2.16 loses send_offsets_to_transaction for a minute after a re-bootstrap.
            "metadata.recovery.strategy": "none",
        })  # fmt: skip
        positions = Consumer({"bootstrap.servers": self.address, "group.id": self.name_, "log_level": 0})
        try:
            producer.init_transactions(30)
            while not self.stop.is_set():
                number += 1
                self._transaction(producer, positions, number)
        except KafkaException:
            self.unknown.append(number)
        finally:
            positions.close()
            producer.purge()
        return number

    def _transaction(self, producer: Producer, positions: Consumer, number: int) -> None:
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            producer.produce(TOPIC, f"{self.name_}:{number}".encode(), partition=partition)
        at = [TopicPartition(TOPIC, 0, number)]
        producer.send_offsets_to_transaction(at, positions.consumer_group_metadata(), 10)
        if number % 5 == 0:
            producer.flush(10)
            producer.abort_transaction(10)
            self._note(self.aborted, number)
        else:
            producer.commit_transaction(10)
            self._note(self.committed, number)

    def _note(self, ended: list[int], number: int) -> None:
        with self.ended:
            ended.append(number)
            self.ended.notify_all()

    def wait_committed(self, more: int) -> None:
        """Until so many more transactions are committed than now, or the writer has failed."""
        with self.ended:
            enough = len(self.committed) + more
            assert self.ended.wait_for(lambda: len(self.committed) >= enough or self.failure, COMMITTED_S_MAX), self


def test_transactions_survive_kills_whole(broker: BrokerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result()
    stop, dice = threading.Event(), random.Random(SEED)
    writers = [Writer(broker.address, f"w{number}", stop) for number in range(3)]
    for writer in writers:
        writer.start()
    for _ in range(KILLS):
        dice.choice(writers).wait_committed(dice.randint(1, 8))
        time.sleep(dice.uniform(0.0, 0.1))  # anywhere in what they do next
        broker.kill()
        broker.start()
    for writer in writers:
        writer.wait_committed(COMMITTED_MIN - len(writer.committed))
    stop.set()
    for writer in writers:
        writer.join(60)
        assert writer.failure is None
    for writer in writers:
        check(broker.address, writer)


def check(address: str, writer: Writer) -> None:
    """Every partition has each committed transaction once, no aborted one, and all partitions the same."""
    assert len(writer.committed) >= COMMITTED_MIN
    seen = [numbers(address, writer.name_, partition) for partition in range(PARTITIONS)]
    for values in seen:
        assert sorted(values) == values, "reordered"
        assert len(set(values)) == len(values), "doubled"
        assert set(writer.committed) <= set(values), "lost"
        assert not set(writer.aborted) & set(values), "aborted, but visible"
        assert set(values) <= set(writer.committed) | set(writer.unknown)
        assert values == seen[0], "a transaction is not whole"
    consumer = Consumer({"bootstrap.servers": address, "group.id": writer.name_, "isolation.level": "read_committed"})
    [position] = consumer.committed([TopicPartition(TOPIC, 0)], 10)
    consumer.close()
    assert position.offset == seen[0][-1], "position and records differ"


def numbers(address: str, name: str, partition: int) -> list[int]:
    """What a read_committed reader sees of a writer."""
    consumer = Consumer({
        "bootstrap.servers": address, "group.id": "reader", "isolation.level": "read_committed",
        "enable.partition.eof": True, "auto.offset.reset": "error", "enable.auto.commit": False,
    })  # fmt: skip
    consumer.assign([TopicPartition(TOPIC, partition, 0)])
    found: list[int] = []
    while True:
        message = consumer.poll(20)
        assert message is not None, "the last stable offset is stuck"
        error = message.error()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            break
        writer, _, number = (message.value() or b"").decode().partition(":")
        if writer == name:
            found.append(int(number))
    consumer.close()
    return found
