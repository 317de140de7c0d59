"""The plane between a fake consumer and a fake producer: what failed writes are told as, and what acks must show."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from replicator.config import Delivery
from replicator.kafka import group_offsets, producer
from replicator.model.errors import Abortable, Fenced, NotAllowed, UnknownOutcome
from replicator.model.partition import Committed, Partition, Seek
from replicator.planes.contract import PollResult, ReadPlan, RecordsRefused, Written
from replicator.planes.records import oversized, plain, source
from replicator.planes.records.losses import NO_ACK, LostRecords
from replicator.planes.records.plane import RecordsPlane
from replicator.planes.settings import PlaneSettings
from tests.replicator.kafka.fakes import Factory, FakeProducer, Report
from tests.replicator.kafka.test_producer import make_flow
from tests.replicator.planes.fakes import Consumers, FakeConsumer, records

A, B = Partition("a", 0), Partition("b", 0)
ROUTES = {A: Partition("copy.a", 0), B: Partition("copy.b", 0)}


class World:
    """A plane that reads A and B, with its fake clients."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, delivery: Delivery = Delivery.EXACTLY_ONCE) -> None:
        producers, consumers = Factory(), Consumers()
        monkeypatch.setattr(producer, "Producer", producers)
        monkeypatch.setattr(plain, "Producer", producers)
        for module in (source, oversized, group_offsets):
            monkeypatch.setattr(module, "Consumer", consumers)
        self.lost: list[LostRecords] = []
        flow = make_flow().model_copy(update={"delivery": delivery})
        settings = PlaneSettings(flow, "eos.f.1.0", 3, ROUTES, 1_000_000, 1_048_588)
        self.plane = RecordsPlane(settings, lambda text: None, self.lost.append)
        self.producers = producers.made
        self.consumer: FakeConsumer = consumers.made[1]  # the first reads positions
        self.plane.fence()
        self.seek()

    @property
    def producer(self) -> FakeProducer:
        """The transactional one."""
        return self.producers[0]

    def seek(self, *, every_ack: bool = False) -> None:
        self.plane.seek({at: ReadPlan(Seek(0, -1), every_ack=every_ack) for at in ROUTES})

    def read(self, topic: str, *offsets: int) -> PollResult:
        self.consumer.queue += records(topic, 0, *offsets)
        return self.plane.poll(100, 0)

    def refuse(self, topic: str, codes: list[int]) -> None:
        """The broker refuses the batch of all that is queued for `topic`; the rest is purged."""
        batch = [fields for fields in self.producer.queued if fields[0] == topic]
        self.producer.queued = [fields for fields in self.producer.queued if fields[0] != topic]
        text = f"ProduceRequest for {topic} [0] with {len(batch)} message(s) failed: Broker: refused"
        self.producer.fail(next(code for code in codes if code > 0), text)
        for place, (fields, code) in enumerate(zip(batch, codes, strict=True)):
            if fields[4] is not None:
                fields[4](KafkaError(code), Report(place - 1 if place else None))


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


BAD, DIFFERENT = KafkaError.INVALID_RECORD, KafkaError._INVALID_DIFFERENT_RECORD


def test_the_refused_record_is_named_behind_a_purge_of_another_partition(world: World) -> None:
    world.seek(every_ack=True)
    world.read("b", 0, 1, 2)
    world.read("a", 10, 11, 15, 16)
    world.refuse("copy.a", [DIFFERENT, DIFFERENT, BAD, BAD])
    with pytest.raises(RecordsRefused, match=r"copy\.a.0.: INVALID_RECORD") as caught:
        world.plane.flush()
    assert caught.value.refusals.keys() == {A}
    assert caught.value.refusals[A].suspects == (15,)


def test_without_every_ack_the_partition_is_known_from_its_first_and_last_record(world: World) -> None:
    world.read("b", 0, 1, 2)
    world.read("a", 10, 11, 15)
    world.refuse("copy.a", [DIFFERENT, BAD, DIFFERENT])
    with pytest.raises(RecordsRefused) as caught:
        world.plane.flush()
    assert {at: found.suspects for at, found in caught.value.refusals.items()} == {A: ()}


def test_a_batch_between_the_first_and_the_last_record_is_known_from_the_transaction(world: World) -> None:
    """Its records have no report that is listened to, and what was purged says nothing."""
    world.read("a", *range(5))
    world.read("b", 0, 1)
    middle = [fields for fields in world.producer.queued if fields[4] is None]
    assert len(middle) == 3
    world.producer.queued = [fields for fields in world.producer.queued if fields[4] is not None]
    world.producer.fail(BAD, "ProduceRequest for copy.a [0] with 3 message(s) failed: Broker: refused")
    with pytest.raises(RecordsRefused) as caught:
        world.plane.flush()
    assert {at: found.suspects for at, found in caught.value.refusals.items()} == {A: ()}


def test_a_refusal_is_told_by_the_poll_that_meets_it(world: World) -> None:
    world.read("a", 0, 1)
    world.refuse("copy.a", [KafkaError.MSG_SIZE_TOO_LARGE] * 2)
    with pytest.raises(RecordsRefused):
        world.read("b", 0)


def test_a_refusal_that_names_nothing_names_nothing(world: World) -> None:
    world.read("a", 0, 1)
    world.producer.fail(BAD, "no partition in this text")
    with pytest.raises(RecordsRefused) as caught:
        world.plane.flush()
    assert caught.value.refusals == {}


def test_a_missing_right_names_the_topic_and_its_source_partitions(world: World) -> None:
    world.read("a", 0, 1)
    world.read("b", 0, 1)
    line = 'ADDPARTS: Failed to add partition "copy.b" [0] to transaction: Broker: Topic authorization failed'
    world.producer.on_poll.append(lambda: world.producer.logger.error(line))
    world.producer.fail(KafkaError.TOPIC_AUTHORIZATION_FAILED, "Failed to add partition(s) to transaction")
    with pytest.raises(NotAllowed, match=r"cluster .west.: .* the user needs Write on topic .copy\.b.") as caught:
        world.plane.flush()
    assert caught.value.partitions == {B}


def test_other_failures_are_aborted(world: World) -> None:
    world.read("a", 0, 1)
    world.producer.fail(KafkaError._TIMED_OUT, "too late")
    with pytest.raises(Abortable, match="too late") as caught:
        world.plane.flush()
    assert not isinstance(caught.value, RecordsRefused)


def ack(world: World, *offsets: int | None) -> None:
    """Acknowledge what is queued with these target offsets."""
    queued, world.producer.queued = world.producer.queued, []
    for fields, offset in zip(queued, offsets, strict=True):
        if fields[4] is not None:
            fields[4](None, Report(offset))


def test_acks_are_contiguous_over_the_whole_transaction(world: World) -> None:
    world.read("a", 0, 1, 5)
    world.read("a", 6)
    ack(world, 100, 101, 102, 103)
    copied = world.plane.flush().copied[A]
    assert (copied.first_target, copied.next_target, copied.records, copied.next_offset) == (100, 104, 4, 7)


@pytest.mark.parametrize("offsets", [(100, 101, 103, 104), (100, 101, 101, 102), (100, 102, 103, 104)])
def test_acks_with_a_gap_within_or_between_runs_are_not_committed(world: World, offsets: tuple[int, ...]) -> None:
    world.read("a", 0, 1)
    world.read("a", 2, 3)
    ack(world, *offsets)
    with pytest.raises(Abortable, match="got offsets"):
        world.plane.flush()


def test_an_ack_without_its_offset_is_an_unknown_outcome(world: World) -> None:
    world.read("a", 0, 1)
    ack(world, 100, None)
    with pytest.raises(UnknownOutcome):
        world.plane.flush()


def test_positions_and_claims_go_into_one_transaction(world: World) -> None:
    before: list[list[str]] = []
    entries = [(b"key", b"value")]
    world.plane.commit({ROUTES[A]: Committed(7, "m")}, entries, lambda: before.append(list(world.producer.calls)))
    assert [call for call in before[0] if call in ("offsets", "commit")] == ["offsets"]
    assert world.producer.calls[-1] == "commit"
    assert world.producer.next_offset == 1, "the claim was acknowledged before the positions were sent"


def test_the_claim_goes_to_the_lanes_partition(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Any] = []
    monkeypatch.setattr(FakeProducer, "produce", lambda self, *fields: sent.append(fields))
    world.plane.commit({}, [(b"key", b"value")])
    assert sent == [("__eos.f.claims", b"value", b"key", 3)]


def test_spans_are_told_by_the_offsets_that_were_copied(world: World) -> None:
    world.plane.seek({A: ReadPlan(Seek(0, -1), spans=((2, 4), (7, 9)))})
    world.read("a", *range(10))
    assert world.plane.flush().copied[A].runs == [(2, 4), (7, 9)]


def test_source_offsets_are_told_as_runs(world: World) -> None:
    world.plane.seek({A: ReadPlan(Seek(0, -1))})
    told = [world.read("a", *offsets).runs for offsets in ((0, 1, 2), (3, 5, 6), (9,))]
    assert told == [1, 2, 1]
    assert world.plane.flush().copied[A].runs == [(0, 4), (5, 7), (9, 10)]


def test_after_an_abort_late_reports_are_of_no_account(world: World) -> None:
    world.read("a", 0, 1)
    late = list(world.producer.queued)
    world.plane.abort()
    world.seek()
    for fields in late:
        fields[4](KafkaError(KafkaError._PURGE_INFLIGHT), Report(None))
    world.read("a", 0, 1)
    assert world.plane.flush().copied[A].records == 2


def test_at_least_once_replaces_its_writer_after_an_abort(monkeypatch: pytest.MonkeyPatch) -> None:
    """A purged idempotent producer has a gap in its sequence numbers, and what it holds would go out later."""
    world = World(monkeypatch, Delivery.AT_LEAST_ONCE)
    world.producers[1].holds_acks = True
    world.read("a", 0, 1)
    assert len(world.producers[1].queued) == 2
    assert world.producer.queued == []
    world.plane.abort()
    world.seek()
    world.read("a", 0, 1)
    assert (len(world.producers), "purge" in world.producers[1].calls) == (3, True)
    assert world.plane.flush().copied[A].records == 2


@pytest.mark.parametrize("met_by", ["produce", "flush", "serve"])
def test_a_fatal_error_of_the_plain_writer_is_an_unknown_outcome_and_its_producer_is_replaced(
    monkeypatch: pytest.MonkeyPatch, met_by: str
) -> None:
    """The target has lost what it had acknowledged; confluent-kafka raises the error from whatever serves callbacks."""
    world = World(monkeypatch, Delivery.AT_LEAST_ONCE)
    world.read("a", 0, 1)
    fatal = KafkaException(KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, "lost", fatal=True))

    def fail() -> None:
        world.producers[1].on_poll.append(fail)  # for good
        raise fatal

    world.producers[1].on_poll.append(fail)
    calls: dict[str, Callable[[], object]] = {
        "produce": lambda: world.read("a", 2),
        "flush": world.plane.flush,
        "serve": lambda: world.read("a"),
    }
    with pytest.raises(UnknownOutcome, match="cannot write records: OUT_OF_ORDER_SEQUENCE_NUMBER: lost"):
        calls[met_by]()
    world.plane.abort()
    world.seek()
    world.read("a", 0, 1)
    assert world.plane.flush().copied[A].records == 2
    assert len(world.producers) == 3


def test_a_fenced_plain_writer_says_nothing_of_the_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, Delivery.AT_LEAST_ONCE)
    world.read("a", 0, 1)
    world.producers[1].fail(KafkaError.INVALID_PRODUCER_EPOCH)
    for fields in world.producer.queued:
        fields[4](KafkaError(KafkaError.INVALID_PRODUCER_EPOCH), Report(None))
    with pytest.raises(Abortable):
        world.plane.flush()


def test_at_most_once_writes_behind_the_position_and_tells_what_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, Delivery.AT_MOST_ONCE)
    world.read("a", 0, 1)
    copied = world.plane.flush().copied[A]
    assert (copied.records, copied.next_offset) == (2, 2)
    assert world.producers[1].queued == []
    world.plane.commit({ROUTES[A]: Committed(2, "m")})
    world.plane.deliver()
    assert world.producers[1].next_offset == 2
    assert world.lost == []
    assert not world.plane.poll(1, 0).pending


def test_at_most_once_says_for_each_partition_how_many_records_are_lost_and_which(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch, Delivery.AT_MOST_ONCE)
    for offsets in ([0, 1, 5], [6, 9]):
        world.read("a", *offsets)
    world.read("b", 3)
    world.plane.flush()
    world.plane.commit({ROUTES[A]: Committed(10, "m"), ROUTES[B]: Committed(4, "m")})
    writer = world.producers[1]
    timed_out, refused = KafkaError(KafkaError._MSG_TIMED_OUT, "timed out"), KafkaError(KafkaError._TRANSPORT, "down")

    def flush(timeout: float) -> int:
        """The 2nd to 4th record of a fail, the last one gets no answer; b's is stored."""
        for index, error in ((0, None), (1, timed_out), (2, timed_out), (3, refused), (5, None)):
            writer.queued[index][4](error, Report(None if error else index))
        return 1

    monkeypatch.setattr(writer, "flush", flush)
    world.plane.deliver()
    (lost,) = world.lost
    assert lost == LostRecords(A, 4, ((1, 9),), f"timed out; down; {NO_ACK}")
    assert sum(it.records for it in world.lost) == 4


def test_at_most_once_tells_what_is_lost_when_the_writing_ends_midway(monkeypatch: pytest.MonkeyPatch) -> None:
    """The positions are committed; the queue is full, and one of the target's partitions has no leader."""
    world = World(monkeypatch, Delivery.AT_MOST_ONCE)
    for topic in "ab":
        world.read(topic, 0, 1, 2, 4)
    world.read("a", 5)
    world.plane.flush()
    world.plane.commit({ROUTES[A]: Committed(6, "m"), ROUTES[B]: Committed(5, "m")})
    world.producers[1].room = 6

    def stalled(written: Written) -> None:
        raise Abortable("copy.b[0] has no leader")

    world.plane.on_stall(stalled)
    with pytest.raises(Abortable, match="no leader"):
        world.plane.deliver()
    assert world.producers[1].next_offset == 6, "what was in the queue is written before it is discarded"
    why = "not written: copy.b[0] has no leader"
    assert world.lost == [LostRecords(A, 1, ((5, 5),), why), LostRecords(B, 2, ((2, 4),), why)]
    world.plane.abort()
    world.plane.close()
    assert len(world.lost) == 2, "once"


def test_at_most_once_tells_what_is_lost_after_a_fatal_error_of_the_writer(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, Delivery.AT_MOST_ONCE)
    world.read("a", 0, 1)
    world.plane.flush()
    world.plane.commit({ROUTES[A]: Committed(2, "m")})

    def fail() -> None:
        raise KafkaException(KafkaError(KafkaError._FATAL, "lost", fatal=True))

    world.producers[1].on_poll.append(fail)
    with pytest.raises(UnknownOutcome):
        world.plane.deliver()
    assert world.lost == [LostRecords(A, 2, ((0, 1),), NO_ACK)]


@pytest.mark.parametrize("applied", [False, True])
def test_at_most_once_tells_what_may_be_lost_by_a_commit_of_unknown_outcome(
    monkeypatch: pytest.MonkeyPatch, *, applied: bool
) -> None:
    world = World(monkeypatch, Delivery.AT_MOST_ONCE)
    world.read("a", 0, 1, 3)
    world.plane.flush()
    commit = world.producer.commit_transaction

    def broken(timeout: float) -> None:
        commit(timeout)
        error = KafkaError(KafkaError._TRANSPORT, "gone")
        if not applied:
            raise KafkaException(error)
        world.producer.on_poll.append(lambda: world.producer.conf["error_cb"](error))

    monkeypatch.setattr(world.producer, "commit_transaction", broken)
    with pytest.raises(UnknownOutcome) as caught:
        world.plane.commit({ROUTES[A]: Committed(4, "m")})
    why = f"written only if the commit was not applied: {caught.value}"
    assert world.lost == [LostRecords(A, 3, ((0, 3),), why, certain=False)]
    world.plane.close()
    assert len(world.lost) == 1, "once"


def test_what_a_commit_certainly_has_not_moved_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, Delivery.AT_MOST_ONCE)
    world.read("a", 0, 1)
    world.plane.flush()

    def fenced(timeout: float) -> None:
        raise KafkaException(KafkaError(KafkaError._FENCED, "another one"))

    monkeypatch.setattr(world.producer, "commit_transaction", fenced)
    with pytest.raises(Fenced):
        world.plane.commit({ROUTES[A]: Committed(2, "m")})
    world.plane.close()
    assert world.lost == []
