"""From read messages to produced records: one partition's run of a poll, record by record. Used by `plane`.

This is the hot loop: everything that can be done once a run isn't done once a record. Delivery callbacks are
asked for on the first and last record of a run only: with the run's length they bound and prove the rest,
because an idempotent producer keeps order and leaves no gap. All are asked for after a refusal, to find the record.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, KafkaError, Message, Producer

from replicator.model.errors import Incident
from replicator.model.partition import Partition, Span
from replicator.model.timestamps import UNBOUNDED, TimestampBounds
from replicator.offset_map.runs import runs_of
from replicator.planes.contract import ReadPlan
from replicator.planes.records import digest
from replicator.planes.records.acks import Acks, AckWatch
from replicator.planes.records.headers import headers_of_each
from replicator.planes.records.message import Record
from replicator.planes.records.sizes import FRAMING_BYTES_MAX, encoded_bytes

OnDelivery = Callable[[KafkaError | None, Message], None]


@dataclass(slots=True)
class Run:
    """Consecutive records of one source partition that were handed to the producer.

    `offsets` are theirs on the source, as runs [first, end), where they were asked for. `handed_over`: how many the
    producer has, of the `acks.count` that it shall get.
    """

    source: Partition
    next_offset: int
    leader_epoch: int
    acks: Acks
    bytes: int = 0
    every_ack: bool = False
    blocked: Incident | None = None
    offsets: list[Span] = field(default_factory=list)
    handed_over: int = 0

    @property
    def through(self) -> int:
        """How many of the messages that it was made of it is done with: those to be written, and one that can't be."""
        return self.acks.count + (self.blocked is not None)


class Writer(NamedTuple):
    """Where a run's records go: the producer, a wait for space in its full queue, the largest record, and which
    timestamps the target takes."""

    producer: Producer
    wait_for_space: Callable[[], None]
    record_bytes_max: int
    timestamps: TimestampBounds = UNBOUNDED


def new_run(messages: list[Record], watch: AckWatch, *, every_ack: bool = False) -> Run:
    """Make a run of `messages` (one source partition, in order) of which nothing is written yet.

    `every_ack` asks for each record's delivery report.
    """
    first = messages[0]
    acks = Acks(watch, first_source=first.offset())
    return Run(Partition(first.topic(), first.partition()), first.offset(), _epoch(first), acks, every_ack=every_ack)


def copy_run(writer: Writer, run: Run, messages: list[Record], target: Partition, chain: digest.Chain) -> None:
    """Produce `messages`, of which `run` was made, to `target` and feed `chain`.

    Stops before a record that cannot be carried unchanged and says so in the run's `blocked`. Raises
    KafkaException for errors of the producer itself, never for a single record.
    """
    records = _carriable(messages, run, chain, target.topic, writer)
    if not records:
        return
    acks, every_ack = run.acks, run.every_ack
    last = messages[len(records) - 1]
    run.next_offset = last.offset() + 1
    run.leader_epoch = _epoch(last)
    acks.count, acks.last_source = len(records), last.offset()
    if len(records) == 1:
        _produce(writer, target, records, acks.on_only)
        run.handed_over = 1
        return
    _produce(writer, target, records[:1], acks.on_first)
    run.handed_over = 1
    if every_ack:
        for index in range(1, len(records) - 1):
            _produce(writer, target, [records[index]], partial(acks.on_middle, messages[index].offset()))
            run.handed_over = index + 1
    else:
        _produce(writer, target, records[1:-1], None)
    _produce(writer, target, records[-1:], acks.on_last)
    run.handed_over = len(records)


def _produce(writer: Writer, target: Partition, records: list[digest.Fields], on_delivery: OnDelivery | None) -> None:
    """Hand records to the producer, and wait where its queue is full."""
    produce, (topic, partition) = writer.producer.produce, target
    for key, value, timestamp_ms, headers in records:
        while True:
            try:
                if headers is None:
                    produce(topic, value, key, partition, on_delivery, None, timestamp_ms)
                else:
                    produce(topic, value, key, partition, on_delivery, None, timestamp_ms, headers)
                break
            except BufferError:
                writer.wait_for_space()


def _carriable(
    messages: list[Record], run: Run, chain: digest.Chain, topic: str, writer: Writer
) -> list[digest.Fields]:
    """Return the fields of all messages up to the first that cannot be carried, which goes to `run.blocked`."""
    records: list[digest.Fields] = []
    size, record_bytes_max, now_ms = 0, writer.record_bytes_max, time.time_ns() // 1_000_000
    earliest_ms, latest_ms = writer.timestamps.around(now_ms)
    earliest_ms, unknown = max(earliest_ms, 1), TIMESTAMP_NOT_AVAILABLE
    fits = record_bytes_max - FRAMING_BYTES_MAX  # what has no more bytes than these is surely small enough
    try:
        for message, headers in zip(messages, headers_of_each(messages), strict=True):
            kind, timestamp_ms = message.timestamp()
            if not earliest_ms <= timestamp_ms <= latest_ms or kind == unknown:
                run.blocked = _bad_timestamp(message, writer.timestamps, now_ms, topic)
                break
            key, value = message.key(), message.value()
            bytes_ = (len(key) if key else 0) + (len(value) if value else 0)
            if headers:
                bytes_ += len(digest.canonical_headers(headers))
            if bytes_ > fits and (encoded := encoded_bytes(key, value, headers)) > record_bytes_max:
                run.blocked = _too_large(message, encoded, record_bytes_max)
                break
            size += bytes_
            records.append((key, value, timestamp_ms, headers or None))
    except (SystemError, UnicodeDecodeError):
        why = "a header key is not UTF-8"
        run.blocked = _stop(messages[len(records)], "header_not_carriable", why)
    run.bytes = size
    chain.update(records)
    return records


def offsets_of(messages: list[Record], count: int) -> list[Span]:
    """Return the source offsets of the first `count` messages as runs. They are looked at one by one only where they
    have gaps."""
    if not count:
        return []
    first, last = messages[0].offset(), messages[count - 1].offset()
    if last - first + 1 == count:
        return [(first, last + 1)]
    return runs_of([message.offset() for message in messages[:count]])


def portions(messages: list[Record], plan: ReadPlan | None) -> list[list[Record]]:
    """Divide into what is written together of one partition, see `ReadPlan.flush_every`."""
    size = plan.flush_every if plan is not None else 0
    if not size:
        return [messages]
    return [messages[first : first + size] for first in range(0, len(messages), size)]


def _epoch(message: Record) -> int:
    epoch = message.leader_epoch()
    return -1 if epoch is None else epoch


def _bad_timestamp(message: Record, bounds: TimestampBounds, now_ms: int, topic: str) -> Incident:
    kind, timestamp_ms = message.timestamp()
    if timestamp_ms <= 0 or kind == TIMESTAMP_NOT_AVAILABLE:
        return _stop(message, "timestamp_not_carriable", f"timestamp {timestamp_ms} would become now")
    return _stop(message, "target_timestamp_bounds", bounds.refusal(timestamp_ms, now_ms, topic))


def _too_large(message: Record, encoded: int, record_bytes_max: int) -> Incident:
    why = (
        f"{encoded} bytes in a batch of its own, uncompressed; limits.record_bytes_max and "
        f"max.message.bytes of the target's topics allow {record_bytes_max} at most"
    )
    return _stop(message, "record_too_large", why)


def _stop(message: Record, name: str, why: str) -> Incident:
    at = message.topic(), message.partition(), message.offset()
    return Incident(name, why, topic=at[0], partition=at[1], offset=at[2])
