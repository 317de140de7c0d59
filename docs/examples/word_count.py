"""Counts words, exactly once: reads one topic, writes another, each record's effects in one transaction.

word_count.py ADDRESS STAGE [--die-in N]   STAGE is one of `STAGES`; N-th transaction: SIGKILL just before its commit.
Stops at the end of what it reads.
"""

from __future__ import annotations

import argparse
import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

TIMEOUT_S = 30.0
ERRORS = 3  # of syslog's levels: a predecessor's transaction that is being aborted would be a warning
Change = Callable[[str, dict[str, str]], list[tuple[str, str]]]


def count(text: str, counts: dict[str, str]) -> list[tuple[str, str]]:
    """For each word of the text its new count."""
    changed = []
    for word in text.split():
        counts[word] = str(int(counts.get(word, 0)) + 1)
        changed.append((word, counts[word]))
    return changed


def split(text: str, _: dict[str, str]) -> list[tuple[str, str]]:
    """The words of the text."""
    return [(word, word) for word in text.split()]


class Stage(NamedTuple):
    """What one process does: the topic it reads, the one it writes, and what becomes of a record."""

    source: str
    target: str
    change: Change


STAGES = {
    "word-count": Stage("sentences", "counts", count),
    "splitter": Stage("lines", "words", split),
    "counter": Stage("words", "totals", count),
}


def run(address: str, name: str, die_in: int | None) -> None:
    """Run a stage from where its transactional id stands to the end of its source."""
    source, target, change = STAGES[name]
    producer = Producer({"bootstrap.servers": address, "transactional.id": name, "log_level": ERRORS})
    producer.init_transactions(TIMEOUT_S)  # fences whoever had this name, and aborts what they left open
    counts = dict(table(address, target))  # what was committed, and nothing else
    consumer = reader(address, group=name)
    at = TopicPartition(source, 0)
    stands = consumer.committed([at], TIMEOUT_S)[0].offset
    consumer.assign([TopicPartition(source, 0, stands if stands >= 0 else OFFSET_BEGINNING)])
    for number, message in enumerate(records(consumer), 1):
        producer.begin_transaction()
        for key, value in change(message.value().decode(), counts):
            producer.produce(target, value, key)
        following = TopicPartition(source, 0, message.offset() + 1)
        producer.send_offsets_to_transaction([following], consumer.consumer_group_metadata(), TIMEOUT_S)
        producer.flush(TIMEOUT_S)
        if number == die_in:
            os.kill(os.getpid(), signal.SIGKILL)
        producer.commit_transaction(TIMEOUT_S)
    consumer.close()
    wait_visible(address, target)


def reader(address: str, group: str, isolation: str = "read_committed") -> Consumer:
    """A consumer that commits nothing by itself and says when it's at the end."""
    return Consumer(
        {
            "bootstrap.servers": address,
            "group.id": group,
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 50,
            "log_level": ERRORS,
        }
    )


def records(consumer: Consumer) -> Iterator[Message]:
    """Everything up to the end of the partition. Raises KafkaException."""
    while True:
        message = consumer.poll(TIMEOUT_S)
        if message is None:
            raise TimeoutError(f"no answer in {TIMEOUT_S} s")
        error = message.error()
        if error is None:
            yield message
        elif error.code() == KafkaError._PARTITION_EOF:
            return
        else:
            raise KafkaException(error)


def table(address: str, topic: str, isolation: str = "read_committed") -> list[tuple[str, str]]:
    """All records of a topic as (key, value), oldest first."""
    consumer = reader(address, "table", isolation)
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    try:
        return [(message.key().decode(), message.value().decode()) for message in records(consumer)]
    finally:
        consumer.close()


def wait_visible(address: str, topic: str) -> None:
    """Return once nothing is open in a topic: a commit is answered before its markers are written."""
    at, ends = TopicPartition(topic, 0), []
    readers = [reader(address, "look", isolation) for isolation in ("read_committed", "read_uncommitted")]
    deadline = time.monotonic() + TIMEOUT_S
    while not ends or ends[0] != ends[1]:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{topic}: stable up to {ends[0]} of {ends[1]} after {TIMEOUT_S} s")
        ends = [each.get_watermark_offsets(at, TIMEOUT_S, cached=False)[1] for each in readers]
    for each in readers:
        each.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("stage", choices=sorted(STAGES))
    parser.add_argument("--die-in", type=int, metavar="N")
    given = parser.parse_args()
    run(given.address, given.stage, given.die_in)
