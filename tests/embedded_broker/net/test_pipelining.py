"""What many small requests in one read cost: each as much as one alone."""

from __future__ import annotations

import asyncio
import gc
import sys
import weakref
from collections import Counter
from collections.abc import Awaitable
from pathlib import Path
from types import FrameType

import pytest

from embedded_broker.net.connection import Connection
from embedded_broker.net.server import Server
from embedded_broker.wire.responses import Encoded
from tests.embedded_broker.served import serving

API_VERSIONS_V0 = b"\0\0\0\x12" + b"\0\x12\0\0" + b"\0\0\0\x07" + b"\0\x08pipeline"
FEW, MANY = 100, 2_000


async def _calls(directory: Path, count: int) -> float:
    """Function calls for each of so many requests that arrive together."""
    calls = 0

    def count_call(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    async with serving(directory) as served:
        client = await served.client()
        await client.call("api_versions", 0)  # what is loaded once is loaded then
        client.send_bytes(API_VERSIONS_V0 * count)
        sys.setprofile(count_call)
        try:
            for _ in range(count):
                await client.frame()
        finally:
            sys.setprofile(None)
    return calls / count


@pytest.mark.tier("extended")
def test_a_request_costs_the_same_however_many_wait_behind_it(tmp_path: Path) -> None:
    few = asyncio.run(_calls(tmp_path / "few", FEW))
    many = asyncio.run(_calls(tmp_path / "many", MANY))
    assert many < 1.5 * few


@pytest.mark.tier("extended")
def test_bytes_held_for_requests_are_those_that_wait(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            client = await served.client()
            client.send_bytes(API_VERSIONS_V0 * MANY + API_VERSIONS_V0[:10])
            for _ in range(MANY):
                await client.frame()
            assert served.server.requests.total_bytes == 10  # of the frame that isn't whole
            client.send_bytes(API_VERSIONS_V0[10:])
            await client.frame()
            assert served.server.requests.total_bytes == 0

    asyncio.run(main())


def test_others_have_their_turn_between_the_requests_of_a_pipeline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handled: list[str] = []
    dispatch = Server.dispatch

    async def noted(self: Server, connection: Connection, frame: bytes) -> Awaitable[Encoded | None] | Encoded | None:
        answer = await dispatch(self, connection, frame)
        handled.append(str(connection.session))
        return answer

    async def main() -> None:
        async with serving(tmp_path) as served:
            crowding, other = await served.client(), await served.client()
            for client in (crowding, other):
                await client.call("api_versions", 0)
            handled.clear()
            crowding.send_bytes(API_VERSIONS_V0 * FEW)
            other.send_bytes(API_VERSIONS_V0)
            await other.frame()
            for _ in range(FEW):
                await crowding.frame()

    monkeypatch.setattr(Server, "dispatch", noted)
    asyncio.run(main())
    crowds = Counter(handled).most_common(1)[0][0]
    place = next(index for index, name in enumerate(handled) if name != crowds)
    assert place < 10, place


def test_a_connection_that_has_ended_is_not_kept_by_a_cycle(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            gc.collect()
            gc.disable()
            try:
                client = await served.client()
                await client.call("api_versions", 0)
                (connection,) = served.server._connections
                kept = weakref.ref(connection)
                del connection
                client.writer.close()
                await asyncio.wait_for(served.server._empty.wait(), 10)
                await asyncio.sleep(0)  # the transport's last callback
                assert kept() is None
            finally:
                gc.enable()

    asyncio.run(main())
