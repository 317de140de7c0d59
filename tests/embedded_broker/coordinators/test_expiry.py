"""When committed offsets, and groups, go."""

from __future__ import annotations

import asyncio

from embedded_broker.coordinators.offsets import Committer
from embedded_broker.coordinators.ports import GroupConfig
from embedded_broker.state.codec import put_string
from tests.embedded_broker.coordinators.members import P0, P1, commit, fetched, join, scenario, stable_member, sync
from tests.embedded_broker.coordinators.memory_host import MemoryHost
from tests.embedded_broker.coordinators.test_consumer_groups import beat

AT_ONCE = GroupConfig(min_session_timeout_ms=1, offsets_retention_ms=0)
SUBSCRIBED_TO_T = b"\0\0" + (1).to_bytes(4, "big") + put_string("t") + b"\xff\xff\xff\xff"


async def sweep(host: MemoryHost) -> None:
    host.groups._sweep()
    await asyncio.sleep(0.01)


def offset(host: MemoryHost, partition: tuple[str, int]) -> int:
    return host.groups.offsets.fetch("g", [partition], True)[partition].offset


def test_offsets_go_after_the_members_have_left_and_the_group_with_them() -> None:
    async def run(host: MemoryHost) -> None:
        member = await stable_member(host)
        await commit(host, 5, Committer("g", member.member_id, None, member.generation))
        await sweep(host)
        assert fetched(host) == 5, "what the member is subscribed to can't be told"
        host.groups.classic.leave("g", [(member.member_id, None)])
        await sweep(host)
        assert fetched(host) == -1
        assert host.groups.get("g") is None

    scenario(run, AT_ONCE)


def test_members_keep_the_topics_that_they_are_subscribed_to() -> None:
    async def run(host: MemoryHost) -> None:
        host.topics["u"] = host.topics["t"]
        answer = await join(host, metadata=SUBSCRIBED_TO_T)
        await sync(host, answer, {answer.member_id: b""})
        who = Committer("g", answer.member_id, None, answer.generation)
        await commit(host, 5, who)
        await commit(host, 6, who, partition=("u", 0))
        await sweep(host)
        assert (offset(host, P0), offset(host, ("u", 0))) == (5, -1)

    scenario(run, AT_ONCE)


def test_members_of_a_consumer_group_keep_theirs() -> None:
    async def run(host: MemoryHost) -> None:
        host.topics["u"] = host.topics["t"]
        answer = await beat(host)
        who = Committer("g", "a", None, answer.member_epoch, 9)
        await commit(host, 5, who)
        await commit(host, 6, who, partition=("u", 0))
        await sweep(host)
        assert (offset(host, P0), offset(host, ("u", 0))) == (5, -1)
        await beat(host, member_epoch=-1)
        await sweep(host)
        assert (offset(host, P0), host.groups.get("g")) == (-1, None)

    scenario(run, AT_ONCE)


def test_without_members_each_offset_counts_from_its_own_commit() -> None:
    async def run(host: MemoryHost) -> None:
        await commit(host, 5)
        await asyncio.sleep(0.08)
        await commit(host, 6, partition=P1)
        await sweep(host)
        assert (offset(host, P0), offset(host, P1)) == (-1, 6)
        assert host.groups.get("g") is not None

    scenario(run, GroupConfig(min_session_timeout_ms=1, offsets_retention_ms=60))


def test_an_offset_under_way_keeps_its_group() -> None:
    async def run(host: MemoryHost) -> None:
        under_way = asyncio.create_task(commit(host, 5))
        await asyncio.sleep(0)
        host.groups._sweep()
        await under_way
        await sweep(host)
        assert fetched(host) == 5
        assert host.groups.get("g") is not None

    scenario(run)
