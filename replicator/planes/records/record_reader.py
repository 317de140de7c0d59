"""Reads a partition's records: their digests, to compare them, or a single one, whole. Implements
`contract.RecordReader`.

Used by repairs and by `lane.decisions`, by way of `flow.wiring`. Memory is bounded by librdkafka's queue and one poll:
what was read is given away at once.
"""

from __future__ import annotations

import hashlib
import itertools
import threading
import time
from collections.abc import Iterator, Sequence
from typing import cast

from confluent_kafka import Consumer, KafkaError, TopicPartition

from replicator.config import Cluster, Flow
from replicator.kafka import failures, metadata, properties
from replicator.model import reading_over
from replicator.model.errors import Retriable
from replicator.model.partition import Partition, Span
from replicator.planes.contract import ReadStopped, RecordIdentity, UnreadRecord, WholeRecord
from replicator.planes.records import digest
from replicator.planes.records.headers import headers_of
from replicator.planes.records.message import Record
from replicator.planes.records.oversized import is_oversized

POLL_RECORDS_MAX = 5_000
POLL_S = 0.5
"""So long it takes at most until a stop is noticed."""
RECORD_S_MAX = 2.0
"""So long a single record is waited for: the lane copies nothing meanwhile. What comes later is there when the same is
asked for again."""
TURN_S = 90.0
"""So long one record is waited for before others get their turn: it is asked for again every 30 s."""
DIGEST_BYTES = 16


class _OffsetGone(Retriable):
    """The partition doesn't have an offset, or not any more."""


class LogReader:
    """One consumer on one cluster, opened on first use. Used by one thread."""

    def __init__(self, flow: Flow, cluster: Cluster, asked: threading.Event, record_bytes_max: int = 0) -> None:
        """`cluster` is one of the flow's two; `asked` is set when the lane shall stop; `record_bytes_max`: the largest
        record or batch that the target takes."""
        self._flow, self._cluster, self._asked = flow, cluster, asked
        self._record_bytes_max = record_bytes_max
        self._patience_s = (flow.limits.request_timeout_ms + flow.limits.transaction_timeout_ms) / 1000
        self._consumer: Consumer | None = None
        self._waiting: tuple[Partition, int] | None = None  # what the consumer is assigned to, of which nothing came
        self._since_s = 0.0  # monotonic: when it was
        self._queue = dict[tuple[Partition, int], None]()  # records that were refused meanwhile, in this order
        self._too_large = ""  # why the client drops what it is sent of that, see `oversized`

    def identities(self, at: Partition, spans: Sequence[Span]) -> Iterator[Sequence[RecordIdentity]]:
        """Read as `contract.RecordReader` says."""
        left = SpansLeft(spans)
        while left:
            for records in self._read(at, left, self._patience_s):
                yield [identity(record) for record in records]

    def record(self, at: Partition, offset: int) -> WholeRecord | None:
        """Read the committed record at this offset; None where there is none. Waits and raises as `identities`."""
        for records in self._read(at, SpansLeft([(offset, offset + 1)]), self._patience_s):
            for record in records:
                return _whole(record)
        return None

    def record_now(self, at: Partition, offset: int) -> WholeRecord | UnreadRecord | None:
        """Read as `contract.RecordReader` says. Records have their turns: each has a consumer that has asked for
        nothing else, as the client's errors name no partition, and keeps it for a while, in which it may come."""
        if self._waiting != (at, offset):
            self._take_turn((at, offset))
            self.close()
        try:
            for records in self._read(at, SpansLeft([(offset, offset + 1)]), RECORD_S_MAX):
                for record in records:
                    return _whole(record)
                if self._too_large:
                    return UnreadRecord(self._too_large)
        except _OffsetGone:
            return None
        finally:
            if self._waiting is None:
                self.close()
        return None

    def _take_turn(self, asked: tuple[Partition, int]) -> None:
        """Raise Retriable where another record is waited for, or has asked for its turn before and may still come."""
        self._queue.setdefault(asked)
        first, past_s = next(iter(self._queue)), time.monotonic() - self._since_s
        if self._waiting is not None and past_s < (TURN_S if asked == first else 2 * TURN_S):
            other, offset = self._waiting
            raise Retriable(f"cluster {self._cluster.name!r}: offset {offset} of {other} is waited for before")
        if self._waiting is not None:
            self._queue.pop(first)  # if it is another one, nobody has asked for it any more
        self._queue.pop(asked, None)

    def close(self) -> None:
        """Let go of the connection; the next use opens it again."""
        self._waiting = None
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _opened(self, at: Partition) -> Consumer:
        if self._consumer is None:
            props = properties.scanning_reader(self._cluster, self._flow, record_bytes_max=self._record_bytes_max)
            with failures.making(self._cluster.name):
                self._consumer = Consumer({**props, "error_cb": self._error, **properties.SILENT})
            metadata.learn(self._consumer, {at.topic})
        return self._consumer

    def _error(self, error: KafkaError) -> None:
        """Take an error of the client as a whole: all others are told by what doesn't come."""
        if is_oversized(error):
            self._too_large = failures.reason(error)

    def _read(self, at: Partition, left: SpansLeft, patience_s: float) -> Iterator[Sequence[Record]]:
        """Read from the first span that is left to where a new assignment takes less than reading over would."""
        consumer, reached, moved_s = self._opened(at), left.first, time.monotonic()
        if self._waiting != (at, reached):
            self._too_large, self._since_s = "", moved_s
            consumer.assign([TopicPartition(at.topic, at.partition, reached)])
        self._waiting = None
        while wanted := left.together(reached):
            if self._asked.is_set():
                raise ReadStopped(f"{at} was read up to offset {reached}")
            records: list[Record] = []
            before = reached
            for message in consumer.consume(wanted, POLL_S):
                error = message.error()
                if error is None:
                    record = cast(Record, message)
                    if (record.topic(), record.partition()) != at:
                        continue  # of an assignment before this one
                    records.append(record)
                    reached = record.offset() + 1
                elif error.code() == KafkaError._PARTITION_EOF:
                    reached = max(reached, message.offset() or 0)
                elif error.code() in failures.TOO_LARGE:
                    self._too_large = failures.reason(error)
                elif error.code() == KafkaError._BAD_MSG and message.topic() is None:
                    pass  # of another request, whose connection was closed with the response that is too large
                elif error.code() not in failures.UNREACHABLE | failures.OF_GROUP:
                    raise self._failed(error, at, reached)
            if reached > before:
                moved_s, self._too_large = time.monotonic(), ""
            elif time.monotonic() > moved_s + patience_s:
                self._waiting = at, reached
                raise self._late(at, reached, left.end)
            yield left.take(records, reached)
        consumer.unassign()

    def _late(self, at: Partition, offset: int, end: int) -> Exception:
        why = self._too_large or "the cluster doesn't answer, or an open transaction hides them"
        return Retriable(f"cluster {self._cluster.name!r}: offsets {offset} to {end - 1} of {at} can't be read: {why}")

    def _failed(self, error: KafkaError, at: Partition, offset: int) -> Exception:
        if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            return _OffsetGone(f"cluster {self._cluster.name!r}: {at} has no offset {offset} any more")
        right = f"Read on topic {at.topic!r}"
        return failures.classify(error, self._cluster.name, f"read {at}", right)


class SpansLeft:
    """Spans of one partition that are still to be read, and how large the records were that have been. Pure."""

    def __init__(self, spans: Sequence[Span]) -> None:
        """`spans` are sorted and disjoint; some may be empty."""
        self._spans = [span for span in spans if span[0] < span[1]]
        self._next = 0
        self._records = self._bytes = 0

    def __bool__(self) -> bool:
        return self._next < len(self._spans)

    @property
    def first(self) -> int:
        """Where the first of them begins."""
        return self._spans[self._next][0]

    @property
    def end(self) -> int:
        """Where the last of them ends."""
        return self._spans[-1][1]

    def together(self, reached: int) -> int:
        """Say how many records are read on from an offset at most, without a new assignment: to the end of the last
        span to which it takes reading over little, by the records that were read so far; before the first one, to the
        end of a span. 0: none."""
        over_max = reading_over.offsets_max(self._bytes // self._records) if self._records else 0
        at = reached
        for first, end in itertools.islice(self._spans, self._next, None):
            if first - at > over_max or at - reached >= POLL_RECORDS_MAX:
                break
            at = end
        return min(POLL_RECORDS_MAX, at - reached)

    def take(self, records: Sequence[Record], reached: int) -> list[Record]:
        """Return those that lie in the spans. All before `reached` has been read."""
        found: list[Record] = []
        number = self._next
        for record in records:
            offset = record.offset()
            self._records += 1
            self._bytes += len(record)
            while number < len(self._spans) and self._spans[number][1] <= offset:
                number += 1
            if number < len(self._spans) and self._spans[number][0] <= offset:
                found.append(record)
        while self._next < len(self._spans) and self._spans[self._next][1] <= reached:
            self._next += 1
        return found


def _whole(record: Record) -> WholeRecord:
    try:
        headers = tuple(headers_of(record) or ())
    except (SystemError, UnicodeDecodeError):
        headers = None
    return WholeRecord(record.key(), record.value(), record.timestamp()[1], headers)


def identity(record: Record) -> RecordIdentity:
    """Return the record's digests. One with a header that librdkafka can't return equals none."""
    key = record.key()
    try:
        whole = _hashed(digest.canonical([(key, record.value(), record.timestamp()[1], headers_of(record))]))
    except (SystemError, UnicodeDecodeError):
        whole = b""
    size = len(key or b"") + len(record)
    return RecordIdentity(record.offset(), whole, None if key is None else _hashed(key), size)


def _hashed(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=DIGEST_BYTES).digest()
