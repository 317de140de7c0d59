"""Who may have how many connections, and for how long without a request."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.embedded_broker.served import Client, Served, serving

TIMEOUT_S = 10


async def _from(served: Served, host: str) -> Client:
    return Client(*await asyncio.open_connection("127.0.0.1", served.broker.port, local_addr=(host, 0)))


async def _is_served(client: Client) -> bool:
    try:
        return bool((await client.call("api_versions", 0)).error_code == 0)
    except (asyncio.IncompleteReadError, ConnectionError):
        return False


@pytest.mark.parametrize("settings", [{"connections_max": 8}, {"connections_per_ip_max": 6}])
def test_one_address_cannot_have_all_connections(tmp_path: Path, settings: dict[str, int]) -> None:
    async def main() -> None:
        async with serving(tmp_path, None, **settings) as served:
            greedy = [await _from(served, "127.0.0.1") for _ in range(8)]
            assert [await _is_served(client) for client in greedy] == [True] * 6 + [False] * 2
            other = await _from(served, "127.0.0.2")
            assert await _is_served(other)
            greedy[0].writer.close()
            while served.server._quotas.of("127.0.0.1") == 6:
                assert await _is_served(other)
            again = await _from(served, "127.0.0.1")
            assert await _is_served(again)
            for client in (*greedy, other, again):
                client.writer.close()

    asyncio.run(main())


def test_a_connection_without_a_request_is_closed(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path, first_request_deadline_ms=100) as served:
            asks, silent, partial = [await served.client() for _ in range(3)]
            asks.send("api_versions", 0)
            assert (await asks.receive()).error_code == 0
            partial.send_bytes(b"\0\0\0\x0a\0\x12")
            async with asyncio.timeout(TIMEOUT_S):
                assert await silent.closed()
                assert await partial.closed()
            assert await _is_served(asks)

    asyncio.run(main())


def test_a_first_request_that_takes_long_is_not_late(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path, first_request_deadline_ms=50) as served:
            await served.topic("t")
            client = await served.client()
            client.send("fetch", 12, max_wait=200, min_bytes=1, max_bytes=1, isolation_level=0, topics=[
                {"topic": "t", "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1}]}
            ])  # fmt: skip
            assert (await client.receive()).error_code == 0

    asyncio.run(main())
