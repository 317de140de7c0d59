"""A reader of its own: what a read_committed consumer sees on either side, and how far the flow says it is."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from cli.demo.compare import Seen

READ_S_MAX = 60.0
_NAME = re.compile(rb"#\d{9}")


class ReadFailed(Exception):
    """A side could not be read to its end."""


def create_topics(bootstrap: str, topics: Mapping[str, int]) -> None:
    """Create the demo's topics and wait until the broker has them."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(name, count, 1) for name, count in topics.items()]).values():
        future.result(30)


def consumer(bootstrap: str, group: str = "demo-reader", isolation: str = "read_committed") -> Consumer:
    """A consumer that is assigned by hand."""
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 50,
            "log_level": 0,
        }
    )


def ends(reader: Consumer, topics: Mapping[str, int]) -> dict[tuple[str, int], int]:
    """Last stable offsets of all partitions."""
    return {
        (topic, number): reader.get_watermark_offsets(TopicPartition(topic, number), timeout=30, cached=False)[1]
        for topic, count in topics.items()
        for number in range(count)
    }


def read(bootstrap: str, topics: Mapping[str, int]) -> dict[tuple[str, int], list[Seen]]:
    """Every committed record of every partition, in order, up to the last stable offsets."""
    reader = consumer(bootstrap)
    found: dict[tuple[str, int], list[Seen]] = {(t, p): [] for t, count in topics.items() for p in range(count)}
    waiting = set(found)
    reader.assign([TopicPartition(topic, number, 0) for topic, number in found])
    deadline = time.monotonic() + READ_S_MAX
    try:
        while waiting:
            if time.monotonic() > deadline:
                raise ReadFailed(f"{bootstrap}: {sorted(waiting)} could not be read to the end")
            for message in reader.consume(1000, 0.5):
                error, topic, number = message.error(), message.topic(), message.partition()
                at = (str(topic), -1 if number is None else number)
                if error is None:
                    headers = tuple((str(key), _raw(value)) for key, value in list(message.headers() or ()))
                    key, value = _raw(message.key()), _raw(message.value())
                    found[at].append(Seen(name(key, value, headers), key, value, headers, message.timestamp()[1]))
                elif error.code() == KafkaError._PARTITION_EOF:
                    waiting.discard(at)
                elif not error.retriable():
                    raise ReadFailed(f"{bootstrap}: {error.str()}")
    finally:
        reader.close()
    return found


def _raw(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def name(key: bytes | None, value: bytes | None, headers: tuple[tuple[str, bytes | None], ...]) -> bytes:
    """The number that the load put into the record; the whole content if somebody destroyed it."""
    for text in (key, value, *(content for _, content in headers)):
        if text and (match := _NAME.match(text)):
            return match.group()
    return repr((key, value, headers)).encode()
