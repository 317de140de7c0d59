"""Writes to the source as odd a mixture of records as Kafka allows, until it is told to stop. A process of its own.

Plain and transactional producers (some transactions abort), every compression, null and empty keys and values,
tombstones, repeated and empty headers, one record near the size limit. Each record carries its number.
"""

from __future__ import annotations

import random
import signal
import sys
import time
from dataclasses import dataclass

from confluent_kafka import Producer

COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
LIMIT_BYTES = 1_048_588  # max.message.bytes, by default
BIG_BYTES = LIMIT_BYTES - 200
ABORT_SHARE = 0.25
BURST_RECORDS = 40
Headers = list[tuple[str, str | bytes | None]]


@dataclass(frozen=True, slots=True)
class Odd:
    """A record to write."""

    key: bytes | None
    value: bytes | None
    headers: Headers


def make(number: int, chance: random.Random) -> Odd:
    """The record of this number: its kind goes round, its number stands in key, value or a header."""
    name = b"#%09d" % number
    noise = chance.randbytes(chance.randrange(20, 300))
    kinds: tuple[Odd, ...] = (
        Odd(name, noise, []),
        Odd(None, name + noise, []),
        Odd(b"", name + noise, [("trace", noise[:16])]),
        Odd(name, None, []),
        Odd(name, b"", [("empty", b""), ("null", None)]),
        Odd(None, None, [("n", name)]),
        Odd(name, noise * 3, [("again", b"1"), ("again", b"2"), ("again", b"1")]),
        Odd(noise, name, [("", b"no key"), ("ключ", "wert ✓".encode())]),
    )
    return kinds[number % len(kinds)]


class Load:
    """All producers, and the number of the next record."""

    def __init__(self, bootstrap: str, topics: dict[str, int], seed: int, records_max: int, rate: int) -> None:
        self._topics, self._chance, self._records_max, self._rate = topics, random.Random(seed), records_max, rate
        self._number = 0
        common: dict[str, str | int | bool] = {
            "bootstrap.servers": bootstrap,
            "linger.ms": 5,
            "enable.idempotence": True,
        }
        common["message.max.bytes"] = LIMIT_BYTES + 1_000
        self._plain = [Producer({**common, "compression.type": codec}) for codec in COMPRESSIONS]
        self._transactional = [
            Producer({**common, "compression.type": codec, "transactional.id": f"demo-load-{codec}"})
            for codec in COMPRESSIONS
        ]
        for producer in self._transactional:
            producer.init_transactions(30)

    def _write(self, producer: Producer, count: int) -> None:
        for _ in range(count):
            topic = self._chance.choice(list(self._topics))
            odd = make(self._number, self._chance)
            partition = self._chance.randrange(self._topics[topic])
            producer.produce(topic, odd.value, odd.key, partition, headers=odd.headers)
            self._number += 1

    def big(self) -> None:
        """One record near the size limit."""
        topic = next(iter(self._topics))
        value = (b"#%09d" % self._number) + self._chance.randbytes(BIG_BYTES - 10)
        self._plain[0].produce(topic, value, None, 0)
        self._number += 1
        self._plain[0].flush()

    def run(self, stopped: list[bool]) -> int:
        """Bursts by every producer in turn until stopped or enough; the count, aborted records included."""
        began = time.monotonic()
        while not stopped and self._number < self._records_max:
            index = self._chance.randrange(len(COMPRESSIONS))
            if self._chance.random() < 0.5:
                self._write(self._plain[index], BURST_RECORDS)
                self._plain[index].poll(0)
            else:
                producer = self._transactional[index]
                producer.begin_transaction()
                self._write(producer, BURST_RECORDS)
                producer.flush()
                if self._chance.random() < ABORT_SHARE:
                    producer.abort_transaction(30)
                else:
                    producer.commit_transaction(30)
            ahead_s = self._number / self._rate - (time.monotonic() - began)
            if ahead_s > 0:
                time.sleep(ahead_s)  # the rate that was asked for
        for producer in self._plain:
            if producer.flush(30):
                raise RuntimeError("records of the load were not acknowledged")
        return self._number


def main(arguments: list[str]) -> None:
    """`python -m cli.demo.load BOOTSTRAP TOPIC:PARTITIONS,… SEED RECORDS RATE`; SIGTERM ends it cleanly."""
    bootstrap, topics, seed, records_max, rate = arguments
    stopped: list[bool] = []
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))
    counts = {name: int(count) for name, _, count in (part.partition(":") for part in topics.split(","))}
    load = Load(bootstrap, counts, int(seed), int(records_max), int(rate))
    print("writing", flush=True)
    load.big()
    print(load.run(stopped), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
