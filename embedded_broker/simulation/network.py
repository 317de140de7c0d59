"""Simulated connections: ordered within one direction of one connection, with random delays, splits and losses."""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from embedded_broker.simulation.loop import PROCESS, Process, SimulatedLoop
from embedded_broker.simulation.trace import Trace

MakeProtocol = Callable[[], asyncio.BaseProtocol]


@dataclass(frozen=True, slots=True)
class NetworkConditions:
    """Delays and failures of a network."""

    delay_s_max: float
    stall_s_max: float
    """Some pieces take that long."""
    stall_chance: float
    split_chance: float
    """That what is written at once doesn't arrive at once."""
    cut_chance: float
    """That a connection breaks at a write."""


GOOD_CONDITIONS = NetworkConditions(0.001, 0.0, 0.0, 0.0, 0.0)


@dataclass(slots=True)
class _Listener:
    make: MakeProtocol
    context: contextvars.Context
    process: Process


class Link(asyncio.Transport):
    """One end of a connection. What it does to the other end is done in the other's process."""

    def __init__(self, network: Network, name: str, context: contextvars.Context, process: Process) -> None:
        super().__init__()
        self._network, self.name, self.context, self.process = network, name, context, process
        self.protocol: Any = None
        self.other: Link
        self.lost = False
        """`connection_lost` was called."""
        self.broken = False
        """Nothing that is written from now on gets to the other end."""
        self._arrives_s = 0.0  # of what was written last: the next can't overtake it
        self._paused = False
        self._is_closed = False
        """By this end: as with asyncio's own transports nothing is read any more, also before `connection_lost`."""
        self._held: deque[bytes] = deque()
        """What has arrived and wasn't read yet, in order."""

    def write(self, data: bytes | bytearray | memoryview[int]) -> None:
        """See asyncio."""
        if not self.lost and not self.broken:
            self._network.carry(self, bytes(data))

    def arrival_s(self, delay_s: float) -> float:
        """Say when something written now arrives."""
        self._arrives_s = max(self._arrives_s + 1e-6, self._network.loop.now_s + delay_s)
        return self._arrives_s

    def arrived(self, data: bytes) -> None:
        """Give it to the protocol, or keep it until it is wanted."""
        self._held.append(data)
        self._read()

    def _read(self) -> None:
        while self._held and not (self._paused or self.lost or self._is_closed):
            data = self._held.popleft()
            self._network.trace.note(self._network.loop.now_s, f"{self.name} gets {len(data)} bytes", data)
            self.protocol.data_received(data)

    def pause_reading(self) -> None:
        """See asyncio."""
        self._paused = True

    def resume_reading(self) -> None:
        """See asyncio."""
        self._paused = False
        self._network.loop.call_soon(self._read, context=self.context)

    def lose(self, error: Exception | None) -> None:
        """Note that the connection is gone, and tell this end so."""
        if not self.lost:
            self.lost = True
            self._network.trace.note(self._network.loop.now_s, f"{self.name} is closed")
            self._network.links.pop(self, None)
            self.protocol.connection_lost(error)

    def close(self) -> None:
        """See asyncio."""
        self._end(None)

    def abort(self) -> None:
        """See asyncio."""
        self._end(ConnectionResetError("reset by peer"))

    def _end(self, error: Exception | None) -> None:
        network = self._network
        self.broken = self._is_closed = True
        if not self.lost:
            network.loop.call_soon(self.lose, None, context=self.context)
            when_s = self.arrival_s(network.delay_s())
            network.loop.call_at(when_s, self.other.lose, error, context=self.other.context)

    def is_closing(self) -> bool:
        """See asyncio."""
        return self.lost or self.broken

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """See asyncio."""
        return ("10.0.0.1", 40_000) if name == "peername" else default


class _Socket:
    """As much of a listening socket as the server looks at."""

    def __init__(self, port: int) -> None:
        self._port = port

    def getsockname(self) -> tuple[str, int]:
        return "10.0.0.2", self._port


class Listening:
    """What `create_server` gives."""

    def __init__(self, network: Network, port: int) -> None:
        self._network, self._port = network, port
        self.sockets = (_Socket(port),)

    def close(self) -> None:
        """Take no more connections."""
        self._network.listeners.pop(self._port, None)


class Network:
    """All hosts' connections. `conditions` may change at any time."""

    def __init__(self, loop: SimulatedLoop, random: Random, conditions: NetworkConditions, trace: Trace) -> None:
        self.loop, self._random, self.conditions, self.trace = loop, random, conditions, trace
        self.listeners: dict[int, _Listener] = {}
        self.links: dict[Link, None] = {}
        self._count = 0
        self.on_answer: Callable[[str, Any], None] = lambda api, answer: None
        """Called with every response that a client gets, and its API."""
        loop.create_server = self._listen  # type: ignore[method-assign, assignment]

    async def _listen(self, make: MakeProtocol, host: str, port: int, backlog: int = 100) -> Listening:
        """Listen, instead of the loop's `create_server`."""
        if port in self.listeners:
            raise OSError(f"port {port} is taken")
        self.listeners[port] = _Listener(make, contextvars.copy_context(), PROCESS.get())
        return Listening(self, port)

    def delay_s(self) -> float:
        """Draw the delay of one piece."""
        conditions = self.conditions
        if conditions.stall_chance and self._random.random() < conditions.stall_chance:
            return self._random.uniform(0, conditions.stall_s_max)
        return self._random.uniform(conditions.delay_s_max / 10, conditions.delay_s_max)

    async def connect(self, port: int, make: MakeProtocol) -> Any:
        """Connect to whoever listens; return the protocol. Raises ConnectionRefusedError."""
        context, process = contextvars.copy_context(), PROCESS.get()
        await asyncio.sleep(self.delay_s())
        listener = self.listeners.get(port)
        if listener is None:
            raise ConnectionRefusedError(f"nobody listens on port {port}")
        self._count += 1
        near = Link(self, f"client {self._count}", context, process)
        far = Link(self, f"broker {self._count}", listener.context, listener.process)
        near.other, far.other = far, near
        near.protocol, far.protocol = make(), listener.context.run(listener.make)
        self.links.update({near: None, far: None})
        near.protocol.connection_made(near)
        self.loop.call_soon(far.protocol.connection_made, far, context=far.context)
        return near.protocol

    def carry(self, link: Link, data: bytes) -> None:
        """Have something written at one end arrive at the other, some time."""
        chance, conditions = self._random.random, self.conditions
        if conditions.cut_chance and chance() < conditions.cut_chance:
            self._cut(link, data[: self._random.randrange(len(data) + 1)])
            return
        at = (
            self._random.randrange(len(data) + 1)
            if conditions.split_chance and chance() < conditions.split_chance
            else 0
        )
        for piece in (data[:at], data[at:]):
            if piece:
                self._send(link, piece)

    def _send(self, link: Link, data: bytes) -> None:
        other = link.other
        self.loop.call_at(link.arrival_s(self.delay_s()), other.arrived, data, context=other.context)

    def _cut(self, link: Link, arrives: bytes) -> None:
        self.trace.note(self.loop.now_s, f"{link.name} is cut")
        link.broken = link.other.broken = True
        if arrives:
            self._send(link, arrives)
        for end in (link, link.other):
            error = ConnectionResetError("the connection broke")
            self.loop.call_at(end.other.arrival_s(self.delay_s()), end.lose, error, context=end.context)

    def process_died(self, process: Process) -> None:
        """Close what it had open, as its system does; the other ends hear of it."""
        self.listeners = {port: each for port, each in self.listeners.items() if each.process is not process}
        for link in [each for each in self.links if each.process is process]:
            link.lost = True
            del self.links[link]
            error = ConnectionResetError("reset by peer")
            self.loop.call_at(link.arrival_s(self.delay_s()), link.other.lose, error, context=link.other.context)
