"""Commits that are on their way to the disk while their group or topic is deleted."""

from __future__ import annotations

import asyncio

import pytest
from kio.schema.errors import ErrorCode

from embedded_broker.coordinators.offsets import Committer
from embedded_broker.coordinators.offsets_under_way import OffsetsUnderWay
from embedded_broker.coordinators.ports import GroupConfig
from embedded_broker.state.offsets import CommittedOffset, OffsetRecord
from tests.embedded_broker.coordinators.members import P0, P1, commit, commit_of, fetched, scenario
from tests.embedded_broker.coordinators.memory_host import MemoryHost


def record(group: str, partition: tuple[str, int], *, deleted: bool = False) -> OffsetRecord:
    return OffsetRecord(group, partition, None if deleted else CommittedOffset(1, -1, "", 0))


def test_what_is_under_way_is_known_until_it_is_taken_in_the_order_of_the_log() -> None:
    under_way = OffsetsUnderWay()
    first, second = [record("g", P0), record("h", P0)], [record("g", P0, deleted=True), record("g", P1)]
    under_way.add(10, first)
    under_way.add(12, second)
    assert (under_way.first(), ("g", P0) in under_way, ("h", P1) in under_way) == (10, True, False)
    assert under_way.of_group("g") == {P0, P1}
    assert under_way.on_topic("t") == {("g", P0), ("g", P1), ("h", P0)}
    assert list(under_way.take(11)) == [(10, first)]
    assert list(under_way.take(11)) == []
    assert (under_way.of_group("g"), under_way.on_topic("t")) == ({P1}, {("g", P1)})
    assert (under_way.has_group("g"), under_way.has_group("h"), under_way.held("h")) == (True, False, {})
    assert ("g", P0) in under_way, "a deletion is under way"
    assert list(under_way.take(99)) == [(12, second)]
    assert (under_way.first(), under_way.of_group("g"), under_way.on_topic("t")) == (None, set(), set())
    assert (under_way.has_group("g"), under_way.held("g")) == (False, {})


def test_the_offset_of_a_deleted_topic_goes_although_its_commit_is_under_way() -> None:
    async def run(host: MemoryHost) -> None:
        committing = asyncio.create_task(commit(host, 5))
        await asyncio.sleep(0)
        await host.groups.on_topic_deleted("t")
        assert await committing is ErrorCode.none
        assert fetched(host) == -1

    scenario(run)


def test_no_offset_is_taken_for_a_topic_that_was_deleted_since_the_request_was_looked_at() -> None:
    async def run(host: MemoryHost) -> None:
        made = commit_of(host, 5)
        del host.topics["t"]
        results = await host.groups.offsets.commit(Committer("g"), host.groups.get("g"), [made])
        assert results == {P0: ErrorCode.unknown_topic_or_partition}
        assert fetched(host) == -1

    scenario(run)


@pytest.mark.parametrize("before", [False, True])
def test_a_group_is_deleted_with_a_commit_that_is_under_way(before: bool) -> None:
    async def run(host: MemoryHost) -> None:
        if before:
            await commit(host, 4, partition=P1)
        committing = asyncio.create_task(commit(host, 5))
        await asyncio.sleep(0)
        assert await host.groups.delete("g") is ErrorCode.none
        assert await committing is ErrorCode.none
        assert (fetched(host), host.groups.get("g"), host.groups.offsets.state.known("g")) == (-1, None, set())

    scenario(run)


def test_a_commit_during_the_deletion_makes_the_group_anew() -> None:
    async def run(host: MemoryHost) -> None:
        await commit(host, 4)
        deleting = asyncio.create_task(host.groups.delete("g"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert await commit(host, 5) is ErrorCode.none
        assert await deleting is ErrorCode.none
        assert fetched(host) == 5
        assert [group.group_id for group in host.groups.all()] == ["g"], "who has offsets is listed"

    scenario(run)


def test_of_two_who_delete_a_group_at_once_one_is_told_that_it_is_gone() -> None:
    async def run(host: MemoryHost) -> None:
        await commit(host, 4)
        ended = await asyncio.gather(host.groups.delete("g"), host.groups.delete("g"))
        assert sorted(ended) == sorted([ErrorCode.none, ErrorCode.group_id_not_found])
        assert host.groups.all() == []

    scenario(run)


def test_a_commit_after_the_sweep_has_looked_is_not_expired() -> None:
    async def run(host: MemoryHost) -> None:
        await commit(host, 4)
        await asyncio.sleep(0.08)
        host.groups._sweep()  # its task hasn't run yet
        assert await commit(host, 5) is ErrorCode.none
        await asyncio.sleep(0.01)
        assert fetched(host) == 5

    scenario(run, GroupConfig(min_session_timeout_ms=1, offsets_retention_ms=60))
