"""What confluent-kafka cannot carry unchanged stops a run before that record, and names it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_NOT_AVAILABLE

from replicator.model.incident_kinds import KINDS
from replicator.model.partition import Partition
from replicator.model.timestamps import UNBOUNDED, TimestampBounds
from replicator.planes.records.acks import AckWatch
from replicator.planes.records.copying import Writer, copy_run, new_run
from replicator.planes.records.digest import Chain
from replicator.planes.records.sizes import encoded_bytes

TARGET = Partition("a.orders", 0)


@dataclass
class Message:
    """A record as confluent-kafka gives it; `broken` makes `headers()` raise as it does for odd bytes."""

    at: int
    payload: bytes | None = b"v"
    stamp: tuple[int, int] = (TIMESTAMP_CREATE_TIME, 1000)
    broken: bool = False

    def topic(self) -> str:
        return "orders"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self.at

    def leader_epoch(self) -> int | None:
        return 4

    def key(self) -> bytes | None:
        return b"k"

    def value(self) -> bytes | None:
        return self.payload

    def timestamp(self) -> tuple[int, int]:
        return self.stamp

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        if self.broken:
            raise SystemError("error return without exception set")
        return None

    def __len__(self) -> int:
        return len(self.payload or b"")


@dataclass
class Producer:
    """Takes records; full after `room`, until it is polled through the wait."""

    room: int = 1_000
    sent: list[tuple[Any, ...]] = field(default_factory=list)

    def produce(self, *fields: Any) -> None:
        if len(self.sent) >= self.room:
            raise BufferError
        self.sent.append(fields)


def run(
    messages: list[Message],
    producer: Producer | None = None,
    wait: Callable[[], None] | None = None,
    *,
    record_bytes_max: int = 10_000,
    every_ack: bool = False,
    timestamps: TimestampBounds = UNBOUNDED,
) -> Any:
    producer = producer or Producer()
    done = new_run(messages, AckWatch(), every_ack=every_ack)  # type: ignore[arg-type]
    writer = Writer(producer, wait or (lambda: None), record_bytes_max, timestamps)  # type: ignore[arg-type]
    copy_run(writer, done, messages, TARGET, Chain(""))  # type: ignore[arg-type]
    return done, producer.sent


def test_only_the_first_and_the_last_record_ask_for_an_ack() -> None:
    done, sent = run([Message(offset) for offset in (3, 4, 8)])
    assert [fields[4] is not None for fields in sent] == [True, False, True]
    assert (done.next_offset, done.leader_epoch, done.acks.count, done.blocked) == (9, 4, 3, None)


def test_the_record_after_a_blocked_one_is_never_produced() -> None:
    done, sent = run([Message(3), Message(4), Message(5, broken=True), Message(6)])
    assert len(sent) == 2
    assert sent[1][4] is not None, "the last record that goes out asks for its ack"
    assert done.next_offset == 5
    assert (done.blocked.name, done.blocked.topic, done.blocked.offset) == ("header_not_carriable", "orders", 5)


@pytest.mark.parametrize(
    ("message", "name"),
    [
        (Message(0, stamp=(TIMESTAMP_CREATE_TIME, 0)), "timestamp_not_carriable"),
        (Message(0, stamp=(TIMESTAMP_NOT_AVAILABLE, -1)), "timestamp_not_carriable"),
        (Message(0, broken=True), "header_not_carriable"),
        (Message(0, payload=b"x" * 10_000), "record_too_large"),
    ],
)
def test_a_first_record_that_cannot_be_carried_leaves_the_position_on_it(message: Message, name: str) -> None:
    done, sent = run([message, Message(1)])
    assert sent == []
    assert done.next_offset == 0
    assert done.blocked.name == name
    assert done.blocked.advice == KINDS[name].advice


@pytest.mark.parametrize("off_ms", [-10_000, 10_000])
def test_a_record_whose_timestamp_the_target_refuses_is_not_written(off_ms: int) -> None:
    now_ms = time.time_ns() // 1_000_000
    messages = [Message(offset, stamp=(TIMESTAMP_CREATE_TIME, now_ms)) for offset in range(3)]
    messages[1].stamp = (TIMESTAMP_CREATE_TIME, now_ms + off_ms)
    done, sent = run(messages, timestamps=TimestampBounds(5_000, 5_000))
    assert len(sent) == 1
    assert (done.blocked.name, done.blocked.offset, done.next_offset) == ("target_timestamp_bounds", 1, 1)
    assert "kafka-configs" in done.blocked.advice


def test_a_full_queue_is_waited_for_and_keeps_order() -> None:
    producer = Producer(room=1)

    def wait() -> None:
        producer.room += 1

    done, sent = run([Message(offset, payload=b"%d" % offset) for offset in range(4)], producer, wait)
    assert [fields[1] for fields in sent] == [b"0", b"1", b"2", b"3"]
    assert done.next_offset == 4


def test_every_record_asks_for_its_ack_after_a_refusal() -> None:
    done, sent = run([Message(offset) for offset in (3, 4, 8)], every_ack=True)
    assert all(fields[4] is not None for fields in sent)
    sent[1][4](None, Report(70))
    assert done.acks.errors == {}


@dataclass
class Report:
    """A delivery report's message."""

    at: int | None

    def offset(self) -> int | None:
        return self.at

    def timestamp(self) -> tuple[int, int]:
        return TIMESTAMP_CREATE_TIME, 1_000


@pytest.mark.parametrize(
    ("key", "value", "headers", "size"),
    [
        (b"k", b"v" * 10, None, 61 + 1 + 3 + 2 + 11 + 1),
        (None, None, None, 61 + 1 + 3 + 1 + 1 + 1),
        (b"", b"v" * 64, None, 61 + 2 + 3 + 1 + 66 + 1),
        (b"k", b"v", [("h", b"x"), ("i", None)], 61 + 1 + 3 + 2 + 2 + 1 + (2 + 2) + (2 + 1)),
    ],
)
def test_a_record_counts_with_the_bytes_that_it_takes(
    key: bytes | None, value: bytes | None, headers: list[Any] | None, size: int
) -> None:
    """Header of the batch · length · attributes and deltas · key · value · count of headers · headers."""
    assert encoded_bytes(key, value, headers) == size


def test_the_smallest_limit_lets_small_records_pass_and_counts_exactly() -> None:
    payload = 1024 - 61 - 2 - 3 - 2 - 2 - 1
    done, sent = run([Message(0, payload=b"0123456789"), Message(1, payload=b"x" * payload)], record_bytes_max=1024)
    assert (len(sent), done.blocked) == (2, None)
    done, sent = run([Message(1, payload=b"x" * (payload + 1))], record_bytes_max=1024)
    assert (sent, done.blocked.name) == ([], "record_too_large")
    assert done.bytes == 0
