"""What members of groups hold: bounded for each and in all, also after their connections have closed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from embedded_broker.config.thresholds import Thresholds
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
                greedy = await served.client()
                answer = await greedy.call("join_group", 3, **_join(f"greedy {number}", bytes(MIB // 2)))
                assert answer.error_code is (ErrorCode.none if number < 2 else ErrorCode.group_max_size_reached)
                greedy.writer.close()
            assert _held(served) <= 2 * MIB
            assert len(_members(served, "honest")) == 1
            late = await _joined(served, "late", b"small, too")
            for client in (honest, late):
                assert (await client.call("api_versions", 0)).error_code == 0

    asyncio.run(main())


def test_a_member_that_must_leave_while_it_waits_is_answered(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path, group_members_bytes_max=MIB * 3 // 2) as served:
            await _joined(served, "g", bytes(MIB * 7 // 16))
            waiting = await served.client()
            waiting.send("join_group", 3, **_join("g", bytes(MIB // 2)))  # the first member doesn't join again
            while _held(served) < MIB * 3 // 4:
                await (await served.client()).call("api_versions", 0)
            await _joined(served, "other", bytes(MIB // 4))
            assert (await waiting.receive()).error_code is ErrorCode.unknown_member_id

    asyncio.run(main())


def test_announced_members_count_and_their_names_are_short(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path, group_members_bytes_max=100_000) as served:
            client = await served.client()
            codes = [(await client.call("join_group", 4, **_join("g", b""))).error_code for _ in range(300)]
            assert set(codes) == {ErrorCode.member_id_required, ErrorCode.group_max_size_reached}
            assert len(_members(served, "g").pending) <= 40
            await _joined(served, "honest", b"small")

    asyncio.run(main())


async def _honest(served: Served, count: int) -> list[tuple[Client, dict[str, Any]]]:
    """Members of groups of their own, each with its connection, and their heartbeats."""
    members = []
    for number in range(count):
        client = await served.client()
        joined = await client.call("join_group", 3, **_join(f"honest {number}", b"topics"))
        heartbeat = {"group_id": f"honest {number}", "generation_id": joined.generation_id, "group_instance_id": None}
        members.append((client, {**heartbeat, "member_id": joined.member_id}))
        sync = {**heartbeat, "member_id": joined.member_id, "assignments": []}
        assert (await client.call("sync_group", 3, **sync)).error_code is ErrorCode.none
    return members


async def _all_alive(members: list[tuple[Client, dict[str, Any]]]) -> bool:
    codes = [(await client.call("heartbeat", 3, **heartbeat)).error_code for client, heartbeat in members]
    return set(codes) == {ErrorCode.none}


def test_members_of_one_connection_are_bounded(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            honest = await _honest(served, 5)
            client = await served.client()
            codes = [(await client.call("join_group", 3, **_join(f"g{n}", b""))).error_code for n in range(150)]
            assert codes == [ErrorCode.none] * 100 + [ErrorCode.group_max_size_reached] * 50
            assert await _all_alive(honest)

    asyncio.run(main())


@pytest.mark.tier("default")
def test_members_of_many_connections_are_refused_before_those_who_were_there_leave(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path, group_members_bytes_max=400_000) as served:
            honest = await _honest(served, 5)
            codes = []
            for number in range(150):
                client = await served.client()
                joined = await client.call("join_group", 3, **_join(f"g{number}", b""))
                codes.append(joined.error_code)
                client.writer.close()
            assert codes[0] is ErrorCode.none
            assert codes[-1] is ErrorCode.group_max_size_reached
            assert await _all_alive(honest)
        async with serving(tmp_path, group_members_bytes_max=400_000) as served:
            assert {group.group_id for group in served.broker.groups.all()} >= {f"honest {n}" for n in range(5)}
            for number in range(150):
                client = await served.client()
                await client.call("join_group", 3, **_join(f"h{number}", bytes(10_000)))
                client.writer.close()
            assert served.broker.groups.classic.memory.total_bytes <= 400_000
            again = [(await served.client(), heartbeat) for _, heartbeat in honest]
            assert await _all_alive(again)

    asyncio.run(main())


def _beat(group: str, names: list[str], member_id: str = "", **fields: Any) -> dict[str, Any]:
    said = {"subscribed_topic_names": names, "topic_partitions": [], "rebalance_timeout": 60_000}
    return {"group_id": group, "member_id": member_id, "member_epoch": 0, **said, **fields}


@pytest.mark.tier("default")
def test_what_members_of_consumer_groups_say_is_bounded(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path, group_members_bytes_max=4 * MIB) as served:
            honest, client = await served.client(), await served.client()
            beat = _beat("honest", ["t"], member_id="a")
            epoch = (await honest.call("consumer_group_heartbeat", 1, **beat)).member_epoch
            long = [f"{n}" * 200 for n in range(10)] * 2
            many = [f"{n:0249}" for n in range(5_000)]
            answer = await client.call("consumer_group_heartbeat", 1, **_beat("g", many, member_id="b"))
            assert answer.error_code is ErrorCode.group_max_size_reached
            assert "memory" in answer.error_message
            codes = [
                (await client.call("consumer_group_heartbeat", 1, **_beat("g", long, member_id=f"{n}"))).error_code
                for n in range(110)
            ]
            assert codes == [ErrorCode.none] * 100 + [ErrorCode.group_max_size_reached] * 10
            beat = _beat("honest", ["t", "u"], member_id="a") | {"member_epoch": epoch}
            assert (await honest.call("consumer_group_heartbeat", 1, **beat)).error_code is ErrorCode.none
            held = served.broker.groups.consumer.memory.total_bytes
        async with serving(tmp_path, group_members_bytes_max=4 * MIB) as served:
            assert served.broker.groups.consumer.memory.total_bytes == held
            assert len(served.broker.groups.all()) == 2

    asyncio.run(main())


def test_what_members_say_again_and_again_does_not_stay_on_disk(tmp_path: Path) -> None:
    async def main() -> None:
        thresholds = Thresholds(dead_bytes_max=MIB, compaction_interval_ms=10, internal_segment_bytes=MIB)
        async with serving(tmp_path, thresholds=thresholds) as served:
            client = await served.client()
            topic = served.broker.topics.get("__consumer_offsets")
            assert topic is not None
            written = epoch = 0
            for turn in range(20):
                names = [f"{turn}{n:0240}" for n in range(1_000)]
                beat = _beat("g", names, member_id="a", member_epoch=epoch)
                answer = await client.call("consumer_group_heartbeat", 1, **beat)
                assert answer.error_code is ErrorCode.none
                written, epoch = written + 240_000, answer.member_epoch
            while topic.partitions[0].size_bytes > 3 * MIB:
                await client.call("api_versions", 0)
            assert written > 4 * MIB

    asyncio.run(main())


def test_groups_without_members_and_offsets_do_not_stay(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path, thresholds=Thresholds(groups_new_max=20)) as served:
            client = await served.client()
            await served.topic("t")
            commit = {"name": "t", "partitions": [{"partition_index": 0, "committed_offset": 1}]}
            await client.call("offset_commit", 7, group_id="kept", generation_id_or_member_epoch=-1, topics=[commit])
            await client.call("join_group", 4, **_join("announced", b""))
            for number in range(200):
                joined = await client.call("join_group", 3, **_join(f"g{number}", b""))
                assert joined.error_code is ErrorCode.none
                left = {"group_id": f"g{number}", "members": [{"member_id": joined.member_id}]}
                await client.call("leave_group", 3, **left)
            while len(served.broker.groups.all()) > 50:
                await client.call("api_versions", 0)
            assert {"kept", "announced"} <= {group.group_id for group in served.broker.groups.all()}

    asyncio.run(main())
