"""Records that the target refuses: which partition and which offsets the plane names, how soon, and that it goes on."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from integration_tests.harness import clients
from integration_tests.harness.broker import BrokerHandle
from integration_tests.planes.conftest import SOON_S, Driven, MakePlane, only_records
from replicator.config import Delivery
from replicator.model.partition import Committed, Partition
from replicator.planes.contract import RecordsRefused

MakePair = Callable[..., tuple[str, str]]


def fill(bootstrap: str, topic: str, partition: int, count: int, without_key: tuple[int, ...] = ()) -> None:
    writer = clients.producer(bootstrap, linger_ms=50)
    for number in range(count):
        writer.produce(topic, b"v" * 100, None if number in without_key else b"k", partition)
    assert writer.flush(30) == 0


def refused(driven: Driven, records: int) -> RecordsRefused:
    began = time.monotonic()
    with pytest.raises(RecordsRefused) as caught:
        driven.read_and_flush(records)
    assert time.monotonic() - began < SOON_S
    return caught.value


def test_two_records_without_key_are_named_when_every_ack_is_asked_for(
    source: BrokerHandle, pair: MakePair, make_plane: MakePlane
) -> None:
    name, copy = pair(2, cleanup_policy="compact")
    fill(source.bootstrap, name, 0, 100, without_key=(40, 70))
    fill(source.bootstrap, name, 1, 100)
    driven = make_plane({name: (2, copy)})
    driven.seek(every_ack=True)
    refusal = refused(driven, 200).refusals
    assert list(refusal) == [Partition(name, 0)]
    assert refusal[Partition(name, 0)].suspects == (40,)
    assert "INVALID_RECORD" in refusal[Partition(name, 0)].detail


def test_a_single_record_without_key_is_among_the_suspects_of_its_batch(
    source: BrokerHandle, pair: MakePair, make_plane: MakePlane
) -> None:
    """librdkafka overwrites the names of a batch with one bad record, see `acks`."""
    name, copy = pair(1, cleanup_policy="compact")
    fill(source.bootstrap, name, 0, 100, without_key=(40,))
    driven = make_plane({name: (1, copy)}, batch_bytes_max=2_000)
    driven.seek(every_ack=True)
    suspects = refused(driven, 100).refusals[Partition(name, 0)].suspects
    assert 40 in suspects
    assert len(suspects) < 30, "the batch of 2,000 bytes, and not what was purged behind it"
    assert suspects == tuple(range(suspects[0], suspects[-1] + 1))


def test_without_every_ack_the_partition_is_named(
    source: BrokerHandle, pair: MakePair, make_plane: MakePlane, engine: str
) -> None:
    """And no record by librdkafka, which keeps the names to itself."""
    name, copy = pair(6, cleanup_policy="compact")
    for number in range(6):
        fill(source.bootstrap, name, number, 5_000, without_key=(2_500,) if number == 3 else ())
    driven = make_plane({name: (6, copy)}, batch_bytes_max=20_000)
    driven.seek()
    refusals = refused(driven, 30_000).refusals
    assert list(refusals) == [Partition(name, 3)]
    assert refusals[Partition(name, 3)].suspects == ((2_500,) if engine == "batches" else ())


def test_a_record_larger_than_the_target_takes_is_the_only_suspect(
    source: BrokerHandle, pair: MakePair, make_plane: MakePlane
) -> None:
    name, copy = pair(1, max_message_bytes="5000")
    clients.put(clients.producer(source.bootstrap), name, b"a" * 100, b"b" * 6_000, b"c" * 100, key=b"k")
    driven = make_plane({name: (1, copy)}, batch_bytes_max=5_000, record_bytes_max=5_000)
    driven.seek(every_ack=True)
    assert refused(driven, 3).refusals[Partition(name, 0)].suspects == (1,)


def test_the_next_transaction_of_the_same_producer_copies_what_is_before_the_record(
    source: BrokerHandle, target: BrokerHandle, pair: MakePair, make_plane: MakePlane
) -> None:
    name, copy = pair(2, cleanup_policy="compact")
    fill(source.bootstrap, name, 0, 2_000, without_key=(1_500,))
    fill(source.bootstrap, name, 1, 2_000)
    driven = make_plane({name: (2, copy)})
    driven.seek()
    refused(driven, 4_000)
    began = time.monotonic()
    driven.plane.abort()
    assert time.monotonic() - began < SOON_S
    driven.seek()
    del driven.routes[Partition(name, 0)]  # type: ignore[attr-defined]
    driven.seek()
    driven.read(2_000)
    copied = driven.plane.flush().copied
    assert copied[Partition(name, 1)].next_offset == 2_000
    driven.plane.commit({Partition(copy, 1): Committed(2_000, "m")})
    assert len(clients.read(target.bootstrap, copy, 1)) == 2_000
    assert clients.read(target.bootstrap, copy, 0) == []


@only_records("the batches plane has exactly_once only")
def test_at_least_once_names_refused_records_too(source: BrokerHandle, pair: MakePair, make_plane: MakePlane) -> None:
    name, copy = pair(1, cleanup_policy="compact")
    fill(source.bootstrap, name, 0, 10, without_key=(4, 6))
    driven = make_plane({name: (1, copy)}, delivery=Delivery.AT_LEAST_ONCE)
    driven.seek()
    assert refused(driven, 10).refusals[Partition(name, 0)].suspects == (4,)
    driven.plane.abort()
    driven.seek(start=7)
    driven.read(3)
    assert driven.plane.flush().copied[Partition(name, 0)].next_offset == 10
