"""From read messages to produced records: one partition's run of a poll, record by record.

This is the hot loop: everything that can be done once a run isn't done once a record. Delivery callbacks are
asked for on the first and last record of a run only: with the run's length they bound and prove the rest,
because an idempotent producer keeps order and leaves no gap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, KafkaError, Message, Producer

from replicator.errors import Incident
from replicator.planes.contract import Partition, Span
from replicator.planes.records import digest
from replicator.planes.records.message import Record

RECORD_OVERHEAD_BYTES = 1_024  # lengths, headers' framing and batch header, generously
ADVICE = "the flow stands before this record; everything before it is committed"

OnDelivery = Callable[[KafkaError | None, Message], None]


@dataclass(slots=True)
class Acks:
    """Acknowledgements of one run: offsets of its first and last record, or the first error."""

    count: int = 0
    first: int = -1
    last: int = -1
    seen: int = 0
    error: KafkaError | None = None
    without_offset: bool = False

    def _take(self, error: KafkaError | None, message: Message) -> int:
        self.seen += 1
        if error is not None:
            self.error = self.error or error
            return -1
        offset = message.offset()
        if offset is None or offset < 0:
            self.without_offset = True  # librdkafka's answer to a duplicate sequence: invariant 6
            return -1
        return int(offset)

    def on_first(self, error: KafkaError | None, message: Message) -> None:
        """Delivery report of the run's first record."""
        self.first = self._take(error, message)

    def on_last(self, error: KafkaError | None, message: Message) -> None:
        """Delivery report of the run's last record."""
        self.last = self._take(error, message)

    def on_middle(self, error: KafkaError | None, message: Message) -> None:
        """Delivery report of a record between the two, where each one is asked for."""
        self._take(error, message)

    def on_only(self, error: KafkaError | None, message: Message) -> None:
        """Delivery report of a run of one record."""
        self.first = self.last = self._take(error, message)


@dataclass(slots=True)
class Run:
    """Consecutive records of one source partition that were handed to the producer.

    `offsets` are theirs on the source, where only some were asked for.
    """

    source: Partition
    next_offset: int
    leader_epoch: int
    bytes: int = 0
    acks: Acks = field(default_factory=Acks)
    blocked: Incident | None = None
    offsets: list[int] = field(default_factory=list)


Fields = tuple[bytes | None, bytes | None, int, list[Any] | None]


def copy_run(
    producer: Producer,
    messages: list[Record],
    target: Partition,
    chain: digest.Chain,
    wait_for_room: Callable[[], None],
    record_bytes_max: int,
    every_ack: bool = False,
) -> Run:
    """Produce `messages` (one source partition, in order) to `target` and feed `chain`.

    Stops before a record that cannot be carried unchanged and says so in the run's `blocked`. Raises
    KafkaException for errors of the producer itself, never for a single record.
    """
    first = messages[0]
    run = Run(Partition(first.topic(), first.partition()), first.offset(), _epoch(first))
    records = _carriable(messages, run, chain, record_bytes_max)
    if not records:
        return run
    last = messages[len(records) - 1]
    run.next_offset = last.offset() + 1
    run.leader_epoch = _epoch(last)
    acks, produce = run.acks, producer.produce
    acks.count = len(records)
    topic, partition = target
    final = len(records) - 1
    callback: OnDelivery | None = acks.on_first if final else acks.on_only
    for index, (key, value, timestamp_ms, headers) in enumerate(records):
        if index == final and final:
            callback = acks.on_last
        while True:
            try:
                if headers is None:
                    produce(topic, value, key, partition, callback, None, timestamp_ms)
                else:
                    produce(topic, value, key, partition, callback, None, timestamp_ms, headers)
                break
            except BufferError:
                wait_for_room()
        callback = acks.on_middle if every_ack else None
    return run


def _carriable(messages: list[Record], run: Run, chain: digest.Chain, record_bytes_max: int) -> list[Fields]:
    """The fields of all messages up to the first that cannot be carried, which goes to `run.blocked`."""
    parts: list[bytes] = []
    records: list[Fields] = []
    size = 0
    for message in messages:
        kind, timestamp_ms = message.timestamp()
        if timestamp_ms <= 0 or kind == TIMESTAMP_NOT_AVAILABLE:
            run.blocked = _stop(message, "timestamp_not_carriable", f"timestamp {timestamp_ms} would become now")
            break
        try:
            headers = message.headers()
        except (SystemError, UnicodeDecodeError):
            run.blocked = _stop(message, "header_not_carriable", "a header key is not UTF-8")
            break
        key, value = message.key(), message.value()
        bytes_ = (len(key) if key else 0) + (len(value) if value else 0)
        if headers:
            bytes_ += len(digest.canonical_headers(headers))
        size += bytes_
        if bytes_ + RECORD_OVERHEAD_BYTES > record_bytes_max:
            run.blocked = _stop(
                message, "record_too_large", f"{bytes_} bytes, limits.record_bytes_max is {record_bytes_max}"
            )
            break
        digest.add_record(parts, timestamp_ms, key, value, headers)
        records.append((key, value, timestamp_ms, headers or None))
    run.bytes = size
    chain.update(parts)
    return records


def add_offsets(runs: list[Span], offsets: Iterable[int]) -> None:
    """Add ascending offsets to runs of consecutive ones."""
    for offset in offsets:
        if runs and runs[-1][1] == offset:
            runs[-1] = (runs[-1][0], offset + 1)
        else:
            runs.append((offset, offset + 1))


def _epoch(message: Record) -> int:
    epoch = message.leader_epoch()
    return -1 if epoch is None else epoch


def _stop(message: Record, name: str, why: str) -> Incident:
    return Incident(
        name, why, topic=message.topic(), partition=message.partition(), offset=message.offset(), advice=ADVICE
    )
