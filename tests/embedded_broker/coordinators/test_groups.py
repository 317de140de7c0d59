"""The group coordinator: members over time, restarts, offsets, deletion and expiry."""

from __future__ import annotations

import asyncio
import sys

import pytest
from kio.schema.errors import ErrorCode

from embedded_broker.coordinators.offsets import Committer
from embedded_broker.coordinators.ports import GroupConfig
from embedded_broker.metadata.topic_names import OFFSETS_TOPIC
from embedded_broker.state.group_types import GroupState, JoinAnswer
from embedded_broker.state.owners import Owner
from tests.embedded_broker.coordinators.members import (
    commit,
    fetched,
    join,
    restarted,
    scenario,
    stable_member,
    sync,
)
from tests.embedded_broker.coordinators.memory_host import MemoryHost, MemoryTopic


def test_two_members_share_a_group_and_one_leaves() -> None:
    async def run(host: MemoryHost) -> None:
        first = await stable_member(host)
        second = asyncio.ensure_future(join(host))
        await asyncio.sleep(0.01)
        error_code = host.groups.classic.heartbeat("g", first.member_id, None, first.generation)
        assert error_code is ErrorCode.rebalance_in_progress
        again, other = await asyncio.gather(join(host, first.member_id), second)
        assert again.leader_id == other.leader_id == first.member_id
        assert (len(again.members), other.members) == (2, ())
        waiting = asyncio.ensure_future(sync(host, other))
        assignment = {again.member_id: b"1", other.member_id: b"2"}
        assert (await sync(host, again, assignment)).assignment == b"1"
        assert (await waiting).assignment == b"2"
        assert host.groups.classic.leave("g", [(other.member_id, None)]) == (ErrorCode.none, [ErrorCode.none])
        assert (await join(host, first.member_id)).generation == 3

    scenario(run)


def _calls_of_a_rebalance(count: int) -> int:
    """How many functions are called while so many members that there are already join again."""
    calls = 0

    def note(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    async def run(host: MemoryHost) -> None:
        owners = [Owner("h", number) for number in range(count)]
        answers = await asyncio.gather(*(join(host, owner=owner) for owner in owners))
        await asyncio.gather(*(sync(host, answer) for answer in answers))
        members = sorted((answer.member_id for answer in answers), key=lambda each: each != answers[0].leader_id)
        sys.setprofile(note)
        again = await asyncio.gather(*(join(host, *each) for each in zip(members, owners, strict=True)))
        sys.setprofile(None)
        assert {answer.generation for answer in again} == {2}
        assert [len(answer.members) for answer in again] == [count] + [0] * (count - 1)

    scenario(run, GroupConfig(min_session_timeout_ms=1, initial_rebalance_delay_ms=100))
    return calls


def test_a_rebalance_costs_each_member_the_same_in_a_large_group() -> None:
    """A group of 500 had stopped everybody for 0.3 s: each that joined was compared with all."""
    assert _calls_of_a_rebalance(400) < 2.5 * _calls_of_a_rebalance(200)


def test_members_and_assignments_survive_a_restart() -> None:
    members: list[JoinAnswer] = []

    async def run(host: MemoryHost) -> None:
        members.append(await stable_member(host))

    async def after(host: MemoryHost) -> None:
        (member,) = members
        assert host.groups.classic.heartbeat("g", member.member_id, None, member.generation) is ErrorCode.none
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
            assert host.groups.classic.heartbeat("g", member.member_id, None, member.generation) is ErrorCode.none
        await asyncio.sleep(0.15)
        assert (
            host.groups.classic.heartbeat("g", member.member_id, None, member.generation) is ErrorCode.unknown_member_id
        )

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
