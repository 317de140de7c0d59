"""What a client leaves behind at its worst: memory stays below 200 MiB, also after a restart, and others go on."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from tests.embedded_broker import served
from tests.embedded_broker.leaving_behind import CASES, PARTITIONS, TOPIC, connect, join
from tests.embedded_broker.served import Client
from tests.embedded_broker.watched import WatchedBroker

pytestmark = pytest.mark.tier("full")
RSS_MIB_MAX = 200
TAKEN_MIN = 50
"""Of what each leaves behind: else nothing is bounded."""


@asynccontextmanager
async def _broker(directory: Path) -> AsyncIterator[WatchedBroker]:
    broker = await asyncio.to_thread(WatchedBroker, directory, subprocess.DEVNULL)
    try:
        yield broker
    finally:
        await asyncio.to_thread(broker.stop)


async def _alive(client: Client, heartbeat: dict[str, Any]) -> None:
    assert (await client.call("heartbeat", 3, **heartbeat)).error_code is ErrorCode.none


@pytest.mark.parametrize("leave", CASES, ids=[each.__name__ for each in CASES])
def test_memory_is_bounded_and_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leave: Callable[[int], Awaitable[int]]
) -> None:
    monkeypatch.setattr(served, "TIMEOUT_S", 300.0)

    async def main() -> None:
        async with _broker(tmp_path) as broker:
            honest = await connect(broker.port)
            topics = [{"name": TOPIC, "num_partitions": PARTITIONS, "replication_factor": 1}]
            await honest.call("create_topics", 7, topics=topics, timeout=60_000)
            joined = await honest.call("join_group", 3, **join("honest", b"m" * 200))
            heartbeat = {"group_id": "honest", "generation_id": joined.generation_id, "member_id": joined.member_id,
                         "group_instance_id": None}  # fmt: skip
            await honest.call("sync_group", 3, **heartbeat, assignments=[])
            broker.read()
            assert await leave(broker.port) >= TAKEN_MIN
            assert broker.read().peak_mib <= RSS_MIB_MAX
            await _alive(honest, heartbeat)
        async with _broker(tmp_path) as broker:
            assert broker.read().peak_mib <= RSS_MIB_MAX
            await _alive(await connect(broker.port), heartbeat)
            await leave(broker.port)
            assert broker.read().peak_mib <= RSS_MIB_MAX

    asyncio.run(main())
