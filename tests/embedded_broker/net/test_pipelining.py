"""What many small requests in one read cost: each as much as one alone."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from types import FrameType

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


def test_a_request_costs_the_same_however_many_wait_behind_it(tmp_path: Path) -> None:
    few = asyncio.run(_calls(tmp_path / "few", FEW))
    many = asyncio.run(_calls(tmp_path / "many", MANY))
    assert many < 1.5 * few


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
