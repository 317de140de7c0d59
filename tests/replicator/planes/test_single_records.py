"""A single record is read within a moment, or it is told why it isn't: a lane copies nothing meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, TopicPartition

from replicator.model.errors import Retriable
from replicator.model.partition import Partition
from replicator.planes.contract import UnreadRecord, WholeRecord
from replicator.planes.records import record_reader
from replicator.planes.records.record_reader import POLL_S, RECORD_S_MAX, TURN_S, LogReader
from tests.replicator.kafka.test_producer import make_flow
from tests.replicator.planes.fakes import FakeConsumer, Message, failed, records

A, B = Partition("a", 0), Partition("a", 1)
TOO_LARGE = "Receive failed: Invalid response size 30000204 (0..17825792): increase receive.message.max.bytes"


@dataclass
class Waiting(FakeConsumer):
    """One whose calls take as long as they may where nothing comes. `told`: what happens during the next of them."""

    clock: Clock = field(default_factory=lambda: Clock())
    assignments: list[tuple[str, int, int]] = field(default_factory=list)
    told: list[Callable[[], None]] = field(default_factory=list)
    closed: bool = False

    def assign(self, partitions: list[TopicPartition]) -> None:
        super().assign(partitions)
        self.assignments += [(at.topic, at.partition, at.offset) for at in partitions]

    def unassign(self) -> None:
        self.assigned = []

    def consume(self, limit: int, timeout: float) -> list[Message]:
        if self.told:
            self.told.pop(0)()
        taken = super().consume(limit, timeout)
        self.clock.now_s += 0.0 if taken else timeout
        return taken

    def close(self) -> None:
        self.closed = True


@dataclass
class Clock:
    now_s: float = 100.0
    made: list[Waiting] = field(default_factory=list)
    first: list[Callable[[Waiting], Any]] = field(default_factory=list)  # done to each consumer that is made

    def make(self, conf: dict[str, Any]) -> Waiting:
        """In the place of confluent_kafka's consumer."""
        self.made.append(Waiting(conf, clock=self))
        for do in self.first:
            do(self.made[-1])
        return self.made[-1]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(record_reader, "Consumer", made.make)
    monkeypatch.setattr(record_reader, "time", SimpleNamespace(monotonic=lambda: made.now_s))
    return made


@pytest.fixture
def reader(clock: Clock) -> LogReader:
    flow = make_flow()
    return LogReader(flow, flow.source, threading.Event())


@pytest.mark.parametrize("never", [1, 2, 5])
def test_a_record_gets_its_turn_however_many_others_never_come(clock: Clock, reader: LogReader, never: int) -> None:
    dead = [Partition("a", number) for number in range(never)]
    at, began_s, turn_s = Partition("a", never), clock.now_s, TURN_S
    clock.first.append(lambda client: client.queue.extend(records("a", never, 7)))
    for _ in range(200):
        for one in dead:
            with pytest.raises(Retriable):
                reader.record_now(one, 7)
        with suppress(Retriable):
            assert isinstance(reader.record_now(at, 7), WholeRecord)
            break
        clock.now_s += 30.0
    assert clock.now_s < began_s + (never + 1) * turn_s * 1.5


def test_a_record_that_nobody_asks_for_any_more_keeps_no_turn(clock: Clock, reader: LogReader) -> None:
    for number in (0, 1):  # the first waits, the second is refused: neither is asked for again
        with pytest.raises(Retriable):
            reader.record_now(Partition("a", number), 7)
    clock.first.append(lambda client: client.queue.extend(records("a", 2, 7)))
    clock.now_s += 2 * TURN_S
    assert isinstance(reader.record_now(Partition("a", 2), 7), WholeRecord)


def test_what_does_not_come_is_not_waited_for(clock: Clock, reader: LogReader) -> None:
    with pytest.raises(Retriable, match="doesn't answer"):
        reader.record_now(A, 7)
    assert clock.now_s <= 100 + RECORD_S_MAX + 2 * POLL_S


def test_what_comes_later_is_there_when_it_is_asked_for_again(clock: Clock, reader: LogReader) -> None:
    """It is not fetched from the beginning again: over a slow connection it would never come."""
    with pytest.raises(Retriable):
        reader.record_now(A, 7)
    (client,) = clock.made
    assert not client.closed
    client.queue += records("a", 0, 7, 8)
    assert reader.record_now(A, 7) == WholeRecord(b"k", b"v", 1_000, ())
    assert (client.assignments, client.closed) == ([("a", 0, 7)], True)


def test_another_record_is_asked_for_anew(clock: Clock, reader: LogReader) -> None:
    with pytest.raises(Retriable):
        reader.record_now(A, 7)
    (client,) = clock.made
    clock.first.append(lambda other: other.queue.extend(records("a", 1, 7)))
    with pytest.raises(Retriable, match="waited for before"):
        reader.record_now(B, 7)
    clock.now_s += TURN_S
    assert isinstance(reader.record_now(B, 7), WholeRecord)
    assert (client.closed, client.assignments, clock.made[1].assignments) == (True, [("a", 0, 7)], [("a", 1, 7)])


def test_a_late_error_of_one_record_is_not_believed_of_another(clock: Clock, reader: LogReader) -> None:
    """Its record would be lost to the target: a stub has neither key nor value."""
    with pytest.raises(Retriable):
        reader.record_now(A, 7)
    (late,) = clock.made
    late.told.append(lambda: late.tell(KafkaError._BAD_MSG, TOO_LARGE))
    clock.first.append(lambda other: other.told.append(lambda: other.queue.extend(records("a", 1, 7))))
    clock.now_s += TURN_S
    assert isinstance(reader.record_now(B, 7), WholeRecord)


def test_two_records_that_come_slowly_are_both_read(clock: Clock, reader: LogReader) -> None:
    """Each is waited for by itself: to ask for the other would throw away what is on its way."""

    def slow(client: Waiting) -> None:
        asked, ready_s = 0, 0.0

        def come() -> None:
            nonlocal asked, ready_s
            client.told.append(come)
            if len(client.assignments) > asked:
                asked, ready_s = len(client.assignments), clock.now_s + 5.0
            if clock.now_s >= ready_s and client.assigned:
                at = client.assigned[0]
                client.queue += records(at.topic, at.partition, 7)
                client.told.clear()

        client.told.append(come)

    clock.first.append(slow)
    done, until_s = set[Partition](), clock.now_s + 10 * TURN_S
    while done != {A, B} and clock.now_s < until_s:
        for at in {A, B} - done:
            with suppress(Retriable):
                assert isinstance(reader.record_now(at, 7), WholeRecord)
                done.add(at)
        clock.now_s += 30.0
    assert done == {A, B}


def test_a_batch_that_is_too_large_is_named_at_once(clock: Clock, reader: LogReader) -> None:
    clock.first.append(lambda client: client.told.append(lambda: client.tell(KafkaError._BAD_MSG, TOO_LARGE)))
    found = reader.record_now(A, 7)
    assert isinstance(found, UnreadRecord)
    assert "30000204" in found.why
    assert clock.now_s <= 100 + POLL_S


def test_what_another_request_on_its_connection_is_told_is_no_error(clock: Clock, reader: LogReader) -> None:
    """The client looks up a coordinator, which it has no use for."""
    cut = Message(None, None, None, KafkaError(KafkaError._BAD_MSG, "FindCoordinator response error"))
    clock.first.append(lambda client: client.queue.append(cut))
    clock.first.append(lambda client: client.told.append(lambda: client.tell(KafkaError._BAD_MSG, TOO_LARGE)))
    assert isinstance(reader.record_now(A, 7), UnreadRecord)


def test_one_that_is_too_large_for_a_fetch_is_named_too(clock: Clock, reader: LogReader) -> None:
    clock.first.append(lambda client: client.queue.append(failed(KafkaError.MSG_SIZE_TOO_LARGE, "a", 0, 7, "large")))
    assert reader.record_now(A, 7) == UnreadRecord("large")


def test_a_batch_that_is_too_large_behind_the_record_is_nothing_to_it(clock: Clock, reader: LogReader) -> None:
    def first(client: Waiting) -> None:
        client.queue += records("a", 0, 8)
        client.told.append(lambda: client.tell(KafkaError._BAD_MSG, TOO_LARGE))

    clock.first.append(first)
    assert reader.record_now(A, 7) is None


def test_an_offset_that_retention_has_taken_is_no_record(clock: Clock, reader: LogReader) -> None:
    gone = failed(KafkaError._AUTO_OFFSET_RESET, "a", 0, 7, "requested offset not available on the broker")
    clock.first.append(lambda client: client.queue.append(gone))
    assert reader.record_now(A, 7) is None
    assert clock.made[0].closed


def test_what_a_repair_reads_is_waited_for_and_told_why_it_does_not_come(clock: Clock, reader: LogReader) -> None:
    limits = make_flow().limits
    with pytest.raises(Retriable, match="doesn't answer"):
        list(reader.identities(A, [(7, 9)]))
    assert clock.now_s > 100 + (limits.request_timeout_ms + limits.transaction_timeout_ms) / 1000
    clock.made[0].told.append(lambda: clock.made[0].tell(KafkaError._BAD_MSG, TOO_LARGE))
    with pytest.raises(Retriable, match="Invalid response size 30000204"):
        list(reader.identities(A, [(7, 9)]))
    gone = failed(KafkaError._AUTO_OFFSET_RESET, "a", 0, 7, "requested offset not available on the broker")
    clock.made[0].queue.append(gone)
    with pytest.raises(Retriable, match="has no offset 7"):
        list(reader.identities(A, [(7, 9)]))


def test_it_takes_batches_that_the_target_takes(clock: Clock) -> None:
    flow = make_flow()
    for taken in (0, 40_000_000):
        with pytest.raises(Retriable):
            LogReader(flow, flow.source, threading.Event(), taken).record_now(A, 7)
    small, large = (client.conf["receive.message.max.bytes"] for client in clock.made)
    assert small < 40_000_000 < large


def test_a_command_waits_longer_and_takes_no_lost_record_for_none(clock: Clock, reader: LogReader) -> None:
    clock.first.append(lambda client: client.told.extend([lambda: None] * 10 + [lambda: later(client)]))

    def later(client: Waiting) -> None:
        client.queue += records("a", 0, 7)

    assert reader.record(A, 7) == WholeRecord(b"k", b"v", 1_000, ())
    assert clock.now_s > 100 + RECORD_S_MAX
    clock.made[0].queue.append(failed(KafkaError._AUTO_OFFSET_RESET, "a", 0, 7, "not available on the broker"))
    with pytest.raises(Retriable, match="has no offset 7"):
        reader.record(A, 7)
