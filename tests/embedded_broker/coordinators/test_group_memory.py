"""What members of classic groups hold: bounded for each and in all, also after their connections have closed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from kio.schema.errors import ErrorCode

from embedded_broker.state.group_members import Members
from embedded_broker.state.groups import Group
from tests.embedded_broker.served import Client, Served, serving

MIB = 1024 * 1024


def _join(group: str, metadata: bytes, member_id: str = "", session_ms: int = 1_800_000) -> dict[str, Any]:
    return {
        "group_id": group,
        "session_timeout": session_ms,
        "rebalance_timeout": session_ms,
        "member_id": member_id,
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": metadata}],
    }


def _held(served: Served) -> int:
    """What all members have said, as it is held in memory."""
    groups = served.broker.groups.all()
    members = [member for group in groups for member in getattr(group, "members", ())]
    return sum(len(metadata) for member in members for _, metadata in getattr(member, "protocols", ()))


def _members(served: Served, group_id: str) -> Members:
    group = served.broker.groups.get(group_id)
    assert isinstance(group, Group)
    return group.members


async def _joined(served: Served, group: str, metadata: bytes) -> Client:
    client = await served.client()
    assert (await client.call("join_group", 3, **_join(group, metadata))).error_code is ErrorCode.none
    return client


def test_what_members_say_is_bounded_for_each(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            client = await served.client()
            answer = await client.call("join_group", 3, **_join("g", bytes(3 * MIB)))
            assert answer.error_code is ErrorCode.group_max_size_reached
            answer = await client.call("join_group", 3, **_join("g", bytes(MIB // 2)))
            sync = {"group_id": "g", "generation_id": answer.generation_id, "member_id": answer.member_id}
            assignment = [{"member_id": "nobody", "assignment": bytes(3 * MIB)}]
            answer = await client.call("sync_group", 3, **sync, group_instance_id=None, assignments=assignment)
            assert answer.error_code is ErrorCode.unknown_server_error
            assert _held(served) < MIB

    asyncio.run(main())


def test_what_members_say_is_bounded_in_all_and_the_small_ones_stay(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path, group_members_bytes_max=2 * MIB) as served:
            honest = await _joined(served, "honest", b"small")
            for number in range(12):
                greedy = await _joined(served, f"greedy {number}", bytes(MIB // 2))
                greedy.writer.close()
            assert _held(served) <= 2 * MIB
            assert len(_members(served, "honest")) == 1
            late = await _joined(served, "late", b"small, too")
            for client in (honest, late):
                assert (await client.call("api_versions", 0)).error_code == 0

    asyncio.run(main())


def test_a_member_that_must_leave_while_it_waits_is_answered(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path, group_members_bytes_max=MIB) as served:
            await _joined(served, "g", bytes(MIB // 4))
            waiting = await served.client()
            waiting.send("join_group", 3, **_join("g", bytes(MIB // 2)))  # the first member doesn't join again
            while _held(served) < MIB * 3 // 4:
                await (await served.client()).call("api_versions", 0)
            await _joined(served, "other", bytes(MIB // 2))
            assert (await waiting.receive()).error_code is ErrorCode.unknown_member_id

    asyncio.run(main())


def test_announced_members_count_and_their_names_are_short(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path, group_members_bytes_max=100_000) as served:
            client = await served.client()
            for _ in range(300):
                answer = await client.call("join_group", 4, **_join("g", b""))
                assert answer.error_code is ErrorCode.member_id_required
            assert len(_members(served, "g").pending) <= 100
            await _joined(served, "honest", b"small")

    asyncio.run(main())
