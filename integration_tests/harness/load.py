"""Writes varied, numbered records to a source topic: transactions, aborts, tombstones, all compressions.

Every record that a read_committed reader may see carries a number that is unique within its partition, in its
key or (with a null or empty key) in its value. `finish` writes one last record to each partition, so that a
reader of the target can wait for it instead of for time to pass.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from confluent_kafka import KafkaError, Message, Producer

from integration_tests.harness.clients import TIMEOUT_S, producer, transactional

COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
EPOCH_MS = 1_700_000_000_000
Headers = list[tuple[str, str | bytes | None]]
HEADERS: tuple[Headers, ...] = (
    [],
    [("once", b"1")],
    [("twice", b"1"), ("twice", b"2"), ("", b"")],
    [("null", None), ("ключ", b"\xff")],
)


class Load:
    """A writer of one topic, reproducible from `seed` but for the brokers' timing."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, seed: int = 1, first: int = 0) -> None:
        """Numbers begin at `first` in every partition."""
        self.topic, self.partitions = topic, partitions
        self._random = random.Random(seed)
        self._next = dict.fromkeys(range(partitions), first)
        self._plain = [producer(bootstrap, compression_type=name, linger_ms=2) for name in COMPRESSIONS]
        self._transactional = transactional(bootstrap, f"load-{uuid.uuid4().hex[:12]}", compression_type="lz4")
        self._failed: list[KafkaError] = []
        self.committed = 0
        self.last = b""

    def plain(self, count: int) -> None:
        """`count` records outside transactions, each batch of them with the next compression."""
        left = count
        while left > 0:
            batch = min(left, self._random.randint(1, 40))
            self._write(self._random.choice(self._plain), batch)
            left -= batch
        self.committed += count

    def transaction(self, count: int, *, abort: bool = False) -> None:
        """One transaction over several partitions; aborted ones use numbers that nobody may ever see."""
        with self._open(abort):
            self._write(self._transactional, count)
        self.committed += 0 if abort else count

    def mixed(self, count: int) -> None:
        """About `count` records: plain batches, committed and aborted transactions in random order."""
        end = self.committed + count
        while self.committed < end:
            step = self._random.randint(1, 60)
            kind = self._random.choices(("plain", "commit", "abort"), (5, 3, 2))[0]
            if kind == "plain":
                self.plain(step)
            else:
                self.transaction(step, abort=kind == "abort")

    def finish(self) -> None:
        """One record to every partition, with the key `last`, to wait for."""
        self.last = b"last after %d" % self.committed
        for partition in range(self.partitions):
            self._produce(self._plain[0], partition, self.last, b"", [])
        self._flush(self._plain[0])
        self.committed += self.partitions

    @contextmanager
    def _open(self, abort: bool) -> Iterator[None]:
        self._transactional.begin_transaction()
        yield
        self._flush(self._transactional)  # librdkafka: an abort before the first ack can end fatally
        if abort:
            self._transactional.abort_transaction(TIMEOUT_S)
        else:
            self._transactional.commit_transaction(TIMEOUT_S)

    def _write(self, client: Producer, count: int) -> None:
        for _ in range(count):
            partition = self._random.randrange(self.partitions)
            number = self._next[partition]
            self._next[partition] += 1
            self._produce(client, partition, *self._record(number))
        self._flush(client)

    def _record(self, number: int) -> tuple[bytes | None, bytes | None, Headers]:
        name = b"record %08d" % number
        padding = self._random.randbytes(self._random.choice((0, 10, 200, 2_000)))
        shapes: tuple[tuple[bytes | None, bytes | None], ...] = (
            (name, padding),
            (name, None),  # a tombstone
            (name, b""),
            (None, name + padding),
            (b"", name + padding),
        )
        key, value = self._random.choice(shapes)
        return key, value, self._random.choice(HEADERS)

    def _produce(
        self, client: Producer, partition: int, key: bytes | None, value: bytes | None, headers: Headers
    ) -> None:
        timestamp_ms = EPOCH_MS + self._random.randrange(1_000_000)
        client.produce(
            self.topic, value, key, partition, timestamp=timestamp_ms, headers=headers, on_delivery=self._delivered
        )

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failed.append(error)

    def _flush(self, client: Producer) -> None:
        left = client.flush(TIMEOUT_S)
        assert not self._failed, f"the load itself failed: {self._failed}"
        assert left == 0, f"{left} records of the load without ack"


def fill(
    bootstrap: str,
    topic: str,
    counts: Sequence[int],
    record: Callable[[int, int], tuple[bytes | None, bytes | None]],
    **properties: object,
) -> None:
    """Write many records as fast as it goes.

    Args:
        bootstrap: the cluster's address.
        topic: where to.
        counts: how many, by partition.
        record: key and value of a partition's n-th record.
        properties: of the producer, with underscores for dots.
    """
    failed: list[KafkaError] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failed.append(error)

    client = producer(bootstrap, linger_ms=5, queue_buffering_max_messages=sum(counts) + 1, **properties)
    for partition, count in enumerate(counts):
        for number in range(count):
            key, value = record(partition, number)
            client.produce(topic, value, key, partition, on_delivery=delivered)
    left = client.flush(TIMEOUT_S)
    assert not failed, f"refused: {failed[0]}"
    assert left == 0, f"{left} records without ack"
