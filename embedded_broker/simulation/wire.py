"""A small Kafka client on the simulated network: typed requests of any version, answers by correlation id."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable, Mapping
from functools import cache, partial
from random import Random
from typing import Any

from kio.serial import entity_reader, entity_writer

from embedded_broker.simulation.network import Link, Network
from embedded_broker.wire import schema
from embedded_broker.wire.framing import Framer

FRAME_BYTES_MAX = 1 << 26
CORRELATION_AT, CORRELATION_BYTES = 4, 4
"""In the header of a request, behind the API's key and version."""
PORT = 9092


class NoResponse(Exception):
    """The connection broke, or no answer came in time: what was asked may have been done, or not, or be done yet."""


@cache
def _codec(name: str, version: int) -> tuple[Callable[[int, Mapping[str, Any]], bytes], Callable[[bytes], Any]]:
    """Return (frame of a request from its correlation id and fields, response from its frame without the size)."""
    request, response = schema.entity(name, version, "request"), schema.entity(name, version, "response")
    build, write = schema.builder(request), entity_writer(request)
    header_type = request.__header_schema__
    write_header = entity_writer(header_type)
    read_header, read = entity_reader(response.__header_schema__), entity_reader(response)

    head = io.BytesIO()
    key = request.__api_key__
    write_header(
        head,
        header_type(request_api_key=key, request_api_version=version, correlation_id=0, client_id="simulated"),
    )
    before, after = head.getvalue()[:CORRELATION_AT], head.getvalue()[CORRELATION_AT + CORRELATION_BYTES :]

    def encode(correlation_id: int, fields: Mapping[str, Any]) -> bytes:
        out = io.BytesIO()
        write(out, build(fields))
        body = out.getvalue()
        size = len(before) + CORRELATION_BYTES + len(after) + len(body)
        return b"".join(
            (size.to_bytes(4, "big"), before, correlation_id.to_bytes(CORRELATION_BYTES, "big"), after, body)
        )

    def decode(frame: bytes) -> Any:
        at = read_header(frame, 0)[1]
        return read(frame, at)[0]

    return encode, decode


class _Connection(asyncio.Protocol):
    """Requests under way on one connection."""

    def __init__(self, on_answer: Callable[[str, Any], None]) -> None:
        self._on_answer = on_answer
        self._framer = Framer(FRAME_BYTES_MAX, CORRELATION_BYTES)
        self._link: Link
        self._waiting: dict[int, tuple[str, asyncio.Future[Any], Callable[[bytes], Any]]] = {}
        self._count = 0
        self.is_open = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, Link)
        self._link = transport

    def data_received(self, data: bytes) -> None:
        for frame in self._framer.feed(data):
            name, future, decode = self._waiting.pop(int.from_bytes(frame[:CORRELATION_BYTES], "big"))
            answer = decode(bytes(frame))
            if not future.done():
                future.set_result(answer)
            self._on_answer(name, answer)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        for _, future, _ in self._waiting.values():
            if not future.done():
                future.set_exception(NoResponse(f"{exc}"))
                future.exception()  # nobody may be waiting for it
        self._waiting.clear()

    def send(self, name: str, version: int, fields: Mapping[str, Any]) -> asyncio.Future[Any]:
        encode, decode = _codec(name, version)
        self._count += 1
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[self._count] = name, future, decode
        self._link.write(encode(self._count, fields))
        return future

    def close(self) -> None:
        self.connection_lost(None)
        self._link.abort()


class SimulatedClient:
    """Connects when it has to. After NoResponse, the next request goes over a new connection."""

    def __init__(self, network: Network, random: Random, timeout_s: float) -> None:
        """`timeout_s`: how long an answer may take."""
        self._network, self.random, self._timeout_s = network, random, timeout_s
        self._connection: _Connection | None = None

    @property
    def now_s(self) -> float:
        """Of the clock that all share."""
        return self._network.loop.now_s

    @property
    def now_ms(self) -> int:
        """Return the simulated wall-clock time, which may jump, in milliseconds since the epoch."""
        return self._network.loop.now_ms()

    @property
    def now_max_ms(self) -> int:
        """The latest time that the clock on the wall has shown."""
        return self._network.loop.now_max_ms()

    async def connect(self) -> None:
        """Connect. Waits for the broker as long as it takes."""
        while self._connection is None or not self._connection.is_open:
            try:
                self._connection = await self._network.connect(PORT, partial(_Connection, self._network.on_answer))
            except ConnectionRefusedError:
                await self.pause()

    async def send(self, name: str, version: int, **fields: Any) -> asyncio.Future[Any]:
        """Send, connecting before if need be. The answer is to be had by `answer`."""
        await self.connect()
        assert self._connection is not None
        return self._connection.send(name, version, fields)

    async def answer(self, future: asyncio.Future[Any]) -> Any:
        """Wait for an answer. Raises NoResponse; then the connection is closed, as clients do."""
        try:
            async with asyncio.timeout(self._timeout_s):
                return await asyncio.shield(future)
        except TimeoutError as error:
            self.disconnect()
            raise NoResponse("no answer in time") from error

    async def call(self, name: str, version: int, **fields: Any) -> Any:
        """Send and wait. Raises NoResponse."""
        return await self.answer(await self.send(name, version, **fields))

    async def ask(self, name: str, version: int, **fields: Any) -> Any:
        """Call as `call` does, again and again until there is an answer: for what may be done twice."""
        while True:
            try:
                return await self.call(name, version, **fields)
            except NoResponse:
                await self.pause()

    def disconnect(self) -> None:
        """Close the connection. Requests under way are NoResponse."""
        if self._connection is not None and self._connection.is_open:
            self._connection.close()

    async def pause(self) -> None:
        """Wait a moment, as clients make between two attempts."""
        await asyncio.sleep(self.random.uniform(0.005, 0.1))
