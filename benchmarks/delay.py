"""A pipe in front of a broker that delays both directions, as a long line would. Used by `benchmarks.many_partitions`.

It passes bytes on without looking at them: the broker itself advertises the pipe's address to clients that come this
way (`clusters.Kafka.start(far=…)`). What is sent in a row stays in a row, so requests in flight share the delay.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from integration_tests.harness.broker import free_port

CHUNK_BYTES = 1 << 18
Pending = asyncio.Queue[tuple[float, bytes]]


@contextmanager
def delayed(to_port: int, delay_s: float, port: int | None = None) -> Iterator[int]:
    """A pipe to `to_port` of this machine, in a thread of its own; yields its port.

    `delay_s` is that of one direction. To connect takes both, as to be answered does.
    """
    loop, port = asyncio.new_event_loop(), port or free_port()
    thread = threading.Thread(target=loop.run_forever, name="delay", daemon=True)
    thread.start()

    async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.CancelledError, ConnectionError):  # asyncio would tell of a cancelled one
            await _connect(reader, writer, to_port, delay_s)

    server = asyncio.run_coroutine_threadsafe(asyncio.start_server(accepted, "127.0.0.1", port), loop).result(10)
    try:
        yield port
    finally:
        loop.call_soon_threadsafe(server.close)
        asyncio.run_coroutine_threadsafe(_cancel_all(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


async def _connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, to_port: int, delay_s: float) -> None:
    """Serve one connection until either side ends it."""
    await asyncio.sleep(2 * delay_s)
    there, back = await asyncio.open_connection("127.0.0.1", to_port)
    pumps = [asyncio.ensure_future(_pump(one, other, delay_s)) for one, other in ((reader, back), (there, writer))]
    try:
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)


async def _cancel_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_s: float) -> None:
    """Pass one direction on until it ends; both ends are closed then."""
    clock = asyncio.get_running_loop().time
    pending: Pending = asyncio.Queue()
    sending = asyncio.ensure_future(_send(pending, writer))
    try:
        with contextlib.suppress(ConnectionError):
            while chunk := await reader.read(CHUNK_BYTES):
                pending.put_nowait((clock() + delay_s, chunk))
        pending.put_nowait((clock() + delay_s, b""))
        await sending
    finally:
        sending.cancel()
        writer.close()


async def _send(pending: Pending, writer: asyncio.StreamWriter) -> None:
    clock = asyncio.get_running_loop().time
    with contextlib.suppress(ConnectionError):
        while True:
            due, chunk = await pending.get()
            await asyncio.sleep(due - clock())
            if not chunk:
                return
            writer.write(chunk)
            await writer.drain()
