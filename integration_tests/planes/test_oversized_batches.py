"""A source batch larger than the source reader takes: named at its partition and offset, once; the others go on."""

from __future__ import annotations

import resource
import threading
import time
from collections.abc import Callable
from contextlib import closing

import pytest

from integration_tests.harness import clients
from integration_tests.harness.broker import BrokerHandle
from integration_tests.planes.conftest import SOON_S, MakePlane, make_flow
from replicator.kafka.properties import RESPONSE_OVERHEAD_BYTES, fetch_bytes_max
from replicator.model.errors import Incident
from replicator.model.partition import Partition
from replicator.planes.contract import UnreadRecord, WholeRecord
from replicator.planes.records.record_reader import LogReader

LARGE_BYTES = 20_000_000
MakePair = Callable[..., tuple[str, str]]


def put_large(bootstrap: str, topic: str, partition: int, size: int = LARGE_BYTES) -> None:
    writer = clients.producer(bootstrap, message_max_bytes=size + 1_000_000)
    clients.put(writer, topic, b"x" * size, partition=partition, key=b"k")


def test_it_is_found_at_its_offset_while_the_others_go_on(
    source: BrokerHandle, pair: MakePair, make_plane: MakePlane
) -> None:
    name, copy = pair(4, {"max.message.bytes": str(LARGE_BYTES * 2)})
    writer = clients.producer(source.bootstrap)
    for partition in range(4):
        clients.put(writer, name, *[b"v"] * 10, partition=partition, key=b"k")
    put_large(source.bootstrap, name, 2)
    clients.put(writer, name, b"behind", partition=2, key=b"k")
    driven = make_plane({name: (4, copy)})
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    driven.seek()
    driven.read(40)
    driven.read(1, until=lambda result: bool(driven.failed))
    (found,) = driven.failed.items()
    assert found[0] == Partition(name, 2)
    assert isinstance(found[1], Incident)
    assert (found[1].name, found[1].topic, found[1].partition, found[1].offset) == ("record_too_large", name, 2, 10)
    driven.failed.clear()
    for _ in range(3):  # it is not read on: what comes now comes at once
        for partition in (0, 1, 3):
            clients.put(writer, name, b"more", partition=partition, key=b"k")
        driven.read(3)
    assert driven.failed == {}
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown_kib < 2 * LARGE_BYTES / 1024


def test_two_of_them_are_found_one_after_the_other(source: BrokerHandle, pair: MakePair, make_plane: MakePlane) -> None:
    name, copy = pair(3, {"max.message.bytes": str(LARGE_BYTES * 2)})
    put_large(source.bootstrap, name, 0)
    put_large(source.bootstrap, name, 2)
    clients.put(clients.producer(source.bootstrap), name, b"v", partition=1, key=b"k")
    driven = make_plane({name: (3, copy)})
    driven.seek()
    driven.read(2, until=lambda result: len(driven.failed) == 2)
    assert driven.failed.keys() == {Partition(name, 0), Partition(name, 2)}


@pytest.mark.parametrize("target_limit", [LARGE_BYTES * 2])
def test_what_the_target_takes_is_read_whatever_its_size(
    source: BrokerHandle, pair: MakePair, make_plane: MakePlane, target_limit: int
) -> None:
    name, copy = pair(1, {"max.message.bytes": str(target_limit)}, max_message_bytes=str(target_limit))
    put_large(source.bootstrap, name, 0)
    driven = make_plane({name: (1, copy)}, record_bytes_max=target_limit)
    assert fetch_bytes_max(driven.flow, target_limit) + RESPONSE_OVERHEAD_BYTES > LARGE_BYTES
    driven.seek()
    copied = driven.read_and_flush(1)
    assert copied[Partition(name, 0)].next_offset == 1


@pytest.mark.tier("full")
def test_a_single_record_of_one_is_told_to_be_too_large_in_a_moment(source: BrokerHandle, pair: MakePair) -> None:
    """Which is set aside then as a stub. What the target takes is read whole, also where a repair asks for it."""
    name, _ = pair(1, {"max.message.bytes": str(LARGE_BYTES * 2)})
    writer = clients.producer(source.bootstrap)
    clients.put(writer, name, b"before", partition=0, key=b"k")
    put_large(source.bootstrap, name, 0)
    clients.put(writer, name, b"behind", partition=0, key=b"k")
    flow, at, never = make_flow(source.bootstrap, source.bootstrap), Partition(name, 0), threading.Event()
    with closing(LogReader(flow, flow.source, never)) as reader:
        for offset, value in ((0, b"before"), (2, b"behind")):
            found = reader.record_now(at, offset)
            assert isinstance(found, WholeRecord)
            assert found.value == value
        began = time.monotonic()
        large = reader.record_now(at, 1)
        assert isinstance(large, UnreadRecord)
        assert "Invalid response size" in large.why
        assert time.monotonic() - began < SOON_S
    with closing(LogReader(flow, flow.source, never, LARGE_BYTES * 2)) as reader:
        (read,) = [one for some in reader.identities(at, [(1, 2)]) for one in some]
        assert read.size > LARGE_BYTES
