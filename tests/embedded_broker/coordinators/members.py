"""Members of groups in front of the coordinator in memory, and runs with restarts."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from kio.schema.errors import ErrorCode

from embedded_broker.coordinators.offsets import Committer, PartitionCommit
from embedded_broker.coordinators.ports import GroupConfig
from embedded_broker.state.group_types import JoinAnswer, JoinRequest, SyncAnswer, SyncRequest
from embedded_broker.state.owners import SOMEBODY, Owner
from tests.embedded_broker.coordinators.memory_host import MemoryHost, empty_disk
from tests.embedded_broker.simulated import simulated

T = TypeVar("T")
P0, P1 = ("t", 0), ("t", 1)


async def join(
    host: MemoryHost,
    member_id: str = "",
    owner: Owner = SOMEBODY,
    session_timeout_ms: int = 10_000,
    metadata: bytes = b"",
) -> JoinAnswer:
    def make(ticket: object, suffix: str) -> JoinRequest:
        return JoinRequest(
            ticket=ticket,
            member_id=member_id,
            instance_id=None,
            client_id="c",
            client_host="h",
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=500,
            protocol_type="consumer",
            protocols=(("range", metadata),),
            must_know_member_id=False,
            can_skip_assignment=True,
            new_member_id=suffix,
        )

    return await host.groups.classic.join("g", make, owner)


async def sync(host: MemoryHost, answer: JoinAnswer, assignment: dict[str, bytes] | None = None) -> SyncAnswer:
    def make(ticket: object) -> SyncRequest:
        return SyncRequest(ticket, answer.member_id, None, answer.generation, "consumer", "range", assignment or {})

    return await host.groups.classic.sync("g", make)


async def stable_member(host: MemoryHost, session_timeout_ms: int = 10_000) -> JoinAnswer:
    answer = await join(host, session_timeout_ms=session_timeout_ms)
    assert answer.error_code is ErrorCode.none
    synced = await sync(host, answer, {answer.member_id: b"mine"})
    assert synced.assignment == b"mine"
    return answer


def commit_of(
    host: MemoryHost,
    offset: int,
    partition: tuple[str, int] = P0,
    metadata: str = "",
    who: Committer | None = None,
) -> PartitionCommit:
    topic_id = host.topics[partition[0]].topic_id
    return host.groups.offsets.prepared(who or Committer("g"), partition, offset, -1, metadata, topic_id)


async def commit(host: MemoryHost, offset: int, who: Committer | None = None, **changes: Any) -> ErrorCode:
    who = who or Committer("g")
    made = commit_of(host, offset, who=who, **changes)
    results = await host.groups.offsets.commit(who, host.groups.get(who.group_id), [made])
    (error_code,) = results.values()
    return error_code


def fetched(host: MemoryHost) -> int:
    return host.groups.offsets.fetch("g", [P0], True)[P0].offset


def scenario(run: Callable[[MemoryHost], Coroutine[Any, Any, None]], config: GroupConfig | None = None) -> MemoryHost:
    """Run against a fresh broker; nothing may fail behind its back."""

    async def whole() -> MemoryHost:
        host = MemoryHost(empty_disk(), groups_config=config or GroupConfig(min_session_timeout_ms=1))
        await host.start()
        await run(host)
        await host.stop()
        assert host.failures == []
        return host

    return simulated(whole())


def restarted(host: MemoryHost, run: Callable[[MemoryHost], Coroutine[Any, Any, None]]) -> MemoryHost:
    """Go on with what a power cut has left."""

    async def whole() -> MemoryHost:
        again = MemoryHost(host.what_survives(all_appended=False), groups_config=host.groups_config)
        await again.start()
        await run(again)
        await again.stop()
        assert again.failures == []
        return again

    return simulated(whole())
