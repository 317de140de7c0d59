"""Reads a partition's records to compare them: their digests and nothing else. Implements `contract.RecordReader`.

Used by repairs, by way of `flow.wiring`. Memory is bounded by librdkafka's queue and one poll: what was read is given
away at once.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterator, Sequence
from typing import cast

from confluent_kafka import Consumer, KafkaError, TopicPartition

from replicator.config import Cluster, Flow
from replicator.kafka import failures, metadata, properties
from replicator.model.errors import Retriable
from replicator.model.partition import Partition, Span
from replicator.planes.contract import ReadStopped, RecordIdentity
from replicator.planes.records import digest
from replicator.planes.records.message import Record

POLL_RECORDS_MAX = 5_000
POLL_S = 0.5
"""So long it takes at most until a stop is noticed."""
GAP_MAX = 2_000
"""Offsets between two spans that are rather read and dropped than skipped by a new assignment."""
DIGEST_BYTES = 16


class LogReader:
    """One consumer on one cluster, opened on first use. Used by one thread."""

    def __init__(self, flow: Flow, cluster: Cluster, asked: threading.Event) -> None:
        """`cluster` is one of the flow's two; `asked` is set when the lane shall stop."""
        self._flow, self._cluster, self._asked = flow, cluster, asked
        self._patience_s = (flow.limits.request_timeout_ms + flow.limits.transaction_timeout_ms) / 1000
        self._consumer: Consumer | None = None

    def identities(self, at: Partition, spans: Sequence[Span]) -> Iterator[Sequence[RecordIdentity]]:
        """Read as `contract.RecordReader` says."""
        for together in _grouped(spans):
            yield from self._read(at, together)

    def close(self) -> None:
        """Let go of the connection; the next use opens it again."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _read(self, at: Partition, spans: Sequence[Span]) -> Iterator[Sequence[RecordIdentity]]:
        if self._consumer is None:
            self._consumer = Consumer({**properties.scanning_reader(self._cluster, self._flow), **properties.SILENT})
            metadata.learn(self._consumer, {at.topic})
        consumer, end = self._consumer, spans[-1][1]
        consumer.assign([TopicPartition(at.topic, at.partition, spans[0][0])])
        reached, moved_s = spans[0][0], time.monotonic()
        while reached < end:
            if self._asked.is_set():
                raise ReadStopped(f"{at} was read up to offset {reached}")
            records: list[Record] = []
            before = reached
            for message in consumer.consume(POLL_RECORDS_MAX, POLL_S):
                error = message.error()
                if error is None:
                    record = cast(Record, message)
                    if (record.topic(), record.partition()) != at:
                        continue  # of an assignment before this one
                    records.append(record)
                    reached = record.offset() + 1
                elif error.code() == KafkaError._PARTITION_EOF:
                    reached = max(reached, message.offset() or 0)
                elif error.code() not in failures.UNREACHABLE:
                    raise self._failed(error, at, reached)
            if reached > before:
                moved_s = time.monotonic()
            elif time.monotonic() > moved_s + self._patience_s:
                name = self._cluster.name
                why = "the cluster doesn't answer, or an open transaction hides them"
                raise Retriable(f"cluster {name!r}: offsets {reached} to {end - 1} of {at} can't be read: {why}")
            yield _identities(records, spans)
        consumer.unassign()

    def _failed(self, error: KafkaError, at: Partition, offset: int) -> Exception:
        if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            return Retriable(f"cluster {self._cluster.name!r}: {at} has no offset {offset} any more")
        right = f"Read on topic {at.topic!r}"
        return failures.classify(error, self._cluster.name, f"read {at}", right)


def _grouped(spans: Sequence[Span]) -> list[list[Span]]:
    """Group spans that are read without a new assignment."""
    found: list[list[Span]] = []
    for span in spans:
        if span[0] >= span[1]:
            continue
        if found and span[0] - found[-1][-1][1] <= GAP_MAX:
            found[-1].append(span)
        else:
            found.append([span])
    return found


def _identities(records: Sequence[Record], spans: Sequence[Span]) -> list[RecordIdentity]:
    """Take those that lie in the spans; both are in order."""
    found: list[RecordIdentity] = []
    number = 0
    for record in records:
        offset = record.offset()
        while number < len(spans) and spans[number][1] <= offset:
            number += 1
        if number == len(spans):
            break
        if spans[number][0] <= offset:
            found.append(identity(record))
    return found


def identity(record: Record) -> RecordIdentity:
    """Return the record's digests. One with a header that librdkafka can't return equals none."""
    key, parts = record.key(), list[bytes]()
    try:
        digest.add_record(parts, record.timestamp()[1], key, record.value(), record.headers())
        whole = _hashed(b"".join(parts))
    except (SystemError, UnicodeDecodeError):
        whole = b""
    return RecordIdentity(record.offset(), whole, None if key is None else _hashed(key))


def _hashed(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=DIGEST_BYTES).digest()
