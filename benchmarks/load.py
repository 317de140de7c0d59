"""Load: a backlog in large batches, or a steady rate of records that carry when they were written."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

PARTITIONS = 4
BATCH_BYTES = 131_072
RECORD_BYTES = 256
RUN_RECORDS = 480  # about one batch, then the next partition
EVEN = (0, 1, 2, 3)
SKEWED = (0, 1, 0, 2, 0, 3, 0, 1, 0, 2, 0, 3, 0, 0, 0)
"""Partitions of a backlog's batches, in turn: as many in each, or 60 % in one."""


def create(bootstrap: str, topic: str, partitions: int = PARTITIONS) -> None:
    """Create a topic."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for future in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
        future.result(30)


def delete(bootstrap: str, topic: str) -> None:
    """Delete a topic."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})  # kept: its futures end with it
    admin.delete_topics([topic])[topic].result(30)


def _partition(number: int, turns: Sequence[int] = EVEN) -> int:
    return turns[number // RUN_RECORDS % len(turns)]


def partitions(turns: Sequence[int]) -> int:
    """Say how many partitions a backlog has."""
    return max(PARTITIONS, 1 + max(turns))


def _key(number: int) -> bytes:
    return b"%016d" % number


def last_keys(records: int, turns: Sequence[int] = EVEN) -> dict[int, bytes]:
    """Key of the last record of each partition of a backlog of `records`."""
    last = range(max(0, records - RUN_RECORDS * len(turns)), records)
    return {_partition(number, turns): _key(number) for number in last}


def backlog(bootstrap: str, topic: str, records: int, turns: Sequence[int] = EVEN) -> None:
    """Write `records` of 256 bytes in batches of 128 KiB, plain. `turns`: the partitions of the batches."""
    create(bootstrap, topic, partitions(turns))
    settings = {"batch.size": BATCH_BYTES, "linger.ms": 100, "queue.buffering.max.messages": 500_000, "acks": "1"}
    producer = Producer({"bootstrap.servers": bootstrap, **settings})
    value = b"x" * (RECORD_BYTES - 16)
    for number in range(records):
        while True:
            try:
                producer.produce(topic, value, _key(number), _partition(number, turns))
                break
            except BufferError:
                producer.poll(0.05)
    if producer.flush(120):
        raise RuntimeError("the backlog was not written")


def prime(bootstrap: str, topic: str, partitions: int = PARTITIONS) -> None:
    """One record in each partition, so that it can be seen when a system has begun to copy."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(partitions):
        producer.produce(topic, b"%020.6f" % 0, b"prime", number)
    producer.flush(30)


class NotArrived(Exception):
    """Records were written, and not copied within a minute."""


class Steady:
    """Writes at a rate, and reads the copy read_committed: end-to-end latencies by time of writing."""

    def __init__(
        self,
        source: str,
        target: str,
        topic: str,
        copy: str,
        rate: int,
        partitions: int = PARTITIONS,
        record_bytes: int = RECORD_BYTES,
    ) -> None:
        """`rate`: records/s over all partitions, which take turns."""
        self._source, self._target, self._topic, self._copy, self._rate = source, target, topic, copy, rate
        self._partitions, self._record_bytes = partitions, record_bytes
        self._stop = threading.Event()
        self.latencies: list[tuple[float, float]] = []

    def _read(self) -> None:
        settings = {"group.id": "bench", "auto.offset.reset": "earliest", "fetch.wait.max.ms": 50}
        reader = Consumer({"bootstrap.servers": self._target, "isolation.level": "read_committed", **settings})
        reader.assign([TopicPartition(self._copy, number, 0) for number in range(self._partitions)])
        while not self._stop.is_set():
            message = reader.poll(0.1)
            if message is None:
                continue
            error = message.error()
            if error is None:
                written = float((message.value() or b"0")[:20])
                self.latencies.append((written, time.time() - written))
            elif error.code() not in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION):
                raise KafkaException(error)
        reader.close()

    def run(self, seconds: float) -> None:
        """Write for `seconds` and read until the last record has arrived. Raises NotArrived a minute after that."""
        reading = threading.Thread(target=self._read)
        reading.start()
        producer, filler = (
            Producer({"bootstrap.servers": self._source, "linger.ms": 0}),
            b"x" * (self._record_bytes - 20),
        )
        began, number = time.time(), 0
        while (elapsed := time.time() - began) < seconds:
            while number < elapsed * self._rate:
                producer.produce(self._topic, b"%020.6f" % time.time() + filler, b"k", number % self._partitions)
                number += 1
            producer.poll(0)
            time.sleep(0.001)  # the clock of the load
        producer.flush(30)
        deadline = time.time() + 60
        while len(self.latencies) < number + self._partitions and time.time() < deadline:
            time.sleep(0.05)
        self._stop.set()
        reading.join()
        if len(self.latencies) < number + self._partitions:
            raise NotArrived(f"{number} records written, {len(self.latencies) - self._partitions} arrived")
