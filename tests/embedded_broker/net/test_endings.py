"""What a client has sent is handled, and what was appended becomes visible, however its connection ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from embedded_broker.net.connection import Connection
from embedded_broker.net.server import Server
from embedded_broker.wire.responses import Encoded
from tests.embedded_broker.served import Served, batch, fetch, produce, serving

PATIENCE_S = 10.0


async def _visible(served: Served, count: int) -> None:
    """Wait until so many records of topic `t` can be read."""
    topic = served.broker.topics.get("t")
    assert topic is not None
    async with asyncio.timeout(PATIENCE_S):
        while topic.partitions[0].high_watermark < count:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("count", [1, 10, 1_000])
def test_what_a_client_sent_before_it_left_is_appended(tmp_path: Path, count: int) -> None:
    async def main() -> None:
        async with serving(tmp_path, fsync="interval") as served:
            await served.topic("t")
            client = await served.client()
            for number in range(count):
                client.send("produce", 9, **produce("t", batch(b"%d" % number), acks=0))
            client.writer.close()
            await _visible(served, count)
            async with asyncio.timeout(PATIENCE_S):
                await served.server._empty.wait()

    asyncio.run(main())


def test_a_client_that_only_reads_on_gets_its_answers(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            await served.topic("t")
            client = await served.client()
            for number in range(50):
                client.send("produce", 9, **produce("t", batch(b"%d" % number)))
            client.writer.write_eof()
            for number in range(50):
                assert (await client.receive()).responses[0].partition_responses[0].base_offset == number
            assert await client.closed()

    asyncio.run(main())


def test_what_was_appended_becomes_visible_if_the_connection_is_closed_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dispatch = Server.dispatch

    class Refusing(set[asyncio.Task[Encoded | None]]):
        """Closes the connection before the task that it is given has begun."""

        def __init__(self, connection: Connection) -> None:
            self._connection = connection

        def add(self, task: asyncio.Task[Encoded | None]) -> None:
            super().add(task)
            self._connection.refuse("as after a bad frame")

    async def closing(self: Server, connection: Connection, frame: bytes) -> Awaitable[Encoded | None] | Encoded | None:
        connection._later = Refusing(connection)
        return await dispatch(self, connection, frame)

    async def main() -> None:
        async with serving(tmp_path) as served:
            await served.topic("t")
            client = await served.client()
            monkeypatch.setattr(Server, "dispatch", closing)
            client.send("produce", 9, **produce("t", batch(b"a")))
            assert await client.closed()
            await _visible(served, 1)

    asyncio.run(main())


@pytest.mark.tier("default")
def test_a_frame_may_take_as_long_as_the_broker_keeps_its_client_waiting(tmp_path: Path) -> None:
    deadline_ms, wait_ms = 300, 1_000

    async def main() -> None:
        async with serving(tmp_path, frame_deadline_ms=deadline_ms, requests_pending_max=1) as served:
            await served.topic("t")
            client = await served.client()
            await client.call("api_versions", 0)
            client.send("fetch", 12, **fetch("t", 0, max_wait=wait_ms, min_bytes=1_000))
            await asyncio.sleep(0.05)
            client.send("api_versions", 0)
            client.send("produce", 9, **produce("t", batch(bytes(800_000))))
            await client.receive()
            await client.receive()
            assert (await client.receive()).responses[0].partition_responses[0].base_offset == 0

    asyncio.run(main())


def test_a_client_that_comes_while_the_broker_stops_does_not_keep_it_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was accepted before, and asyncio tells of it afterwards."""
    made: list[Callable[[], None]] = []
    connection_made = Connection.connection_made

    def later(self: Connection, transport: asyncio.BaseTransport) -> None:
        made.append(lambda: connection_made(self, transport))

    async def main() -> None:
        async with serving(tmp_path) as served:
            await served.client()
            monkeypatch.setattr(Connection, "connection_made", later)
            client = await served.client()
            while not made:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            stopping = asyncio.create_task(served.server.stop())
            await asyncio.sleep(0)
            made[0]()
            async with asyncio.timeout(PATIENCE_S):
                await stopping
            assert await client.closed()

    asyncio.run(main())
