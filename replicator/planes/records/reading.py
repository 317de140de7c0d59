"""Whole small topics, read to their end; and offsets at both ends of partitions. All waits are bounded."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import cast

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from replicator.config import Cluster, Flow
from replicator.errors import Retriable
from replicator.planes.contract import Partition
from replicator.planes.records import failures, metadata, properties

Record = tuple[bytes | None, bytes | None]


@dataclass(slots=True)
class Tail:
    """What a read_committed reader found from some offset on: at most two records, and the last stable offset."""

    records: list[int] = field(default_factory=list)
    stable: int = -1


class Reader:
    """Two assigned consumers on one cluster, opened on first use: read_committed for records, the other for ends."""

    def __init__(self, flow: Flow, cluster: Cluster) -> None:
        self._flow, self._cluster = flow, cluster
        self._timeout_s = flow.limits.request_timeout_ms / 1000
        self._patience_s = (flow.limits.request_timeout_ms + flow.limits.transaction_timeout_ms) / 1000
        self._open: dict[bool, Consumer] = {}

    @property
    def _committed(self) -> Consumer:
        return self._consumer(committed=True)

    @property
    def _uncommitted(self) -> Consumer:
        return self._consumer(committed=False)

    def _consumer(self, *, committed: bool) -> Consumer:
        if committed not in self._open:
            self._open[committed] = Consumer(properties.reader(self._cluster, self._flow, committed=committed))
        return self._open[committed]

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

    def committed_at_time(self, partitions: Iterable[Partition], timestamp_ms: int) -> dict[Partition, int]:
        """Offset of the first *committed* record at or after `timestamp_ms`; -1 where there is none.

        The broker's answer may be an aborted record. Those a copy does not have, so two sides that hold the same
        records would be cut at different ones.

        Raises Retriable when a partition can't be read in time.
        """
        found = self.at_time(partitions, timestamp_ms)
        waiting = {at for at, offset in found.items() if offset >= 0}
        consumer = self._committed
        metadata.learn(consumer, {at.topic for at in waiting})
        consumer.assign([TopicPartition(at.topic, at.partition, found[at]) for at in waiting])
        deadline = time.monotonic() + self._patience_s
        while waiting:
            message = consumer.poll(max(0.0, deadline - time.monotonic()))
            if time.monotonic() > deadline:
                raise Retriable(f"cluster {self._cluster.name}: {sorted(waiting)} can't be read at a time")
            error = message.error() if message is not None else None
            if message is None or (error is not None and error.code() in failures.UNREACHABLE):
                continue
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise failures.classify_start(error, self._cluster.name, f"reading {message.topic()}")
            at = Partition(cast(str, message.topic()), cast(int, message.partition()))
            if at not in waiting or (error is None and message.timestamp()[1] < timestamp_ms):
                continue
            found[at] = -1 if error is not None else cast(int, message.offset())
            waiting.discard(at)
        consumer.unassign()
        return found

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

    def tails(self, starts: Mapping[Partition, int], ends: Mapping[Partition, int]) -> dict[Partition, Tail]:
        """Read each partition from its start until the last stable offset has reached its end.

        `ends` are high watermarks. Waits for transactions that are just being ended, at most `request_timeout_ms`:
        a tail whose `stable` is lower then has one over it that stays open. Stops at the second record of a partition.
        Raises Retriable when a partition couldn't be read, however long its aborted tail may be.
        """
        found = {at: Tail() for at in starts}
        waiting = set(starts)
        consumer = self._committed
        metadata.learn(consumer, {at.topic for at in starts})
        consumer.assign([TopicPartition(at.topic, at.partition, offset) for at, offset in starts.items()])
        began = time.monotonic()
        self._read_tails(found, waiting, ends, began + self._timeout_s)
        for at in sorted(waiting):
            stable = self.committed_bounds(at)[1]
            if stable < ends[at]:
                found[at].stable = stable
                waiting.discard(at)
        self._read_tails(found, waiting, ends, began + self._patience_s)
        consumer.unassign()
        if waiting:
            raise Retriable(f"cluster {self._cluster.name}: the ends of {sorted(waiting)} can't be read")
        return found

    def _read_tails(
        self, found: Mapping[Partition, Tail], waiting: set[Partition], ends: Mapping[Partition, int], deadline: float
    ) -> None:
        while waiting and time.monotonic() < deadline:
            message = self._committed.poll(max(0.0, deadline - time.monotonic()))
            if message is None:
                continue
            error = message.error()
            if error is not None and error.code() in failures.UNREACHABLE:
                continue
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise failures.classify_start(error, self._cluster.name, f"reading {message.topic()}")
            at, offset = Partition(cast(str, message.topic()), cast(int, message.partition())), message.offset()
            if at not in waiting:
                continue
            tail = found[at]
            if error is None:
                tail.records.append(cast(int, offset))
            else:
                tail.stable = cast(int, offset)
            if len(tail.records) > 1 or tail.stable >= ends[at]:
                waiting.discard(at)

    def holds(self, at: Partition, offset: int) -> bool:
        """Whether there is a record at this offset, of an aborted transaction too: compaction may have taken it."""
        consumer = self._uncommitted
        metadata.learn(consumer, {at.topic})
        consumer.assign([TopicPartition(at.topic, at.partition, offset)])
        deadline = time.monotonic() + self._timeout_s
        while time.monotonic() < deadline:
            message = consumer.poll(max(0.0, deadline - time.monotonic()))
            error = message.error() if message is not None else None
            if message is None or (error is not None and error.code() in failures.UNREACHABLE):
                continue
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise failures.classify_start(error, self._cluster.name, f"reading {at}")
            consumer.unassign()
            return error is None and message.offset() == offset
        raise Retriable(f"cluster {self._cluster.name}: {at} can't be read at offset {offset}")

    def close(self) -> None:
        """Close what is open; the next use opens it again."""
        while self._open:
            self._open.popitem()[1].close()
