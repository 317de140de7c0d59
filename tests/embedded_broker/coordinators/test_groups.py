"""The group coordinator: members over time, restarts, offsets, deletion and expiry."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from embedded_broker.coordinators.offsets import Commit, Committer
from embedded_broker.coordinators.ports import OFFSETS_TOPIC, GroupConfig
from embedded_broker.state.group_types import GroupState, JoinAnswer, JoinRequest, SyncAnswer, SyncRequest
from tests.embedded_broker.coordinators.memory_host import MemoryHost, MemoryTopic, empty_disk

P0, P1 = ("t", 0), ("t", 1)


async def join(host: MemoryHost, member_id: str = "", session_timeout_ms: int = 10_000) -> JoinAnswer:
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
            protocols=(("range", b""),),
            must_know_member_id=False,
            can_skip_assignment=True,
            new_member_id=suffix,
        )

    return await host.groups.join("g", make)


async def sync(host: MemoryHost, answer: JoinAnswer, assignment: dict[str, bytes] | None = None) -> SyncAnswer:
    def make(ticket: object) -> SyncRequest:
        return SyncRequest(ticket, answer.member_id, None, answer.generation, "consumer", "range", assignment or {})

    return await host.groups.sync("g", make)


async def stable_member(host: MemoryHost, session_timeout_ms: int = 10_000) -> JoinAnswer:
    answer = await join(host, session_timeout_ms=session_timeout_ms)
    assert answer.error_code is ErrorCode.none
    synced = await sync(host, answer, {answer.member_id: b"mine"})
    assert synced.assignment == b"mine"
    return answer


def commit_of(offset: int, partition: tuple[str, int] = P0, metadata: str = "") -> Commit:
    return Commit(partition, offset, -1, metadata)


async def commit(host: MemoryHost, offset: int, who: Committer | None = None, **changes: Any) -> ErrorCode:
    who = who or Committer("g")
    results = await host.groups.offsets.commit(who, host.groups.get(who.group_id), [commit_of(offset, **changes)])
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

    return asyncio.run(whole())


def restarted(host: MemoryHost, run: Callable[[MemoryHost], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        again = MemoryHost(host.what_survives(all_appended=False), groups_config=host.groups_config)
        await again.start()
        await run(again)
        await again.stop()
        assert again.failures == []

    asyncio.run(whole())


def test_two_members_share_a_group_and_one_leaves() -> None:
    async def run(host: MemoryHost) -> None:
        first = await stable_member(host)
        second = asyncio.ensure_future(join(host))
        await asyncio.sleep(0.01)
        error_code = host.groups.heartbeat("g", first.member_id, None, first.generation)
        assert error_code is ErrorCode.rebalance_in_progress
        again, other = await asyncio.gather(join(host, first.member_id), second)
        assert again.leader_id == other.leader_id == first.member_id
        assert (len(again.members), other.members) == (2, ())
        waiting = asyncio.ensure_future(sync(host, other))
        assignment = {again.member_id: b"1", other.member_id: b"2"}
        assert (await sync(host, again, assignment)).assignment == b"1"
        assert (await waiting).assignment == b"2"
        assert host.groups.leave("g", [(other.member_id, None)]) == (ErrorCode.none, [ErrorCode.none])
        assert (await join(host, first.member_id)).generation == 3

    scenario(run)


def test_members_and_assignments_survive_a_restart() -> None:
    members: list[JoinAnswer] = []

    async def run(host: MemoryHost) -> None:
        members.append(await stable_member(host))

    async def after(host: MemoryHost) -> None:
        (member,) = members
        assert host.groups.heartbeat("g", member.member_id, None, member.generation) is ErrorCode.none
        assert (await sync(host, member)).assignment == b"mine"
        who = Committer("g", member.member_id, None, member.generation)
        assert await commit(host, 5, who) is ErrorCode.none

    restarted(scenario(run), after)


def test_a_member_that_does_not_come_back_after_a_restart_expires() -> None:
    async def run(host: MemoryHost) -> None:
        await stable_member(host, session_timeout_ms=60)

    async def after(host: MemoryHost) -> None:
        group = host.groups.get("g")
        assert group is not None
        assert group.state is GroupState.STABLE
        await asyncio.sleep(0.15)
        assert group.state is GroupState.EMPTY

    restarted(scenario(run), after)


def test_heartbeats_keep_a_session_alive() -> None:
    async def run(host: MemoryHost) -> None:
        member = await stable_member(host, session_timeout_ms=80)
        for _ in range(4):
            await asyncio.sleep(0.04)
            assert host.groups.heartbeat("g", member.member_id, None, member.generation) is ErrorCode.none
        await asyncio.sleep(0.15)
        assert host.groups.heartbeat("g", member.member_id, None, member.generation) is ErrorCode.unknown_member_id

    scenario(run)


def test_a_client_that_hangs_up_while_joining_hurts_nobody() -> None:
    async def run(host: MemoryHost) -> None:
        member = await stable_member(host)
        gone = asyncio.ensure_future(join(host))
        await asyncio.sleep(0.01)
        gone.cancel()
        again = await join(host, member.member_id)
        assert len(again.members) == 2

    scenario(run)


@pytest.mark.parametrize("session_timeout_ms", [5_999, 1_800_001])
def test_session_timeouts_have_limits(session_timeout_ms: int) -> None:
    async def run(host: MemoryHost) -> None:
        answer = await join(host, session_timeout_ms=session_timeout_ms)
        assert answer.error_code is ErrorCode.invalid_session_timeout

    scenario(run, GroupConfig())


def test_a_group_without_members_takes_commits_from_anybody() -> None:
    async def run(host: MemoryHost) -> None:
        assert await commit(host, 5) is ErrorCode.none
        group = host.groups.get("g")
        assert group is not None
        assert group.state is GroupState.EMPTY
        assert await commit(host, 5, Committer("h", generation=1)) is ErrorCode.illegal_generation
        assert await commit(host, 5, Committer("g", "ghost", None, 1)) is ErrorCode.unknown_member_id
        assert await commit(host, 5, metadata="x" * 4_097) is ErrorCode.offset_metadata_too_large

    async def after(host: MemoryHost) -> None:
        assert fetched(host) == 5
        assert host.groups.get("g") is not None

    restarted(scenario(run), after)


def test_a_commit_is_visible_only_once_it_is_durable() -> None:
    async def run(host: MemoryHost) -> None:
        committing = asyncio.ensure_future(commit(host, 5))
        await asyncio.sleep(0)
        assert host.internal_log(OFFSETS_TOPIC).batches
        assert fetched(host) == -1
        await committing
        assert fetched(host) == 5

    scenario(run)


def test_a_deleted_group_is_gone_with_its_offsets_for_good() -> None:
    async def run(host: MemoryHost) -> None:
        await commit(host, 5)
        assert await host.groups.delete("g") is ErrorCode.none
        assert await host.groups.delete("g") is ErrorCode.group_id_not_found
        assert fetched(host) == -1

    async def after(host: MemoryHost) -> None:
        assert fetched(host) == -1
        assert host.groups.get("g") is None

    restarted(scenario(run), after)


def test_a_group_with_members_is_not_deleted() -> None:
    async def run(host: MemoryHost) -> None:
        await stable_member(host)
        assert await host.groups.delete("g") is ErrorCode.non_empty_group

    scenario(run)


def test_offsets_go_with_their_topic() -> None:
    async def run(host: MemoryHost) -> None:
        await commit(host, 5)
        host.topics["other"] = MemoryTopic([])
        await commit(host, 7, Committer("h"), partition=("other", 0))
        await host.groups.on_topic_deleted("t")
        assert fetched(host) == -1
        assert host.groups.offsets.fetch("h", None, True)[("other", 0)].offset == 7

    async def after(host: MemoryHost) -> None:
        assert fetched(host) == -1

    restarted(scenario(run), after)


def test_offsets_of_a_topic_whose_deletion_was_cut_short_go_at_the_next_start() -> None:
    async def run(host: MemoryHost) -> None:
        await commit(host, 5)
        del host.topics["t"]

    async def after(host: MemoryHost) -> None:
        assert fetched(host) == -1

    restarted(scenario(run), after)


def test_offsets_of_an_empty_group_expire_together_and_members_keep_them() -> None:
    async def run(host: MemoryHost) -> None:
        member = await stable_member(host)
        await commit(host, 5, Committer("g", member.member_id, None, member.generation))
        host.groups._sweep()
        assert fetched(host) == 5
        host.groups.leave("g", [(member.member_id, None)])
        host.groups._sweep()
        await asyncio.sleep(0.01)
        assert fetched(host) == -1
        assert host.groups.get("g") is None

    scenario(run, GroupConfig(min_session_timeout_ms=1, offsets_retention_ms=0))


def test_young_offsets_do_not_expire() -> None:
    async def run(host: MemoryHost) -> None:
        await commit(host, 5)
        host.groups._sweep()
        await asyncio.sleep(0.01)
        assert fetched(host) == 5

    scenario(run)
