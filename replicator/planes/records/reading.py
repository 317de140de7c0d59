"""Whole small topics, read to their end; and offsets at both ends of partitions. All waits are bounded."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from typing import cast

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from replicator.config import Cluster, Flow
from replicator.errors import Retriable
from replicator.planes.contract import Partition
from replicator.planes.records import failures, metadata, properties

Record = tuple[bytes | None, bytes | None]


class Reader:
    """Two assigned consumers on one cluster: read_committed for records, read_uncommitted for ends."""

    def __init__(self, flow: Flow, cluster: Cluster) -> None:
        self._cluster = cluster
        self._timeout_s = flow.limits.request_timeout_ms / 1000
        self._patience_s = (flow.limits.request_timeout_ms + flow.limits.transaction_timeout_ms) / 1000
        self._committed = Consumer(properties.reader(cluster, flow, committed=True))
        self._uncommitted = Consumer(properties.reader(cluster, flow, committed=False))

    def bounds(self, at: Partition) -> tuple[int, int]:
        """Log start and high watermark, open transactions included."""
        return self._watermarks(self._uncommitted, at)

    def committed_bounds(self, at: Partition) -> tuple[int, int]:
        """Log start and last stable offset."""
        return self._watermarks(self._committed, at)

    def _watermarks(self, consumer: Consumer, at: Partition) -> tuple[int, int]:
        try:
            low, high = consumer.get_watermark_offsets(TopicPartition(*at), timeout=self._timeout_s, cached=False)
        except KafkaException as error:
            raise failures.classify_start(error, self._cluster.name, f"offsets of {at}") from error
        return low, high

    def partitions(self, topics: Collection[str]) -> dict[str, int]:
        """Partition counts of those of `topics` that exist."""
        try:
            known = self._uncommitted.list_topics(timeout=self._timeout_s).topics
        except KafkaException as error:
            raise failures.classify_start(error, self._cluster.name, "list topics") from error
        return {name: len(known[name].partitions) for name in topics if name in known and known[name].error is None}

    def at_time(self, partitions: Iterable[Partition], timestamp_ms: int) -> dict[Partition, int]:
        """First offset at or after `timestamp_ms`; -1 where there is none."""
        asked = [TopicPartition(at.topic, at.partition, timestamp_ms) for at in partitions]
        try:
            found = self._committed.offsets_for_times(asked, timeout=self._timeout_s)
        except KafkaException as error:
            raise failures.classify_start(error, self._cluster.name, "offsets for a time") from error
        for answer in found:
            if answer.error is not None:
                raise failures.classify_start(answer.error, self._cluster.name, f"offset for a time of {answer}")
        return {Partition(answer.topic, answer.partition): answer.offset for answer in found}

    def whole(self, topic: str, partitions: Iterable[int]) -> list[Record]:
        """All committed records of `topic` up to the ends that a read_uncommitted reader sees now.

        An open transaction hides what follows it, so this waits for it to end, at most as long as one may stay
        open; then raises Retriable.
        """
        ends = {Partition(topic, number): self.bounds(Partition(topic, number)) for number in partitions}
        records: list[Record] = []
        for at, (low, high) in ends.items():
            if high > low:
                records += self._up_to(at, low, high)
        return records

    def _up_to(self, at: Partition, low: int, high: int) -> list[Record]:
        consumer, records = self._committed, []
        deadline = time.monotonic() + self._patience_s
        metadata.learn(consumer, {at.topic})
        consumer.assign([TopicPartition(at.topic, at.partition, low)])
        while True:
            message = consumer.poll(0.5)
            if time.monotonic() > deadline:
                raise Retriable(f"cluster {self._cluster.name}: {at} could not be read up to offset {high}")
            if message is None:
                continue
            error = message.error()
            if error is None:
                records.append((message.key(), message.value()))
                if cast(int, message.offset()) + 1 >= high:
                    break
            elif error.code() == KafkaError._PARTITION_EOF:
                if cast(int, message.offset()) >= high:
                    break
            elif error.code() not in failures.UNREACHABLE:
                raise failures.classify_start(error, self._cluster.name, f"reading {at}")
        consumer.unassign()
        return records

    def first_after(self, offsets: Mapping[Partition, int]) -> dict[Partition, int]:
        """The first committed record at or after each offset; partitions without one are left out."""
        if not offsets:
            return {}
        found: dict[Partition, int] = {}
        waiting = set(offsets)
        consumer = self._committed
        metadata.learn(consumer, {at.topic for at in offsets})
        consumer.assign([TopicPartition(at.topic, at.partition, offset) for at, offset in offsets.items()])
        deadline = time.monotonic() + self._timeout_s
        while waiting:
            message = consumer.poll(0.5)
            if time.monotonic() > deadline:
                raise Retriable(f"cluster {self._cluster.name}: the ends of {sorted(waiting)} can't be read")
            if message is None:
                continue
            error = message.error()
            if error is not None and error.code() in failures.UNREACHABLE:
                continue
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise failures.classify_start(error, self._cluster.name, f"reading {message.topic()}")
            at = Partition(cast(str, message.topic()), cast(int, message.partition()))
            if at in waiting:
                waiting.discard(at)
                if error is None:
                    found[at] = cast(int, message.offset())
        consumer.unassign()
        return found

    def close(self) -> None:
        """Close both consumers."""
        self._committed.close()
        self._uncommitted.close()
