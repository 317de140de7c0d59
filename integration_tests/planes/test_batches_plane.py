"""What only the batches plane does: both transaction protocols, source offsets with gaps in one batch after the other,
records that the target names."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from integration_tests.harness import clients
from integration_tests.harness.broker import BrokerHandle
from integration_tests.planes.conftest import MakePlane
from integration_tests.planes.test_batches_wire import fill, shown
from replicator.model.errors import Fenced, Unsupported
from replicator.model.partition import Committed, Partition, Seek
from replicator.planes.batches.session import TransactionalSession
from replicator.planes.batches.txn_protocol import TxnProtocol
from replicator.planes.batches_io import writer
from replicator.planes.contract import ReadPlan, RecordsRefused
from replicator.wire import fetch

pytestmark = [pytest.mark.tier("full"), pytest.mark.parametrize("engine", ["batches"], indirect=True)]
MakePair = Callable[..., tuple[str, str]]


@pytest.mark.parametrize("protocol", TxnProtocol)
def test_what_is_committed_is_what_the_source_has_in_either_protocol(
    protocol: TxnProtocol,
    source: BrokerHandle,
    target: BrokerHandle,
    pair: MakePair,
    make_plane: MakePlane,
    unique: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(writer, "choose_protocol", lambda finalized, offered: protocol)
    name, copy = pair(1)
    fill(source.bootstrap, name, unique)
    end, at = clients.stable_end(source.bootstrap, name), Partition(name, 0)
    driven = make_plane({name: (1, copy)})
    for commit in (False, True):
        driven.seek()
        driven.read(4 * 300 + 20, until=lambda result: at in result.ends and result.ends[at].offset == end)
        copied = driven.plane.flush().copied[at]
        assert (copied.records, sum(last - first for first, last in copied.runs)) == (4 * 300 + 20, 4 * 300 + 20)
        if commit:
            driven.plane.commit({Partition(copy, 0): Committed(end, "m")})
        else:
            driven.plane.abort()
    driven.plane.commit({Partition(copy, 0): Committed(end, "again")})  # with nothing but a position
    assert shown(clients.read(target.bootstrap, copy)) == shown(clients.read(source.bootstrap, name))
    assert clients.committed(target.bootstrap, f"eos-replicate.{driven.flow.name}", copy).offset == end


def test_a_second_plane_of_the_same_id_fences_the_first(
    source: BrokerHandle, pair: MakePair, make_plane: MakePlane
) -> None:
    name, copy = pair(1)
    clients.put(clients.producer(source.bootstrap), name, b"v", key=b"k")
    first = make_plane({name: (1, copy)})
    first.seek()
    first.read_and_flush(1)
    second = make_plane({name: (1, copy)}, flow=first.flow)
    with pytest.raises(Fenced):
        first.plane.commit({Partition(copy, 0): Committed(1, "m")})
    second.seek()
    second.read_and_flush(1)
    second.plane.commit({Partition(copy, 0): Committed(1, "m")})


def test_records_whose_time_the_target_refuses_stop_the_partition_behind_those_before(
    source: BrokerHandle, pair: MakePair, make_plane: MakePlane
) -> None:
    """The target names the record itself, where the plane has not been told of the bound."""
    name, copy = pair(1, message_timestamp_before_max_ms="3600000")
    now_ms = int(time.time() * 1000)
    producer = clients.producer(source.bootstrap, linger_ms=50)
    for time_ms in (now_ms, now_ms, now_ms - 7_200_000, now_ms):
        producer.produce(name, b"v", b"k", 0, timestamp=time_ms)
    assert producer.flush(30) == 0
    driven = make_plane({name: (1, copy)})
    driven.seek()
    with pytest.raises(RecordsRefused) as refused:
        driven.read_and_flush(4)
    assert refused.value.refusals[Partition(name, 0)].suspects == (2,)
    driven.plane.abort()
    driven.plane.seek({Partition(name, 0): ReadPlan(Seek(0, -1), until=2)})
    driven.read(2)
    assert driven.plane.flush().copied[Partition(name, 0)].runs == [(0, 2)]


def test_offsets_without_a_record_are_named_in_the_runs(
    source: BrokerHandle, pair: MakePair, make_plane: MakePlane, unique: Callable[[str], str]
) -> None:
    name, copy = pair(1)
    for number in range(3):
        with_marker = clients.transactional(source.bootstrap, unique("writer"))
        with_marker.begin_transaction()
        clients.put(with_marker, name, *[b"%d" % number] * 2, key=b"k")
        with_marker.commit_transaction()
    driven = make_plane({name: (1, copy)})
    driven.seek()
    copied = driven.read_and_flush(6)[Partition(name, 0)]
    assert copied.runs == [(0, 2), (3, 5), (6, 8)]
    assert (copied.next_offset, copied.next_target - copied.first_target) == (8, 6)


def test_a_transaction_without_anything_ends_without_asking_anybody(pair: MakePair, make_plane: MakePlane) -> None:
    """As the lane makes one where its first record stops the partition: the coordinator would refuse its end."""
    driven = make_plane({})
    ended: list[bool] = []
    driven.plane.commit({}, before_end=lambda: ended.append(True))
    driven.plane.commit({}, before_end=lambda: ended.append(True))
    assert ended == [True, True]


def test_a_source_that_knows_no_topics_by_id_is_named_at_once(
    source: BrokerHandle, pair: MakePair, make_plane: MakePlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "VERSIONS", (99, 99))  # as if this broker were older than what is spoken
    name, copy = pair(1)
    clients.put(clients.producer(source.bootstrap), name, b"v", key=b"k")
    driven = make_plane({name: (1, copy)})
    driven.seek()
    began_s = time.monotonic()
    with pytest.raises(Unsupported, match="it doesn't read topics by id"):
        driven.read(1)
    assert time.monotonic() - began_s < 10


def test_what_waits_for_acknowledgements_is_not_summed_up_for_each_small_batch(
    source: BrokerHandle, pair: MakePair, make_plane: MakePlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was a third of what small batches cost."""
    summed, real = list[int](), vars(TransactionalSession)["unacknowledged"]

    def counted(session: TransactionalSession) -> object:
        summed.append(1)
        return real.fget(session)

    name, copy = pair(1)
    producer = clients.producer(source.bootstrap, batch_num_messages=1)
    clients.put(producer, name, *[b"%d" % number for number in range(400)], key=b"k")
    driven = make_plane({name: (1, copy)})
    monkeypatch.setattr(TransactionalSession, "unacknowledged", property(counted))
    driven.seek()
    driven.read(400)
    assert driven.plane.flush().copied[Partition(name, 0)].runs == [(0, 400)]
    assert len(summed) < 100
