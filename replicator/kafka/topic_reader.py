"""Reads topics by assignment: whole small ones, the last records of partitions, single offsets; and asks for offsets
at both ends of partitions.

Used by `kafka.clusters`, `state`, `flow`, `jobs`, `inspect` and `spark`. All waits are bounded.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from replicator.config import Cluster, Flow
from replicator.kafka import failures, metadata, properties
from replicator.kafka.offset_questions import EARLIEST, LATEST, Listed
from replicator.kafka.topic_questions import TopicQuestions, within
from replicator.model.errors import ReplicatorError, Retriable, TopicMissing
from replicator.model.partition import EndRecords, Partition

Record = tuple[bytes | None, bytes | None]


class TopicReader:
    """Two assigned consumers on one cluster, opened on first use: read_committed for records, the other for ends.

    Raises, in every method: NotAllowed, Unreachable, TopicMissing, Retriable, or Incident for a refusal of another
    kind.
    """

    def __init__(self, flow: Flow, cluster: Cluster, topics: TopicQuestions | None = None) -> None:
        """`cluster` is one of the flow's two. `topics` asks it for topics and ends, and is closed by its owner: a
        consumer asks one broker for them, and waits for it if that one is frozen. None: the consumers are asked."""
        self._flow, self._cluster, self._topics = flow, cluster, topics
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
            settings = properties.reader(self._cluster, self._flow, committed=committed)
            self._open[committed] = Consumer({**settings, **properties.SILENT})  # errors come with what is asked
        return self._open[committed]

    def connect(self, topic: str, *, committed: bool) -> None:
        """Connect before the first question, see `metadata.connect`."""
        metadata.connect(self._consumer(committed=committed), topic)

    def _error(self, error: KafkaException | KafkaError, doing: str, right: str) -> ReplicatorError:
        return failures.classify(error, self._cluster.name, doing, right)

    def _read_error(self, error: KafkaError, topic: str) -> ReplicatorError:
        return self._error(error, f"read topic {topic!r}", f"Read on topic {topic!r}")

    def bounds(self, partitions: Collection[Partition]) -> dict[Partition, tuple[int, int]]:
        """Return log start and high watermark of each, open transactions included, asked for at the same time."""
        if self._topics is None:
            return {at: self._watermarks(self._uncommitted, at) for at in partitions}
        asked = self._topics.list_offsets(partitions, (EARLIEST, LATEST), patient=True)
        starts, ends = within(asked, self._timeout_s)
        return {at: (_listed(starts[at]), _listed(ends[at])) for at in partitions}

    def committed_bounds(self, at: Partition) -> tuple[int, int]:
        """Return log start and last stable offset."""
        return self._watermarks(self._committed, at)

    def _watermarks(self, consumer: Consumer, at: Partition) -> tuple[int, int]:
        try:
            low, high = consumer.get_watermark_offsets(TopicPartition(*at), timeout=self._timeout_s, cached=False)
        except KafkaException as error:
            raise self._error(error, f"ask for the ends of {at}", f"Describe on topic {at.topic!r}") from error
        return low, high

    def names(self) -> frozenset[str]:
        """Return all topics that the user may see."""
        try:
            return frozenset(self._uncommitted.list_topics(timeout=self._timeout_s).topics)
        except KafkaException as error:
            raise self._error(error, "list topics", "Describe on topics") from error

    def partitions(self, topics: Collection[str]) -> dict[str, int]:
        """Return the partition counts of those of `topics` that exist."""
        try:
            known = self._uncommitted.list_topics(timeout=self._timeout_s).topics
        except KafkaException as error:
            raise self._error(error, "list topics", "Describe on topics") from error
        return {name: len(known[name].partitions) for name in topics if name in known and known[name].error is None}

    def partition_count(self, topic: str) -> int:
        """Count the partitions of one topic; 0 where there is no such topic.

        It is asked for by name: from a list of all topics the broker leaves out those that the user may not see.
        """
        if self._topics is not None:
            answer = within(self._topics.describe([topic]), self._timeout_s)[topic]
            if isinstance(answer, TopicMissing):
                return 0
            if isinstance(answer, ReplicatorError):
                raise answer
            return answer.partitions
        try:
            found = self._uncommitted.list_topics(topic, timeout=self._timeout_s).topics[topic]
        except KafkaException as error:
            raise self._error(error, f"describe topic {topic!r}", f"Describe on topic {topic!r}") from error
        if found.error is None:
            return len(found.partitions)
        if found.error.code() in failures.MISSING:
            return 0
        raise self._error(found.error, f"describe topic {topic!r}", f"Describe on topic {topic!r}")

    def at_time(self, partitions: Iterable[Partition], timestamp_ms: int) -> dict[Partition, int]:
        """Find the first offset at or after `timestamp_ms`; -1 where there is none."""
        asked = [TopicPartition(at.topic, at.partition, timestamp_ms) for at in partitions]
        doing = "ask for the offsets of a time"
        try:
            found = self._committed.offsets_for_times(asked, timeout=self._timeout_s)
        except KafkaException as error:
            raise self._error(error, doing, "Describe on the topics") from error
        for answer in found:
            if answer.error is not None:
                raise self._error(answer.error, doing, f"Describe on topic {answer.topic!r}")
        return {Partition(answer.topic, answer.partition): answer.offset for answer in found}

    def committed_at_time(self, partitions: Iterable[Partition], timestamp_ms: int) -> dict[Partition, int]:
        """Return the offset of the first *committed* record at or after `timestamp_ms`; -1 where there is none.

        The broker's answer may be an aborted record. Those a copy does not have, so two sides that hold the same
        records would be cut at different ones.

        Raises Retriable when a partition can't be read in time.
        """
        found = self.at_time(partitions, timestamp_ms)
        waiting = {at for at, offset in found.items() if offset >= 0}
        consumer = self._assigned({at: found[at] for at in waiting})
        deadline = time.monotonic() + self._patience_s
        while waiting:
            message = consumer.poll(max(0.0, deadline - time.monotonic()))
            if time.monotonic() > deadline:
                raise Retriable(f"cluster {self._cluster.name!r}: {_list(waiting)} can't be read at a time")
            at = _where(message)
            if message is None or at not in waiting:
                continue
            error = message.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                self._raise_unless_reconnecting(error, at.topic)
                continue
            if error is None and message.timestamp()[1] < timestamp_ms:
                continue
            found[at] = -1 if error is not None else _offset(message)
            waiting.discard(at)
        consumer.unassign()
        return found

    def first_records(self, starts: Mapping[Partition, int]) -> dict[Partition, tuple[int, int]]:
        """Return offset and timestamp (ms) of the first committed record at or after each start; partitions without one
        are left out.

        Raises Retriable when a partition can't be read in time.
        """
        found: dict[Partition, tuple[int, int]] = {}
        waiting, deadline = set(starts), time.monotonic() + self._patience_s
        consumer = self._assigned(starts)
        while waiting:
            message = consumer.poll(max(0.0, deadline - time.monotonic()))
            at = _where(message)
            if message is not None and at in waiting:
                error = message.error()
                if error is None:
                    found[at] = _offset(message), message.timestamp()[1]
                elif error.code() != KafkaError._PARTITION_EOF:
                    self._raise_unless_reconnecting(error, at.topic)
                    continue
                waiting.discard(at)
            elif time.monotonic() > deadline:
                raise Retriable(f"cluster {self._cluster.name!r}: {_list(waiting)} can't be read")
        consumer.unassign()
        return found

    def _assigned(self, starts: Mapping[Partition, int], *, committed: bool = True) -> Consumer:
        consumer = self._consumer(committed=committed)
        metadata.learn(consumer, {at.topic for at in starts})
        consumer.assign([TopicPartition(at.topic, at.partition, offset) for at, offset in starts.items()])
        return consumer

    def _raise_unless_reconnecting(self, error: KafkaError, topic: str) -> None:
        if error.code() not in failures.UNREACHABLE:
            raise self._read_error(error, topic)

    def whole(self, topic: str, partitions: Iterable[int]) -> list[Record]:
        """Return all committed records of `topic` up to the ends that a read_uncommitted reader sees now.

        An open transaction hides what follows it, so this waits for it to end, at most as long as one may stay
        open; then raises Retriable.
        """
        ends = self.bounds([Partition(topic, number) for number in partitions])
        records: list[Record] = []
        for at, (low, high) in ends.items():
            if high > low:
                records += self._up_to(at, low, high)
        return records

    def _up_to(self, at: Partition, low: int, high: int) -> list[Record]:
        consumer, records = self._assigned({at: low}), list[Record]()
        deadline = time.monotonic() + self._patience_s
        while True:
            message = consumer.poll(0.5)
            if time.monotonic() > deadline:
                raise Retriable(f"cluster {self._cluster.name!r}: {at} could not be read up to offset {high}")
            if message is None or _where(message) != at:
                continue
            error = message.error()
            if error is None:
                records.append((message.key(), message.value()))
                if _offset(message) + 1 >= high:
                    break
            elif error.code() == KafkaError._PARTITION_EOF:
                if _offset(message) >= high:
                    break
            else:
                self._raise_unless_reconnecting(error, at.topic)
        consumer.unassign()
        return records

    def end_records(
        self, starts: Mapping[Partition, int], ends: Mapping[Partition, int]
    ) -> dict[Partition, EndRecords | ReplicatorError]:
        """Read each partition from its start until the last stable offset has reached its end.

        `ends` are high watermarks. Waits for transactions that are just being ended, at most `request_timeout_ms`:
        where `stable` is lower then, a transaction stays open. Stops at the second record of a partition. A partition
        that could not be read is Retriable, however many aborted records it ends with; its own error is its value.
        """
        ends_read = _EndsBeingRead(starts, ends)
        consumer = self._assigned(starts)
        began = time.monotonic()
        self._read_ends(consumer, ends_read, began + self._timeout_s)
        for at in sorted(ends_read.waiting):
            stable = self.committed_bounds(at)[1]
            if stable < ends[at]:
                ends_read.stable[at] = stable
                ends_read.waiting.discard(at)
        self._read_ends(consumer, ends_read, began + self._patience_s)
        consumer.unassign()
        for at in ends_read.waiting:
            ends_read.errors[at] = Retriable(f"cluster {self._cluster.name!r}: the end of {at} can't be read")
        return ends_read.found()

    def _read_ends(self, consumer: Consumer, ends_read: _EndsBeingRead, deadline: float) -> None:
        while ends_read.waiting and time.monotonic() < deadline:
            message = consumer.poll(max(0.0, deadline - time.monotonic()))
            at = _where(message)
            if message is None or at not in ends_read.waiting:
                continue
            error = message.error()
            if error is None:
                ends_read.record(at, _offset(message))
            elif error.code() == KafkaError._PARTITION_EOF:
                ends_read.end(at, _offset(message))
            elif error.code() not in failures.UNREACHABLE:
                ends_read.fail(at, self._read_error(error, at.topic))

    def holds(self, at: Partition, offset: int) -> bool:
        """Tell whether there is a record at this offset, of an aborted transaction too: compaction may have taken
        it."""
        consumer = self._assigned({at: offset}, committed=False)
        deadline = time.monotonic() + self._timeout_s
        while time.monotonic() < deadline:
            message = consumer.poll(max(0.0, deadline - time.monotonic()))
            if message is None or _where(message) != at:
                continue
            error = message.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                self._raise_unless_reconnecting(error, at.topic)
                continue
            consumer.unassign()
            return error is None and message.offset() == offset
        raise Retriable(f"cluster {self._cluster.name!r}: {at} can't be read at offset {offset}")

    def close(self) -> None:
        """Close what is open; the next use opens it again."""
        while self._open:
            self._open.popitem()[1].close()


class _EndsBeingRead:
    """Ends that are being read: which partitions are waited for, what was found of each."""

    def __init__(self, starts: Iterable[Partition], ends: Mapping[Partition, int]) -> None:
        self._ends = ends
        self._records: dict[Partition, list[int]] = {at: [] for at in starts}
        self.waiting = set(self._records)
        self.stable: dict[Partition, int] = {}
        self.errors: dict[Partition, ReplicatorError] = {}

    def record(self, at: Partition, offset: int) -> None:
        """Take a committed record; with the second the partition is read."""
        self._records[at].append(offset)
        if len(self._records[at]) > 1:
            self.waiting.discard(at)

    def end(self, at: Partition, offset: int) -> None:
        """Return the last stable offset, which may not have reached the end yet."""
        self.stable[at] = offset
        if offset >= self._ends[at]:
            self.waiting.discard(at)

    def fail(self, at: Partition, error: ReplicatorError) -> None:
        """Note the partition's own error."""
        self.errors[at] = error
        self.waiting.discard(at)

    def found(self) -> dict[Partition, EndRecords | ReplicatorError]:
        """Return all of them."""
        return {
            at: self.errors[at] if at in self.errors else EndRecords(tuple(records), self.stable.get(at, -1))
            for at, records in self._records.items()
        }


def _where(message: Message | None) -> Partition | None:
    """Return the partition of a message or error; None for errors of the client as a whole."""
    topic, partition = (None, None) if message is None else (message.topic(), message.partition())
    return None if topic is None or partition is None else Partition(topic, partition)


def _offset(message: Message) -> int:
    offset = message.offset()
    return -1 if offset is None else offset


def _list(partitions: Iterable[Partition]) -> str:
    return ", ".join(map(str, sorted(partitions)))


def _listed(answer: Listed | ReplicatorError) -> int:
    if isinstance(answer, ReplicatorError):
        raise answer
    return answer.offset
