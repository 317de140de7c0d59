"""How many producers partitions know is bounded: by connection, by address and in all."""

from __future__ import annotations

import pytest

from embedded_broker.state.owners import SOMEBODY, Owner
from embedded_broker.state.producer_quota import ProducerQuota
from embedded_broker.state.producers import PartitionProducers
from tests.embedded_broker.state.test_producers import Batch

HERE, THERE = Owner("here", 1), Owner("there", 1)
HOUR_MS, DAY_MS = 3_600_000, 86_400_000


def _fill(quota: ProducerQuota, owner: Owner, count: int) -> None:
    for _ in range(count):
        assert quota.fits(owner)
        quota.add(owner)


def test_a_connection_has_a_quarter_and_an_address_three() -> None:
    quota = ProducerQuota(40)
    for connection in range(3):
        owner = HERE._replace(connection=connection)
        _fill(quota, owner, 10)
        assert not quota.fits(owner)
    assert not quota.fits(HERE._replace(connection=4))
    _fill(quota, THERE, 10)
    assert quota.is_full
    assert not quota.fits(Owner("nobody", 1))
    assert not quota.fits(SOMEBODY)
    quota.remove(THERE)
    assert quota.fits(THERE)


@pytest.mark.parametrize(("count", "idle_ms"), [(7, DAY_MS), (8, HOUR_MS), (9, 600_000), (10, 600_000)])
def test_the_longest_idle_go_sooner_from_where_there_are_many(count: int, idle_ms: int) -> None:
    quota = ProducerQuota(40)
    _fill(quota, HERE, count)
    assert quota.idle_ms_max(HERE, DAY_MS) == idle_ms
    assert quota.idle_ms_max(HERE, 1_000) == 1_000
    assert quota.idle_ms_max(THERE, DAY_MS) == DAY_MS


def _with(quota: ProducerQuota, owner: Owner, first: int, count: int, at_ms: int) -> PartitionProducers:
    producers = PartitionProducers(quota)
    for number in range(first, first + count):
        producers.apply(Batch(number, producer_id=number), now_ms=at_ms, owner=owner)
    return producers


def test_a_client_with_too_many_loses_its_own_idle_ones() -> None:
    quota = ProducerQuota(40)
    greedy, honest = _with(quota, HERE, 0, 10, at_ms=0), _with(quota, THERE, 100, 1, at_ms=0)
    assert [each.expire(599_999, DAY_MS) for each in (greedy, honest)] == [0, 0]
    assert [each.expire(600_000, DAY_MS) for each in (greedy, honest)] == [10, 0]
    assert (quota.total, quota.fits(HERE)) == (1, True)


def test_those_of_a_restart_count_in_all_and_those_of_a_closed_partition_for_nobody() -> None:
    quota = ProducerQuota(40)
    producers = _with(quota, HERE, 0, 10, at_ms=0)
    again = PartitionProducers(quota)
    again.restore(
        {"producers": [[1, 0, 0, -1, None, [[0, 0, 5, 9]] * 3, [7, True]]] * 2, "aborted": []},
    )
    assert quota.total == 11
    producers.release()
    producers.release()
    assert (quota.total, quota.fits(HERE)) == (1, True)


def test_a_marker_without_data_adds_none_when_they_are_as_many_as_may_be() -> None:
    full, quota = ProducerQuota(1), ProducerQuota(2)
    for each, known in ((full, False), (quota, True)):
        producers = _with(each, HERE, 0, 1, at_ms=0)
        producers.apply(Batch(1, producer_id=9), commit=False)
        assert producers.knows(9) is known
