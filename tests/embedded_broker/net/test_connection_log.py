"""The broker's log says who came, and why they left."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from embedded_broker.config.listeners import Listener, Protocol
from tests.embedded_broker.served import batch, produce, serving

SOFTWARE = {"client_software_name": "some-client", "client_software_version": "1.2"}


def _lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    lines = capsys.readouterr().err.splitlines()
    assert all(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ 127\.0\.0\.1:\d+ ", line) for line in lines), lines
    return [line.split(" ", 2)[2] for line in lines]


def test_the_log_of_one_connection(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def main() -> int:
        users = tmp_path / "users"
        users.write_text("alice:x")
        listeners = (Listener(port=0, protocol=Protocol.SASL_PLAINTEXT),)
        async with serving(tmp_path / "data", listeners=listeners, users_file=users) as served:
            client = await served.client()
            await client.call("api_versions", 3, **SOFTWARE)
            await client.call("sasl_handshake", 1, mechanism="PLAIN")
            await client.call("sasl_authenticate", 2, auth_bytes=b"\0alice\0x")
            await client.call("metadata", 9, topics=None)
            await client.call("metadata", 9, topics=None)
            client.writer.close()
            await client.closed()
            while served.server._connections:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            return served.broker.port

    port = asyncio.run(main())
    assert _lines(capsys) == [
        f"connected: client 'raw' (some-client 1.2), User:alice, SASL_PLAINTEXT on 127.0.0.1:{port}",
        "closed: by the client",
    ]


async def _wrong_password(served: Any) -> None:
    client = await served.client()
    await client.call("sasl_handshake", 1, mechanism="PLAIN")
    await client.call("sasl_authenticate", 2, auth_bytes=b"\0alice\0wr\nong")
    await client.closed()


async def _no_frame(served: Any) -> None:
    client = await served.client()
    client.send_bytes(b"\xff\xff\xff\xff")
    await client.closed()


async def _too_early(served: Any) -> None:
    client = await served.client()
    client.send("produce", 9, **produce("t", batch(b"v")))
    await client.closed()


@pytest.mark.parametrize(
    ("visit", "why"),
    [
        (_wrong_password, "closed: login failed: Authentication failed: Invalid username or password"),
        (_no_frame, "closed: frame of -1 bytes; allowed are 8 to 65536"),
        (_too_early, "closed: produce before its login"),
    ],
)
def test_why_a_connection_was_closed(tmp_path: Path, capsys: pytest.CaptureFixture[str], visit: Any, why: str) -> None:
    async def main() -> None:
        async with serving(tmp_path, listeners=(Listener(port=0, protocol=Protocol.SASL_PLAINTEXT),)) as served:
            await visit(served)

    asyncio.run(main())
    assert _lines(capsys) == [why]


def test_nobody_writes_lines_of_their_own_into_the_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            client = await served.client()
            header = b"\0\x03\0\1" + b"\0\0\0\1" + b"\0\x0b" + b"evil\n2026 x\0"[:11]
            frame = header + b"\xff\xff\xff\xff"
            client.send_bytes(len(frame).to_bytes(4, "big") + frame)
            await client.frame()
            served.server.log("127.0.0.1:1 a\x1b[31m\u2028b")

    asyncio.run(main())
    first, second, *_ = _lines(capsys)
    assert first.startswith(r"connected: client 'evil\n2026 x'")
    assert second == r"a\u001b[31m\u2028b"
