"""The coordinator of consumer groups: durability, restarts, sessions, and the other protocol."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from kio.schema.errors import ErrorCode

from embedded_broker.coordinators.offsets import Committer
from embedded_broker.coordinators.ports import GroupConfig
from embedded_broker.metadata.topic_names import OFFSETS_TOPIC
from embedded_broker.state import group_log
from embedded_broker.state.consumer_groups import ConsumerGroup
from embedded_broker.state.consumer_types import ConsumerAnswer, ConsumerGroupConfig, ConsumerHeartbeat
from embedded_broker.state.groups import Group
from tests.embedded_broker.coordinators.members import (
    commit,
    fetched,
    join,
    restarted,
    scenario,
    stable_member,
)
from tests.embedded_broker.coordinators.memory_host import MemoryHost

SHORT = GroupConfig(min_session_timeout_ms=1, consumer=ConsumerGroupConfig(session_timeout_ms=50))


async def beat(host: MemoryHost, member_id: str = "a", member_epoch: int = 0, **changes: Any) -> ConsumerAnswer:
    """A heartbeat; the first one says everything."""
    request = ConsumerHeartbeat(member_id, member_epoch)
    if member_epoch == 0:
        request = replace(request, topic_names=frozenset({"t"}), rebalance_timeout_ms=1_000, owned=frozenset())
    return await host.groups.consumer.heartbeat("g", replace(request, **changes), 1)


def all_of(host: MemoryHost, name: str = "t") -> frozenset[Any]:
    topic = host.topics[name]
    return frozenset((topic.topic_id, index) for index in range(len(topic.partitions)))


def test_a_heartbeat_is_answered_when_its_records_are_on_disk() -> None:
    async def run(host: MemoryHost) -> None:
        log = host.internal_log(OFFSETS_TOPIC)
        answer = await beat(host)
        assert (answer.error_code, answer.member_epoch, answer.assignment) == (ErrorCode.none, 1, all_of(host))
        assert len(log.batches) == log.durable == 1, "one batch: all of it or nothing"
        await beat(host, member_epoch=1)
        assert len(log.batches) == 1

    scenario(run)


def test_members_are_found_again_after_a_restart_and_expire_if_they_are_silent() -> None:
    async def run(host: MemoryHost) -> None:
        await beat(host)
        await beat(host, "b")
        await beat(host, member_epoch=1)

    async def after(host: MemoryHost) -> None:
        answer = await beat(host, "b", 2)
        assert (answer.error_code, answer.assignment) == (ErrorCode.none, None), "a has yet to give back"
        while answer.assignment != all_of(host):
            await asyncio.sleep(0.01)
            answer = await beat(host, "b", answer.member_epoch)
            assert answer.error_code is ErrorCode.none
        group = host.groups.get("g")
        assert isinstance(group, ConsumerGroup)
        assert [member.member_id for member in group.members] == ["b"]

    restarted(scenario(run, SHORT), after)


def test_a_compacted_log_restores_the_same_state() -> None:
    async def run(host: MemoryHost) -> None:
        await beat(host, instance_id="i")
        await beat(host, "b")
        group = host.groups.get("g")
        assert isinstance(group, ConsumerGroup)
        live = [record for part in host.groups._live() for record in part.records]
        rebuilt = MemoryHost({**host.what_survives(all_appended=True)})
        for key, value in live:
            found = group_log.decode(key, value, 0)
            assert found is not None
            rebuilt.groups._registry.replay(found, value)
        again = rebuilt.groups.get("g")
        assert isinstance(again, ConsumerGroup)
        assert set(again.members.records()) == set(group.members.records())
        assert again.state is group.state

    scenario(run)


def test_offsets_need_the_current_epoch() -> None:
    async def run(host: MemoryHost) -> None:
        answer = await beat(host)
        stale = await commit(host, 5, Committer("g", "a", None, answer.member_epoch - 1, 9))
        assert (stale, fetched(host)) == (ErrorCode.stale_member_epoch, -1)
        assert await commit(host, 5, Committer("g", "a", None, answer.member_epoch, 9)) is ErrorCode.none
        assert await commit(host, 6) is ErrorCode.unknown_member_id, "not for others while it has members"
        assert fetched(host) == 5

    scenario(run)


def test_a_group_with_members_keeps_its_protocol() -> None:
    async def run(host: MemoryHost) -> None:
        member = await stable_member(host)
        assert (await beat(host)).error_code is ErrorCode.group_id_not_found
        host.groups.classic.leave("g", [(member.member_id, None)])
        assert (await beat(host)).error_code is ErrorCode.none
        assert (await join(host)).error_code is ErrorCode.inconsistent_group_protocol
        assert await host.groups.delete("g") is ErrorCode.non_empty_group

    scenario(run)


def test_an_empty_group_changes_its_protocol_and_keeps_its_offsets() -> None:
    async def run(host: MemoryHost) -> None:
        member = await stable_member(host)
        await commit(host, 5, Committer("g", member.member_id, None, member.generation))
        host.groups.classic.leave("g", [(member.member_id, None)])
        await beat(host)
        assert isinstance(host.groups.get("g"), ConsumerGroup)
        await beat(host, member_epoch=-1)

    async def as_consumer(host: MemoryHost) -> None:
        assert isinstance(host.groups.get("g"), ConsumerGroup)
        assert fetched(host) == 5
        await stable_member(host)

    async def as_classic(host: MemoryHost) -> None:
        group = host.groups.get("g")
        assert isinstance(group, Group)
        assert (len(group.members), fetched(host)) == (1, 5)

    restarted(restarted(scenario(run), as_consumer), as_classic)


def test_a_deleted_group_stays_deleted() -> None:
    async def run(host: MemoryHost) -> None:
        await beat(host)
        await beat(host, member_epoch=-1)
        assert await host.groups.delete("g") is ErrorCode.none

    async def after(host: MemoryHost) -> None:
        assert host.groups.get("g") is None
        assert (await beat(host)).member_epoch == 1

    restarted(scenario(run), after)


def test_an_invalid_heartbeat_creates_no_group() -> None:
    async def run(host: MemoryHost) -> None:
        for changes, error_code in (
            ({"member_epoch": 3}, ErrorCode.group_id_not_found),
            ({"member_epoch": -1}, ErrorCode.group_id_not_found),
            ({"member_epoch": -2}, ErrorCode.invalid_request),
            ({"member_epoch": -3}, ErrorCode.invalid_request),
            ({"member_id": ""}, ErrorCode.invalid_request),
            ({"instance_id": ""}, ErrorCode.invalid_request),
            ({"rack_id": " "}, ErrorCode.invalid_request),
            ({"rebalance_timeout_ms": None}, ErrorCode.invalid_request),
            ({"owned": None}, ErrorCode.invalid_request),
            ({"owned": all_of(host)}, ErrorCode.invalid_request),
            ({"topic_names": None}, ErrorCode.invalid_request),
            ({"assignor": "mine"}, ErrorCode.unsupported_assignor),
            ({"topic_regex": "("}, ErrorCode.invalid_regular_expression),
        ):
            answer = await beat(host, **changes)
            assert answer.error_code is error_code, changes
            assert answer.error_message
        assert host.groups.all() == []
        assert host.internal_log(OFFSETS_TOPIC).batches == []

    scenario(run)
