"""Clients that begin thousands of TLS handshakes and don't go on with them. Used by the soak."""

from __future__ import annotations

import asyncio
import contextlib
import random
import ssl
import time

HANDSHAKES, HANDSHAKE_S_MAX, BURST_S = 3_000, 60, 2.0


async def unfinished_handshakes(address: str) -> None:
    """As many TLS handshakes that were begun and don't go on, again and again: each until the broker closes it.

    Half of them have sent all that a client sends first, half a few bytes.
    """
    host, _, port = address.rpartition(":")
    greetings = (b"\x16\x03\x01", client_hello())
    while True:
        began_s = time.monotonic()
        waiting = [
            _begin_handshake(host, int(port), f"127.0.0.{2 + each % 4}", greetings[each // 4 % 2])
            for each in range(HANDSHAKES)
        ]
        begun = sum(await asyncio.gather(*waiting))
        print(unfinished_handshakes.__name__, began_s, time.monotonic(), begun, flush=True)


def client_hello() -> bytes:
    """The first record of a TLS handshake."""
    outgoing = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context = ssl.create_default_context()
        context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


async def _begin_handshake(host: str, port: int, source: str, greeting: bytes) -> bool:
    """Whether it was begun; then the broker has ended it."""
    await asyncio.sleep(random.uniform(0, BURST_S))
    with contextlib.suppress(OSError):
        reader, writer = await asyncio.open_connection(host, port, local_addr=(source, 0))
        try:
            writer.write(greeting)
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(HANDSHAKE_S_MAX):
                    while await reader.read(1 << 16):
                        pass
        finally:
            writer.close()
        return True
    return False
