"""What a client leaves behind at its worst: memory stays below 200 MiB, also after a restart, and others go on."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from tests.embedded_broker import served
from tests.embedded_broker.served import Client
from tests.embedded_broker.watched import WatchedBroker

pytestmark = pytest.mark.tier("full")
RSS_MIB_MAX = 200
SESSION_MS = 1_800_000
AT_ONCE = 50


async def _connect(port: int) -> Client:
    return Client(*await asyncio.open_connection("127.0.0.1", port, limit=1 << 26))


async def _send_all(client: Client, name: str, version: int, requests: list[dict[str, Any]]) -> None:
    """Pipelined; what is answered doesn't matter, nor whether the connection is closed."""
    with suppress(ConnectionError, asyncio.IncompleteReadError):
        for first in range(0, len(requests), AT_ONCE):
            for fields in requests[first : first + AT_ONCE]:
                client.send(name, version, **fields)
            for _ in requests[first : first + AT_ONCE]:
                await client.receive()


def _join(group: str, metadata: bytes = b"m" * 100) -> dict[str, Any]:
    said = {"protocol_type": "consumer", "protocols": [{"name": "range", "metadata": metadata}]}
    times = {"session_timeout": SESSION_MS, "rebalance_timeout": SESSION_MS}
    return {"group_id": group, "member_id": "", "group_instance_id": None, **times, **said}


async def _join_groups(port: int) -> None:
    await _send_all(await _connect(port), "join_group", 3, [_join(f"g{n}") for n in range(30_000)])


async def _consumer_members(port: int) -> None:
    names = [f"{n:0249}" for n in range(3_500)]
    for connection in range(20):
        beats = [
            {"group_id": f"g{connection}", "member_id": f"{n}", "member_epoch": 0, "rebalance_timeout": SESSION_MS,
             "topic_partitions": [], "subscribed_topic_names": names}
            for n in range(20)
        ]  # fmt: skip
        await _send_all(await _connect(port), "consumer_group_heartbeat", 1, beats)


async def _transactional_ids(port: int) -> None:
    timeout = {"transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1}
    for connection in range(10):
        ids = [f"{connection} {n} ".ljust(30_000, "x") for n in range(1_000)]
        requests = [{"transactional_id": each, **timeout} for each in ids]
        await _send_all(await _connect(port), "init_producer_id", 4, requests)
    await (await _connect(port)).call("list_transactions", 1, state_filters=[], producer_id_filters=[])


async def _offsets(port: int) -> None:
    for connection in range(10):
        client = await _connect(port)
        commits = []
        for group in range(8):
            offsets = [{"partition_index": n, "committed_offset": 1, "committed_metadata": "m" * 4_096}
                       for n in range(500)]  # fmt: skip
            commits.append({"group_id": f"{connection} {group}", "generation_id_or_member_epoch": -1,
                            "topics": [{"name": "t", "partitions": offsets}]})  # fmt: skip
        await _send_all(client, "offset_commit", 8, commits)


CASES: list[Callable[[int], Awaitable[None]]] = [_join_groups, _consumer_members, _transactional_ids, _offsets]


@asynccontextmanager
async def _broker(directory: Path) -> AsyncIterator[WatchedBroker]:
    broker = await asyncio.to_thread(WatchedBroker, directory, subprocess.DEVNULL)
    try:
        yield broker
    finally:
        await asyncio.to_thread(broker.stop)


async def _alive(client: Client, heartbeat: dict[str, Any]) -> None:
    assert (await client.call("heartbeat", 3, **heartbeat)).error_code is ErrorCode.none


@pytest.mark.parametrize("leave", CASES, ids=[each.__name__.strip("_") for each in CASES])
def test_memory_is_bounded_and_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leave: Callable[[int], Awaitable[None]]
) -> None:
    monkeypatch.setattr(served, "TIMEOUT_S", 300.0)

    async def main() -> None:
        async with _broker(tmp_path) as broker:
            honest = await _connect(broker.port)
            topics = [{"name": "t", "num_partitions": 500, "replication_factor": 1}]
            await honest.call("create_topics", 7, topics=topics, timeout=60_000)
            joined = await honest.call("join_group", 3, **_join("honest", b"m" * 200))
            heartbeat = {"group_id": "honest", "generation_id": joined.generation_id, "member_id": joined.member_id,
                         "group_instance_id": None}  # fmt: skip
            await honest.call("sync_group", 3, **heartbeat, assignments=[])
            broker.read()
            await leave(broker.port)
            assert broker.read().peak_mib <= RSS_MIB_MAX
            await _alive(honest, heartbeat)
        async with _broker(tmp_path) as broker:
            assert broker.read().peak_mib <= RSS_MIB_MAX
            await _alive(await _connect(broker.port), heartbeat)
            await leave(broker.port)
            assert broker.read().peak_mib <= RSS_MIB_MAX

    asyncio.run(main())
