"""Backlogs of several shapes: how large records and batches are, and how they are compressed. Used by
`benchmarks.engines`.

Values come from a seed: no two runs compress differently. A record's key is its number.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache

from confluent_kafka import Producer

from benchmarks import load

KEY_BYTES = 16
POOL = 2_000
WORDS_SEED = 7


@dataclass(frozen=True, slots=True)
class Shape:
    """One backlog in `load.PARTITIONS` partitions. Batches are closed by `settings` of librdkafka's producer."""

    title: str
    records: int
    record_bytes: int  # with its key
    batch_records: int  # about as many a batch, then the next partition
    values: Callable[[int], list[bytes]]
    """Distinct values of so many bytes, taken in turn."""
    settings: dict[str, object] = field(default_factory=dict)

    def partition(self, number: int) -> int:
        """The partition of a record."""
        return number // self.batch_records % load.PARTITIONS

    def last_keys(self, records: int) -> dict[int, bytes]:
        """The key of each partition's last record."""
        last = range(max(0, records - self.batch_records * load.PARTITIONS), records)
        return {self.partition(number): b"%016d" % number for number in last}

    def write(self, bootstrap: str, topic: str, records: int) -> None:
        """Create the topic and fill it."""
        load.create(bootstrap, topic)
        common = {"linger.ms": 100, "queue.buffering.max.messages": 500_000, "acks": "1"}
        producer = Producer({"bootstrap.servers": bootstrap, **common, **self.settings})
        values = self.values(self.record_bytes - KEY_BYTES)
        for number in range(records):
            while True:
                try:
                    producer.produce(topic, values[number % len(values)], b"%016d" % number, self.partition(number))
                    break
                except BufferError:
                    producer.poll(0.05)
        if producer.flush(120):
            raise RuntimeError("the backlog was not written")


def plain(size: int) -> list[bytes]:
    """One value of one letter."""
    return [b"x" * size]


@cache
def orders(size: int) -> list[bytes]:
    """JSON as of an order: repeated names, numbers that differ."""
    draw = random.Random(WORDS_SEED)
    found = []
    for _ in range(POOL):
        order = {
            "order_id": draw.getrandbits(53),
            "customer": {"id": draw.getrandbits(40), "country": draw.choice(["DE", "FR", "US", "JP"])},
            "lines": [
                {
                    "sku": f"SKU-{draw.randrange(10**6):06}",
                    "quantity": draw.randint(1, 9),
                    "cents": draw.randrange(10**5),
                }
                for _ in range(1 + size // 150)
            ],
            "status": draw.choice(["created", "paid", "shipped"]),
        }
        text = json.dumps(order).encode()
        found.append((text + b" " * size)[:size])
    return found


@cache
def words(size: int) -> list[bytes]:
    """Text of a vocabulary of 4,000 words, which compresses to about two fifths."""
    draw = random.Random(WORDS_SEED)
    vocabulary = ["".join(draw.choices("etaoinshrdlucmfw", k=draw.randint(2, 10))) for _ in range(4_000)]
    return [" ".join(draw.choices(vocabulary, k=size // 3)).encode()[:size] for _ in range(POOL // 8)]


SHAPES = {
    "plain": Shape("256 B, batches of 128 KiB, plain", 4_000_000, 256, 480, plain, {"batch.size": 131_072}),
    "lz4": Shape(
        "450 B of JSON, lz4", 3_000_000, 450, 280, orders, {"batch.size": 131_072, "compression.type": "lz4"}
    ),
    "far": Shape("256 B, batches of 16 KiB, 50 ms of delay each way", 400_000, 256, 60, plain, {"batch.size": 16_384}),
    "small": Shape(
        "200 B, 4 a batch", 1_000_000, 200, 4, plain, {"batch.num.messages": 4, "linger.ms": 5}
    ),
    "zstd": Shape(
        "10 KiB of text, zstd", 100_000, 10_240, 12, words, {"batch.size": 131_072, "compression.type": "zstd"}
    ),
}  # fmt: skip
