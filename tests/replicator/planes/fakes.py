"""A consumer that gives what a test has put into it, in the place of confluent_kafka's."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from confluent_kafka import TIMESTAMP_CREATE_TIME, KafkaError, KafkaException, TopicPartition


@dataclass
class Message:
    """A record, or an error where there is one."""

    topic_: str | None
    partition_: int | None
    at: int | None
    error_: KafkaError | None = None
    payload: bytes | None = b"v"

    def topic(self) -> str | None:
        return self.topic_

    def partition(self) -> int | None:
        return self.partition_

    def offset(self) -> int | None:
        return self.at

    def error(self) -> KafkaError | None:
        return self.error_

    def leader_epoch(self) -> int | None:
        return 4

    def key(self) -> bytes | None:
        return b"k"

    def value(self) -> bytes | None:
        return self.payload

    def timestamp(self) -> tuple[int, int]:
        return TIMESTAMP_CREATE_TIME, 1_000

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return None

    def __len__(self) -> int:
        return len(self.payload or b"")


def records(topic: str, partition: int, *offsets: int) -> list[Message]:
    return [Message(topic, partition, offset) for offset in offsets]


def failed(code: int, topic: str | None, partition: int | None = 0, at: int | None = None, text: str = "") -> Message:
    return Message(topic, partition, at, KafkaError(code, text) if text else KafkaError(code))


@dataclass
class FakeConsumer:
    """Gives `queue` in order. `starting`: partitions that refuse a seek so many times."""

    conf: dict[str, Any]
    queue: list[Message] = field(default_factory=list)
    assigned: list[TopicPartition] = field(default_factory=list)
    sought: list[tuple[str, int, int]] = field(default_factory=list)
    unassigned: list[tuple[str, int]] = field(default_factory=list)
    starting: dict[tuple[str, int], int] = field(default_factory=dict)
    topics: dict[str, Any] = field(default_factory=dict)
    lists: bool = False

    def tell(self, code: int, text: str) -> None:
        """librdkafka's error callback."""
        self.conf["error_cb"](KafkaError(code, text))

    def assign(self, partitions: list[TopicPartition]) -> None:
        self.assigned = partitions

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        self.unassigned += [(at.topic, at.partition) for at in partitions]

    def seek(self, at: TopicPartition) -> None:
        left = self.starting.get((at.topic, at.partition), 0)
        if left:
            self.starting[at.topic, at.partition] = left - 1
            raise KafkaException(KafkaError(KafkaError._STATE))
        self.sought.append((at.topic, at.partition, at.offset))

    def poll(self, timeout: float) -> Message | None:
        return self.queue.pop(0) if self.queue else None

    def consume(self, limit: int, timeout: float) -> list[Message]:
        taken, self.queue = self.queue[:limit], self.queue[limit:]
        return taken

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        return partitions

    def list_topics(self, topic: str | None = None, timeout: float = 0) -> Any:
        if not self.lists:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return SimpleNamespace(topics=self.topics)

    def consumer_group_metadata(self) -> object:
        return "group"

    def close(self) -> None:
        pass


@dataclass
class Consumers:
    """Makes fake consumers and keeps them."""

    made: list[FakeConsumer] = field(default_factory=list)

    def __call__(self, conf: dict[str, Any], *, logger: Any = None) -> FakeConsumer:
        self.made.append(FakeConsumer(conf))
        return self.made[-1]
