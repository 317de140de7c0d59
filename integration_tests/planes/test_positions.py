"""Positions: many in one transaction, errors of single partitions as values, and how long an abort takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka.admin import NewTopic

from integration_tests.harness import clients
from integration_tests.harness.broker import BrokerHandle, Kind
from integration_tests.harness.kafka_container import KafkaContainer
from integration_tests.harness.proxy import Action, Proxy, Side
from integration_tests.planes.conftest import SOON_S, MakePlane, make_flow, only_records
from replicator.kafka import offset_reader
from replicator.kafka.coordinator_patience import CoordinatorPatience
from replicator.kafka.producer import OFFSET_OVERHEAD_BYTES, TXN_OFFSETS_BYTES_MAX
from replicator.model import checkpoint
from replicator.model.errors import UnknownOutcome
from replicator.model.partition import Committed, Partition

MakePair = Callable[..., tuple[str, str]]
POSITIONS = 1_000
HEAP_MIB = 768
SLOW_S = 60.0
METADATA = "m" * 700  # about what evidence takes


@pytest.fixture
def roomy(kind: Kind, target: BrokerHandle) -> Iterator[BrokerHandle]:
    """A target for a thousand partitions. Kafka gets one of its own with more memory: the one that all tests share
    was busy for minutes, and left its controller without an answer."""
    if kind != "kafka":
        yield target
        return
    broker = KafkaContainer(HEAP_MIB)
    try:
        broker.start()
        clients.warm_up(broker.bootstrap)
        yield broker
    finally:
        broker.stop()


def test_a_thousand_positions_of_the_longest_names_are_committed_in_one_transaction(
    source: BrokerHandle, roomy: BrokerHandle, unique: Callable[[str], str], make_plane: MakePlane
) -> None:
    """In one TxnOffsetCommit they would be larger than a batch of __consumer_offsets may be."""
    topics = [f"{unique('long')}-{number}-".ljust(249, "x") for number in range(4)]
    client = clients.admin(roomy.bootstrap)
    new = [NewTopic(topic, POSITIONS // 4, 1) for topic in topics]
    for future in client.create_topics(new, operation_timeout=60).values():
        future.result(60)
    at = [Partition(topic, number) for topic in topics for number in range(POSITIONS // 4)]
    assert POSITIONS * (249 + len(METADATA) + OFFSET_OVERHEAD_BYTES) > 3 * TXN_OFFSETS_BYTES_MAX
    with Proxy(roomy.bootstrap) as proxy:
        patience = CoordinatorPatience(SLOW_S, late_s=SLOW_S)  # the broker has just made a thousand partitions
        driven = make_plane({}, flow=make_flow(source.bootstrap, proxy.bootstrap), patience=patience)
        driven.plane.commit({one: Committed(number, METADATA) for number, one in enumerate(at)})
        assert proxy.count("TxnOffsetCommit", Side.REQUEST) >= 4
        assert proxy.count("EndTxn", Side.REQUEST) == 1
        found = driven.plane.positions(at)
    assert found == {one: checkpoint.read(Committed(number, METADATA)) for number, one in enumerate(at)}


def test_positions_of_one_engine_are_read_by_the_other(pair: MakePair, make_plane: MakePlane) -> None:
    """Metadata ends where it ends: with confluent-kafka's zero byte, and in no other length of memory."""
    _, copy = pair(50)
    written = make_plane({})
    wanted: dict[Partition, object] = {}
    for size in (341, 344, 350):
        offsets = {Partition(copy, number): Committed(size, "m" * size) for number in range(50)}
        written.plane.commit(offsets)
        wanted = {at: checkpoint.read(one) for at, one in offsets.items()}
        assert offset_reader.positions(written.flow, offsets) == wanted
    other = make_plane({}, flow=written.flow, other_engine=True)
    assert other.plane.positions(list(offsets)) == wanted


def test_no_position_is_none_and_nothing_else_is(pair: MakePair, make_plane: MakePlane) -> None:
    name, copy = pair(1)
    driven = make_plane({name: (1, copy)})
    assert driven.plane.positions([Partition(copy, 0)]) == {Partition(copy, 0): None}


def test_an_abort_purges_what_is_queued_and_takes_no_time(
    source: BrokerHandle, target: BrokerHandle, pair: MakePair, make_plane: MakePlane
) -> None:
    name, copy = pair(1)
    clients.put(clients.producer(source.bootstrap, linger_ms=20), name, *[b"v" * 200] * 5_000, key=b"k")
    driven = make_plane({name: (1, copy)})
    driven.seek()
    for _ in range(3):  # in the middle of writing, again and again with the same producer
        driven.read(5_000)
        began = time.monotonic()
        driven.plane.abort()
        assert time.monotonic() - began < SOON_S
        driven.seek()
    copied = driven.read_and_flush(5_000)[Partition(name, 0)]
    assert copied.next_target - copied.first_target == 5_000
    driven.plane.commit({Partition(copy, 0): Committed(5_000, "m")})
    assert len(clients.read(target.bootstrap, copy)) == 5_000


@only_records("in the second transaction protocol a batch that comes late is refused, so an abort needn't wait for it")
def test_an_abort_with_a_silent_target_ends_in_doubt_and_in_time(
    source: BrokerHandle, target: BrokerHandle, pair: MakePair, make_plane: MakePlane
) -> None:
    name, copy = pair(1)
    clients.put(clients.producer(source.bootstrap), name, *[b"v"] * 10, key=b"k")
    with Proxy(target.bootstrap) as proxy:
        flow = make_flow(source.bootstrap, proxy.bootstrap, limits={"request_timeout_ms": 2_000})
        driven = make_plane({name: (1, copy)}, flow=flow)
        driven.seek()
        held = proxy.rule("Produce", Side.REPLY, Action.HOLD)
        driven.read(10)
        held.wait_hit()
        began = time.monotonic()
        try:
            driven.plane.abort()
        except UnknownOutcome:
            assert time.monotonic() - began < SOON_S
        else:
            raise AssertionError("an abort whose records are in flight is not certain")


@pytest.mark.parametrize("engine", ["batches"], indirect=True)
def test_an_abort_is_certain_although_batches_are_in_flight(
    source: BrokerHandle, target: BrokerHandle, pair: MakePair, make_plane: MakePlane
) -> None:
    name, copy = pair(1)
    clients.put(clients.producer(source.bootstrap), name, *[b"v"] * 10, key=b"k")
    with Proxy(target.bootstrap) as proxy:
        driven = make_plane({name: (1, copy)}, flow=make_flow(source.bootstrap, proxy.bootstrap))
        driven.seek()
        held = proxy.rule("Produce", Side.REQUEST, Action.HOLD)
        driven.read(10)
        while not held.hit:
            driven.plane.poll(1, 0.05)
        began = time.monotonic()
        driven.plane.abort()
        assert time.monotonic() - began < SOON_S
        held.release()  # the batch comes late, under an epoch that is over
        driven.seek()
        driven.read_and_flush(10)
        driven.plane.commit({Partition(copy, 0): Committed(10, "m")})
    assert len(clients.read(target.bootstrap, copy)) == 10
