"""Simulated connections keep what asyncio's own ones promise."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from embedded_broker.simulation.loop import Process, SimulatedLoop
from embedded_broker.simulation.network import GOOD_CONDITIONS, Link, Network
from embedded_broker.simulation.trace import Trace

PORT = 9092


class End(asyncio.Protocol):
    """One end of a connection."""

    link: Link

    def __init__(self) -> None:
        self.got: list[bytes] = []
        self.pauses = False

    def connection_made(self, transport: Any) -> None:
        self.link = transport

    def data_received(self, data: bytes) -> None:
        self.got.append(data)
        if self.pauses:
            self.link.pause_reading()


def connected(loop: SimulatedLoop) -> tuple[End, End]:
    """Both ends of a new connection."""
    network = Network(loop, Random(1), GOOD_CONDITIONS, Trace())
    far: list[End] = []

    def accept() -> End:
        far.append(End())
        return far[-1]

    async def connect() -> Any:
        await loop.create_server(accept, "broker", PORT)
        found = await network.connect(PORT, End)
        await asyncio.sleep(1)
        return found

    near = loop.run_until_complete(loop.spawn(Process("p", network.process_died), connect()))
    return near, far[0]


@pytest.fixture
def loop() -> SimulatedLoop:
    return SimulatedLoop(Random(1), 0.0)


def test_what_has_arrived_is_read_in_order_however_often_reading_pauses(loop: SimulatedLoop) -> None:
    near, far = connected(loop)
    sent = [b"first", b"second", b"third"]
    far.pauses = True

    async def main() -> None:
        far.link.pause_reading()
        for data in sent[:2]:
            near.link.write(data)
        await asyncio.sleep(1)
        far.link.resume_reading()
        loop.call_soon(far.link.resume_reading)  # the first has paused it again
        loop.call_soon(far.link.arrived, sent[2])
        await asyncio.sleep(1)
        while len(far.got) < len(sent):
            far.link.resume_reading()
            await asyncio.sleep(0)

    loop.run_until_complete(main())
    assert far.got == sent
    loop.close()


def test_an_end_that_has_closed_reads_no_more(loop: SimulatedLoop) -> None:
    near, far = connected(loop)

    async def main() -> None:
        far.link.write(b"late")
        near.link.abort()
        near.link.arrived(b"late")  # in the same iteration, before `connection_lost`
        await asyncio.sleep(1)

    loop.run_until_complete(main())
    assert near.got == []
    loop.close()
