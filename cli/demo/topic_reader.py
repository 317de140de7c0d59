"""Reads topics as any read_committed consumer does, for the comparison. Imports nothing of the replicator."""

from __future__ import annotations

import time
from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from cli.demo.compare import ReadRecord
from cli.demo.model import DemoFailed
from cli.demo.records import name_of

ANSWER_S_MAX = 10.0
READ_S_MAX = 60.0
STABLE_S_MAX = 20.0
FOR_EVER = {"retention.ms": "-1"}  # records have times long ago, so that a demo can be repeated
Topics = Mapping[str, int]
At = tuple[str, int]


def create_topics(bootstrap: str, topics: Topics) -> None:
    """Create topics with their partition counts; returns when the broker has them."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for future in admin.create_topics(
        [NewTopic(name, count, 1, config=FOR_EVER) for name, count in topics.items()]
    ).values():
        future.result(ANSWER_S_MAX)


def consumer(bootstrap: str, group: str = "demo-reader", isolation: str = "read_committed") -> Consumer:
    """Make a consumer that is assigned by hand and joins no group."""
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 50,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
        }
    )


def ends(reader: Consumer, topics: Topics, timeout_s: float = ANSWER_S_MAX) -> dict[At, int]:
    """Return the ends of all partitions: last stable offsets, or high watermarks for a read_uncommitted reader.

    Raises KafkaException when the broker doesn't answer within `timeout_s`.
    """
    return {
        (topic, number): reader.get_watermark_offsets(TopicPartition(topic, number), timeout_s, cached=False)[1]
        for topic, count in topics.items()
        for number in range(count)
    }


def read_committed_positions(bootstrap: str, group: str, topics: Topics) -> dict[At, int]:
    """Read the offsets of a group; below 0 where it has none."""
    asked = [TopicPartition(topic, number) for topic, count in topics.items() for number in range(count)]
    reader = consumer(bootstrap, group)
    try:
        return {(at.topic, at.partition): at.offset for at in reader.committed(asked, timeout=ANSWER_S_MAX)}
    finally:
        reader.close()


def read(bootstrap: str, topics: Topics, *, stable: bool = True) -> dict[At, list[ReadRecord]]:
    """Read every committed record of every partition, in order. `stable`: wait until no transaction is open.

    Raises DemoFailed when a transaction stays open or a partition can't be read to its end.
    """
    if stable:
        _wait_stable(bootstrap, topics)
    reader = consumer(bootstrap)
    found: dict[At, list[ReadRecord]] = {
        (topic, number): [] for topic, count in topics.items() for number in range(count)
    }
    waiting = set(found)
    deadline = time.monotonic() + READ_S_MAX
    try:
        reader.assign([TopicPartition(topic, number, 0) for topic, number in found])
        while waiting:
            if time.monotonic() > deadline:
                raise DemoFailed(f"{bootstrap}: {sorted(waiting)} could not be read to the end")
            for message in reader.consume(1000, 0.5):
                error, at = message.error(), (str(message.topic()), int(message.partition() or 0))
                if error is None:
                    found[at].append(record_of(message))
                elif error.code() == KafkaError._PARTITION_EOF:
                    waiting.discard(at)
                elif not error.retriable():
                    raise DemoFailed(f"{bootstrap}: {error.str()}")
    finally:
        reader.close()
    return found


def _wait_stable(bootstrap: str, topics: Topics) -> None:
    """Wait until no transaction is open: markers reach partitions a moment after a commit was answered."""
    stable, all_ = consumer(bootstrap), consumer(bootstrap, isolation="read_uncommitted")
    deadline = time.monotonic() + STABLE_S_MAX
    try:
        while (low := ends(stable, topics)) != (high := ends(all_, topics)):
            if time.monotonic() > deadline:
                open_ = sorted(at for at in high if low[at] != high[at])
                raise DemoFailed(f"{bootstrap}: transactions stay open in {open_}")
    finally:
        stable.close()
        all_.close()


def record_of(message: Message) -> ReadRecord:
    """Return the record of a message that is no error."""
    headers = tuple((str(key), _raw(value)) for key, value in list(message.headers() or ()))
    key, value = _raw(message.key()), _raw(message.value())
    return ReadRecord(name_of(key, value, headers), key, value, headers, message.timestamp()[1])


def _raw(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
