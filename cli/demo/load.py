"""Writes to the source until SIGTERM. A process of its own.

Plain and transactional producers for every compression; transactions overlap each other and plain records in the
same partitions, and some abort. Each record carries its number.
"""

from __future__ import annotations

import random
import signal
import sys
import threading
import time

from confluent_kafka import KafkaError, Message, Producer

from cli.demo import records

COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
ABORT_SHARE = 0.25
OPEN_MAX = 2  # transactions at a time: they hold up what readers see
BURST_RECORDS = 25
TRICKLE = 0.25  # of the rate, once all records that were asked for are there: enough to be killed at work
ANSWER_S_MAX = 30.0


class Load:
    """All producers, the number of the next record, and how many records are written and not aborted."""

    def __init__(self, bootstrap: str, topics: dict[str, int], seed: int, records_min: int, rate: float) -> None:
        self._partitions = [(topic, number) for topic, count in topics.items() for number in range(count)]
        self._chance = random.Random(seed)
        self._records_min, self._rate = records_min, rate
        self._number = self.committed = 0
        common = {
            "bootstrap.servers": bootstrap,
            "linger.ms": 5,
            "enable.idempotence": True,
            "message.max.bytes": records.LIMIT_BYTES,
        }
        self._plain = [Producer({**common, "compression.type": codec}) for codec in COMPRESSIONS]
        self._transactional = [
            Producer({**common, "compression.type": codec, "transactional.id": f"demo-load-{codec}"})
            for codec in COMPRESSIONS
        ]
        self._open: dict[int, int] = {}  # transactional producer → records in its open transaction
        for producer in self._transactional:
            producer.init_transactions(ANSWER_S_MAX)

    def run(self, stop: threading.Event) -> None:
        """Write at the given rate, slower once there are enough, until `stop` is set; end open transactions."""
        began = time.monotonic()
        self._plain_write(self._plain[0], [records.make_big(self._next(), self._chance)])
        while not stop.is_set() or self.committed < self._records_min:
            self._turn()
            stop.wait(max(0.0, self._due_s() - (time.monotonic() - began)))
        for index in list(self._open):
            self._end(index)
        for producer in self._plain:
            if producer.flush(ANSWER_S_MAX):
                raise RuntimeError("records of the load were not acknowledged")

    def _due_s(self) -> float:
        """Return when the records so far are due, in seconds from the beginning."""
        beyond = max(0, self.committed - self._records_min)
        return (self.committed - beyond + beyond / TRICKLE) / self._rate

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _burst(self) -> list[records.OddRecord]:
        return [records.make(self._next(), self._chance) for _ in range(BURST_RECORDS)]

    def _turn(self) -> None:
        """Write a burst: plain, or the beginning or the end of a transaction."""
        index = self._chance.randrange(len(COMPRESSIONS))
        if self._chance.random() < 0.4:
            self._plain_write(self._plain[index], self._burst())
            return
        if len(self._open) >= OPEN_MAX:
            index = self._chance.choice(list(self._open))
        ending = index in self._open
        if not ending:
            self._transactional[index].begin_transaction()
            self._open[index] = 0
        self._write(self._transactional[index], self._burst())
        self._open[index] += BURST_RECORDS
        if ending:
            self._end(index)

    def _end(self, index: int) -> None:
        producer, count = self._transactional[index], self._open.pop(index)
        producer.flush(ANSWER_S_MAX)  # an abort before the first record has arrived can end fatally in librdkafka
        if self._chance.random() < ABORT_SHARE:
            producer.abort_transaction(ANSWER_S_MAX)
        else:
            producer.commit_transaction(ANSWER_S_MAX)
            self.committed += count

    def _plain_write(self, producer: Producer, burst: list[records.OddRecord]) -> None:
        self._write(producer, burst)
        self.committed += len(burst)  # flushed at the end; a refused one fails the whole load

    def _write(self, producer: Producer, burst: list[records.OddRecord]) -> None:
        for odd in burst:
            topic, partition = self._chance.choice(self._partitions)
            now_ms = int(time.time() * 1000) - odd.age_ms
            headers: list[tuple[str, str | bytes | None]] = list(odd.headers)
            producer.produce(topic, odd.value, odd.key, partition, _refused, timestamp=now_ms, headers=headers)
        producer.poll(0)


def _refused(error: KafkaError | None, message: Message) -> None:
    if error is not None and error.code() not in (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT):
        raise RuntimeError(f"{message.topic()}[{message.partition()}]: {error.str()}")


def main(arguments: list[str]) -> None:
    """Run as `python -m cli.demo.load BOOTSTRAP TOPIC:PARTITIONS,… SEED RECORDS RATE`.

    Says `writing` when it begins; SIGTERM ends it as soon as there are RECORDS committed records, and it says
    how many there are.
    """
    bootstrap, listed, seed, records_min, rate = arguments
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    topics = {name: int(count) for name, _, count in (part.partition(":") for part in listed.split(","))}
    load = Load(bootstrap, topics, int(seed), int(records_min), float(rate))
    print("writing", flush=True)
    load.run(stop)
    print(load.committed, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
