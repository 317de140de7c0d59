"""A broker that dies at any append or fsync: whatever a member was answered still holds after the restart."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from embedded_broker.config.thresholds import Thresholds
from embedded_broker.state.consumer_groups import ConsumerGroup
from tests.embedded_broker.coordinators.members import join
from tests.embedded_broker.coordinators.memory_host import NEVER, Crashed, MemoryHost, empty_disk
from tests.embedded_broker.coordinators.test_consumer_groups import all_of, beat

NAMES = ("a", "b")


class Member:
    """What a client knows: its epoch and what it holds, as of the last answer."""

    def __init__(self, name: str) -> None:
        self.name, self.epoch = name, 0
        self.holds: frozenset[Any] = frozenset()

    async def turn(self, host: MemoryHost) -> ErrorCode:
        """A heartbeat that says everything, as after a lost connection."""
        answer = await beat(
            host,
            self.name,
            self.epoch,
            topic_names=frozenset({"t"}),
            rebalance_timeout_ms=1_000,
            owned=self.holds,
        )
        if answer.error_code is ErrorCode.none:
            self.epoch = answer.member_epoch
            self.holds = frozenset() if answer.assignment is None else answer.assignment
        return answer.error_code


async def run_until_crash(host: MemoryHost, members: list[Member]) -> None:
    """An empty classic group becomes a consumer group; two members share, and compaction goes on meanwhile."""
    with suppress(Crashed):
        await host.start()
        waiting = await join(host, "")
        host.groups.classic.leave("g", [(waiting.member_id, None)])
        for _ in range(4):
            for member in members:
                await member.turn(host)
                host.groups._compactor.check()
    host.crash_at = NEVER
    await host.stop()


@pytest.mark.tier("default")
@pytest.mark.parametrize("all_appended", [False, True])
@pytest.mark.parametrize("dead_records_max", [0, 50_000])
def test_members_continue_from_their_last_response_after_a_crash(
    all_appended: bool, dead_records_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MemoryHost, "thresholds", Thresholds(dead_records_max=dead_records_max))

    async def events() -> int:
        host = MemoryHost(empty_disk())
        await run_until_crash(host, [Member(name) for name in NAMES])
        return host.events

    async def crash_and_restart(crash_at: int) -> None:
        host = MemoryHost(empty_disk(), crash_at)
        members = [Member(name) for name in NAMES]
        await run_until_crash(host, members)
        again = MemoryHost(host.what_survives(all_appended=all_appended))
        await again.start()
        for member in members:
            assert await member.turn(again) is ErrorCode.none, f"crash at {crash_at}, {member.name}"
        for _ in range(4):
            for member in members:
                assert await member.turn(again) is ErrorCode.none
        group = again.groups.get("g")
        assert isinstance(group, ConsumerGroup)
        assert group.state.value == "Stable"
        assert members[0].holds | members[1].holds == all_of(again)
        assert not members[0].holds & members[1].holds
        assert not again.failures
        await again.stop()

    total = asyncio.run(events())
    assert total >= 12
    for crash_at in range(total):
        asyncio.run(crash_and_restart(crash_at))
