"""DeleteGroups beside members that join, clients that commit, a full disk and a crash."""

from __future__ import annotations

import asyncio
import errno

import pytest
from kio.schema.errors import ErrorCode

from embedded_broker.metadata.topic_names import OFFSETS_TOPIC
from embedded_broker.storage.disk_space import NoSpace
from tests.embedded_broker.coordinators.members import P1, commit, fetched, restarted, scenario, stable_member
from tests.embedded_broker.coordinators.memory_host import MemoryHost
from tests.embedded_broker.coordinators.test_consumer_groups import beat


async def deleting(host: MemoryHost) -> asyncio.Task[ErrorCode]:
    """A deletion that is appended, and not yet on disk."""
    log = host.internal_log(OFFSETS_TOPIC)
    appended = len(log.batches)
    task = asyncio.ensure_future(host.groups.delete("g"))
    while len(log.batches) == appended:  # noqa: ASYNC110 - nobody is told
        await asyncio.sleep(0)
    assert not task.done()
    return task


@pytest.mark.parametrize("modern", [False, True])
def test_a_member_that_joins_meanwhile_makes_a_new_group(modern: bool) -> None:
    async def run(host: MemoryHost) -> None:
        await commit(host, 5)
        await commit(host, 6, partition=P1)
        task = await deleting(host)
        if modern:
            assert (await beat(host)).error_code is ErrorCode.none
        else:
            await stable_member(host)
        assert await task is ErrorCode.none
        assert fetched(host) == -1
        group = host.groups.get("g")
        assert group is not None
        assert len(group.members) == 1

    async def after(host: MemoryHost) -> None:
        assert fetched(host) == -1
        group = host.groups.get("g")
        assert group is not None
        assert len(group.members) == 1

    restarted(scenario(run), after)


def test_what_is_committed_meanwhile_stays() -> None:
    async def run(host: MemoryHost) -> None:
        await commit(host, 5)
        task = await deleting(host)
        await commit(host, 7)
        assert await task is ErrorCode.none
        assert fetched(host) == 7
        assert host.groups.get("g") is not None

    async def after(host: MemoryHost) -> None:
        assert fetched(host) == 7

    restarted(scenario(run), after)


def test_a_group_and_its_offsets_are_deleted_together() -> None:
    """One batch: a crash leaves both or neither."""

    async def run(host: MemoryHost) -> None:
        member = await stable_member(host)
        host.groups.classic.leave("g", [(member.member_id, None)])
        await commit(host, 5)
        before = len(host.internal_log(OFFSETS_TOPIC).batches)
        assert await host.groups.delete("g") is ErrorCode.none
        assert len(host.internal_log(OFFSETS_TOPIC).batches) == before + 1
        assert host.groups.get("g") is None

    async def after(host: MemoryHost) -> None:
        assert fetched(host) == -1
        assert host.groups.get("g") is None

    restarted(scenario(run), after)


def test_on_a_full_disk_a_group_keeps_its_offsets() -> None:
    async def run(host: MemoryHost) -> None:
        await commit(host, 5)
        log = host.internal_log(OFFSETS_TOPIC)
        append = log.append

        def full(*_: object, **__: object) -> int:
            raise NoSpace(errno.ENOSPC, "the disk is full")

        log.append = full  # type: ignore[method-assign]
        with pytest.raises(NoSpace):
            await host.groups.delete("g")
        log.append = append  # type: ignore[method-assign]
        assert fetched(host) == 5
        assert host.groups.get("g") is not None
        assert await host.groups.delete("g") is ErrorCode.none
        assert fetched(host) == -1

    scenario(run)


def test_two_clients_delete_a_group() -> None:
    async def run(host: MemoryHost) -> None:
        await commit(host, 5)
        first = await deleting(host)
        assert await host.groups.delete("g") is ErrorCode.group_id_not_found
        assert await first is ErrorCode.none

    scenario(run)
