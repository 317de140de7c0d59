"""Accepts connections, decodes requests, finds their handlers and encodes the answers."""

from __future__ import annotations

import asyncio
import io
import struct
import sys
from collections.abc import Awaitable, Mapping
from typing import Any

from embedded_broker.api.registry import Answer, Api, Later, load_all
from embedded_broker.broker import Broker
from embedded_broker.connection import Connection

API_VERSIONS = 18
_PREFIX = struct.Struct(">hhi")
UNSUPPORTED_VERSION = 35


class Refused(Exception):
    """A request that ends its connection."""


class Server:
    """The TCP side of a broker."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.apis: Mapping[int, Api] = load_all()
        self._server: asyncio.Server | None = None
        self._connections: set[Connection] = set()
        self._held_bytes = 0
        self._empty = asyncio.Event()
        self._empty.set()
        self.full = False

    async def start(self) -> None:
        """Listen. Afterwards `Broker.port` is the real port. Raises OSError."""
        config = self.broker.config
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Connection(self), config.host, config.port, backlog=256)
        self.broker.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop listening and close all connections."""
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.close()
        await self._empty.wait()

    def admit(self, connection: Connection) -> bool:
        """Whether there is room for one more."""
        if len(self._connections) >= self.broker.config.connections_max:
            self.log("too many connections; one refused")
            return False
        self._connections.add(connection)
        self._empty.clear()
        if self.full:
            connection.pause()
        return True

    def gone(self, connection: Connection) -> None:
        """A connection has closed."""
        self._connections.discard(connection)
        if not self._connections:
            self._empty.set()

    def held(self, connection: Connection, change_bytes: int) -> None:
        """Bound what all connections hold together: over the limit nobody is read until half of it is free.

        Frames that are whole are handled meanwhile; those that aren't meet their deadline.
        """
        self._held_bytes += change_bytes
        bytes_max = self.broker.config.buffered_bytes_max
        if not self.full and self._held_bytes > bytes_max:
            self.full = True
            for each in self._connections:
                each.pause()
        elif self.full and self._held_bytes <= bytes_max // 2:
            self.full = False
            for each in self._connections:
                each.resume()

    async def dispatch(self, connection: Connection, frame: bytes) -> Awaitable[bytes | None] | bytes | None:
        """Handle one request: its answer, a task that will have it, or None. Raises Refused to end the connection."""
        key, version, correlation_id = _PREFIX.unpack_from(frame)
        api = self.apis.get(key)
        if api is None:
            raise Refused(f"unknown API key {key}")
        if version not in api.versions:
            if key != API_VERSIONS:
                raise Refused(f"{api.name} version {version} is not spoken here")
            return self._versions_too_new(connection, api, correlation_id)
        from embedded_broker.wire import schema

        request = self._decode(api, version, frame, connection)
        answer = await self._answer(api, connection, request, version)
        if answer is None:
            return None
        codec = schema.load(api.name, version)
        if isinstance(answer, Later):
            return asyncio.create_task(self._later(answer, codec, correlation_id))
        return encode(codec, correlation_id, answer)

    async def _answer(self, api: Api, connection: Connection, request: Any, version: int) -> Answer:
        return await api.handle(self.broker, connection, request, version)

    def _decode(self, api: Api, version: int, frame: bytes, connection: Connection) -> Any:
        from kio.serial.errors import SerialError

        from embedded_broker.wire import schema

        try:
            read_header = schema.header_reader(schema.request_header_version(api.name, version))
            header, at = read_header(frame, 0)
            connection.client_id = header.client_id or ""
            return schema.load(api.name, version).read(frame, at)
        except (SerialError, ValueError, struct.error, EOFError, OverflowError) as error:
            raise Refused(f"{api.name} v{version} cannot be decoded: {error}") from error

    async def _later(self, answer: Later, codec: Any, correlation_id: int) -> bytes:
        return encode(codec, correlation_id, await answer.answer)

    def _versions_too_new(self, connection: Connection, api: Api, correlation_id: int) -> bytes:
        """KIP-511: answer in version 0 and say which versions there are."""
        from embedded_broker.wire import schema

        keys = [{"api_key": API_VERSIONS, "min_version": api.versions[0], "max_version": api.versions[-1]}]
        return encode(schema.load(api.name, 0), correlation_id, {"error_code": UNSUPPORTED_VERSION, "api_keys": keys})

    def connection_failed(self, connection: Connection, error: BaseException) -> None:
        """A request ended its connection: the client broke the protocol, or the broker has a bug, which is shown."""
        if isinstance(error, Refused):
            connection.refuse(str(error))
            return
        connection.close()
        if isinstance(error, OSError):
            self.broker.fail(error)
            return
        asyncio.get_running_loop().call_exception_handler(
            {"message": f"a request of {connection.client_id!r} failed", "exception": error}
        )

    def log(self, line: str) -> None:
        """One line on stderr."""
        print(line, file=sys.stderr, flush=True)


def encode(codec: Any, correlation_id: int, answer: Mapping[str, Any]) -> bytes:
    """A whole response frame."""
    out = io.BytesIO()
    out.write(b"\0\0\0\0")
    out.write(codec.write_header(correlation_id))
    codec.write(out, codec.build(answer))
    with out.getbuffer() as view:
        view[:4] = (len(view) - 4).to_bytes(4, "big")
    return out.getvalue()


async def serve(broker: Broker, ready: asyncio.Future[int], stop: asyncio.Event) -> BaseException | None:
    """Run a broker until `stop` is set or it fails; the failure, if there was one.

    `ready` gets the port once connections are accepted. Raises whatever keeps it from starting.
    """
    await broker.start()
    server = Server(broker)
    try:
        await server.start()
        ready.set_result(broker.port)
        broker.failed.add_done_callback(lambda _: stop.set())
        await stop.wait()
    finally:
        await server.stop()
        if not broker.failed.done():
            await broker.stop()
    return broker.failed.result() if broker.failed.done() else None
