"""Reads source partitions by assignment with librdkafka, and sorts what comes back by partition.

Invariants
- read_committed, `auto.offset.reset=error`: an offset that is gone is reported, never skipped (invariant 8).
- A rewind is a fresh `assign`: librdkafka throws away what it had buffered, so nothing read before is copied.
"""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from replicator.config import Flow
from replicator.errors import Incident, NotAllowed
from replicator.planes.contract import Partition, Seek, Span
from replicator.planes.records import failures, metadata, properties
from replicator.planes.records.message import Record

POLL_RECORDS_MAX = 5_000
NOT_STARTED_S = 0.001  # between two looks at a partition that is being started: there is no event for it
CONNECTION_NOISE = failures.UNREACHABLE | {KafkaError._MAX_POLL_EXCEEDED}  # librdkafka reconnects by itself
WAITING = frozenset(
    {
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
    }
)
TRUNCATED = "truncation detected"  # librdkafka reports it under the code of an offset reset
INCIDENTS = {
    KafkaError._AUTO_OFFSET_RESET: (
        "source_offset_gone",
        "retention, DeleteRecords or truncation took the next record: see the source's log start",
    ),
    KafkaError.OFFSET_OUT_OF_RANGE: ("source_offset_gone", "the next offset isn't there any more"),
    KafkaError._LOG_TRUNCATION: ("source_truncated", "the leader epoch says that the source's log was cut"),
    KafkaError.UNKNOWN_TOPIC_OR_PART: ("source_topic_gone", "deleted? re-created topics need a decision"),
    KafkaError._UNKNOWN_PARTITION: ("source_topic_gone", "deleted? re-created topics need a decision"),
    KafkaError._UNKNOWN_TOPIC: ("source_topic_gone", "deleted? re-created topics need a decision"),
    KafkaError._BAD_MSG: ("source_corrupt", "the CRC of a source batch is wrong"),
}


@dataclass(slots=True)
class Harvest:
    """One poll: messages by partition in order, partition ends seen, errors of single partitions."""

    groups: dict[tuple[str, int], list[Record]] = field(default_factory=dict)
    ends: dict[tuple[str, int], Seek] = field(default_factory=dict)
    incidents: list[Incident] = field(default_factory=list)
    drained: bool = True


class Source:
    """A consumer that is only ever assigned. Owned by one lane's thread."""

    def __init__(
        self, flow: Flow, on_error: Callable[[str], None], until: Mapping[Partition, int] | None = None
    ) -> None:
        """`until`: offsets (exclusive) at which partitions end for this reader."""
        self._flow, self._until = flow, dict(until or {})
        self._only: Mapping[Partition, Sequence[Span]] = {}
        self._on_error = on_error
        self._consumer = Consumer({**properties.source_consumer(flow, bulk=bool(until)), "error_cb": self._error})
        self._known: set[str] = set()
        self._validated = False

    def _error(self, error: KafkaError) -> None:
        if error.code() in failures.NOT_ALLOWED:
            raise NotAllowed(failures.describe(error, self._flow.source.name, "reading the source"))
        self._on_error(failures.describe(error, self._flow.source.name, "reading the source"))

    def seek(self, positions: Mapping[Partition, Seek], only: Mapping[Partition, Sequence[Span]] | None = None) -> None:
        """Assign exactly `positions`, and at the first time check them for truncation by their leader epochs.

        Of partitions in `only` nothing is harvested but what lies in these spans, and the last one's end is theirs.

        Raises Retriable when the check couldn't be asked for.
        """
        self._only = only or {}
        topics = {at.topic for at in positions}
        metadata.learn(self._consumer, topics - self._known)
        self._known |= topics
        known = {at: seek for at, seek in positions.items() if seek.leader_epoch >= 0}
        wanted = [
            TopicPartition(at.topic, at.partition, seek.offset, leader_epoch=seek.leader_epoch)
            if at in known
            else TopicPartition(at.topic, at.partition, seek.offset)
            for at, seek in positions.items()
        ]
        self._consumer.assign(wanted)
        if not self._validated:
            self._validate([at for at in wanted if Partition(at.topic, at.partition) in known])
            self._validated = True

    def _validate(self, wanted: list[TopicPartition]) -> None:
        """Make librdkafka ask the leaders where the epochs of `wanted` end (OffsetsForLeaderEpoch, KIP-320).

        It does so on a seek only, not for the epoch of an assignment. A rewind needs none: a leader that changes
        under a running consumer is checked by itself.
        """
        deadline = time.monotonic() + self._flow.limits.request_timeout_ms / 1000
        for at in wanted:
            while not self._sought(at, deadline):
                time.sleep(NOT_STARTED_S)

    def _sought(self, at: TopicPartition, deadline: float) -> bool:
        """Seek; False while librdkafka hasn't started the partition yet, which it does in a thread of its own."""
        try:
            self._consumer.seek(at)
        except KafkaException as error:
            if failures.kafka_error(error).code() == KafkaError._STATE and time.monotonic() < deadline:
                return False
            doing = f"check {at.topic}[{at.partition}] for truncation"
            raise failures.classify_start(error, self._flow.source.name, doing) from error
        return True

    def harvest(self, records_max: int, timeout_s: float) -> Harvest:
        """Wait up to `timeout_s` for the first message, then take what is there, at most `records_max`."""
        found = Harvest()
        first = self._consumer.poll(timeout_s)
        if first is None:
            return found
        limit = max(1, min(records_max, POLL_RECORDS_MAX)) - 1
        messages = self._consumer.consume(limit, 0) if limit else []
        found.drained = len(messages) < limit
        messages.insert(0, first)
        groups = found.groups
        for message in messages:
            error = message.error()
            if error is not None:
                self._note(message, error, found)
                continue
            record = cast(Record, message)
            key = (record.topic(), record.partition())
            group = groups.get(key)
            if group is None:
                groups[key] = [record]
            else:
                group.append(record)
        for at, end in self._until.items():
            self._clip(found, at, end)
        for at, spans in self._only.items():
            self._clip(found, at, spans[-1][1])
            if at in found.groups:
                within = [record for record in found.groups.pop(at) if _lies_in(spans, record.offset())]
                found.groups |= {at: within} if within else {}
        return found

    def _clip(self, found: Harvest, at: Partition, end: int) -> None:
        """Nothing at or behind `end` is copied; having read so far is to have reached it."""
        group, stands = found.groups.get(at), found.ends.get(at)
        if group and group[-1].offset() >= end:
            within = bisect_left(group, end, key=lambda record: record.offset())
            beyond = group[within]
            stands = Seek(end, -1 if (epoch := beyond.leader_epoch()) is None else epoch)
            if within:
                found.groups[at] = group[:within]
            else:
                del found.groups[at]
        if stands is not None:
            found.ends[at] = stands._replace(offset=min(stands.offset, end))

    def _note(self, message: Message, error: KafkaError, found: Harvest) -> None:
        code, at = error.code(), cast(Record, message)
        topic: str | None = message.topic()
        if code == KafkaError._PARTITION_EOF:
            found.ends[(at.topic(), at.partition())] = Seek(at.offset(), self._epoch(at))
            return
        if code in INCIDENTS and topic is not None:
            cut = code == KafkaError._AUTO_OFFSET_RESET and TRUNCATED in error.str()
            name, why = INCIDENTS[KafkaError._LOG_TRUNCATION if cut else code]
            partition, offset = message.partition(), message.offset()
            found.incidents.append(
                Incident(
                    name,
                    f"{error.str()} ({why})",
                    topic=topic,
                    partition=-1 if partition is None else partition,
                    offset=-1 if offset is None else offset,
                )
            )
            return
        text = failures.describe(error, self._flow.source.name, f"reading {topic}[{message.partition()}]")
        if code in failures.NOT_ALLOWED:
            raise NotAllowed(text)
        if code in CONNECTION_NOISE or code in WAITING or error.retriable():
            self._on_error(text)  # librdkafka tries again by itself; reading resumes at the same offset
            return
        raise failures.classify_start(KafkaException(error), self._flow.source.name, text)

    def _epoch(self, end: Record) -> int:
        """Leader epoch up to a partition's end: markers and aborted records have it, and come with no message."""
        here = self._consumer.position([TopicPartition(end.topic(), end.partition())])[0]
        return -1 if here.offset != end.offset() or here.leader_epoch is None else here.leader_epoch

    def close(self) -> None:
        """Leave; nothing was committed on the source and nothing is."""
        self._consumer.close()


def _lies_in(spans: Sequence[Span], offset: int) -> bool:
    before = bisect_right(spans, offset, key=lambda span: span[0])
    return before > 0 and offset < spans[before - 1][1]
