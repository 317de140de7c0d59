"""A broker in this process with a real socket, and a client that speaks raw frames."""

from __future__ import annotations

import asyncio
import io
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from kio.serial import entity_reader, entity_writer

from embedded_broker.api.registry import Api
from embedded_broker.broker import Broker
from embedded_broker.config.settings import BrokerConfig
from embedded_broker.net.connection import Connection
from embedded_broker.net.server import Server
from embedded_broker.storage.log.fs import FileSystem
from embedded_broker.wire import schema
from embedded_broker.wire.responses import Answer, Fields, Later
from kafka_records.records import encode
from tests.embedded_broker import answers

T = TypeVar("T")
TIMEOUT_S = 60.0


class Client:
    """One connection. `send` and `receive` are separate, so that requests can be pipelined."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self._sent: list[tuple[str, int]] = []

    def send(self, name: str, version: int, **fields: Any) -> None:
        """One request; fields by their names, nested ones as dicts."""
        frame = request(name, version, len(self._sent), **fields)
        self._sent.append((name, version))
        self.send_bytes(frame)

    def send_bytes(self, data: bytes) -> None:
        """Anything."""
        self.writer.write(data)

    async def frame(self) -> bytes:
        """The next response without its size."""
        async with asyncio.timeout(TIMEOUT_S):
            size = int.from_bytes(await self.reader.readexactly(4), "big")
            return await self.reader.readexactly(size)

    async def receive(self) -> Any:
        """The next response; the correlation id says what it answers."""
        frame = await self.frame()
        name, version = self._sent[int.from_bytes(frame[:4], "big")]
        response = schema.entity(name, version, "response")
        _, at = entity_reader(response.__header_schema__)(frame, 0)
        entity, size = entity_reader(response)(frame, at)
        assert at + size == len(frame), "bytes left over"
        return entity

    async def call(self, name: str, version: int, **fields: Any) -> Any:
        """Send and receive."""
        self.send(name, version, **fields)
        return await self.receive()

    async def closed(self) -> bool:
        """Whether the broker closes the connection without another byte."""
        async with asyncio.timeout(TIMEOUT_S):
            try:
                return await self.reader.read(1) == b""
            except ConnectionResetError:
                return True


class CheckedServer(Server):
    """Looks at what handlers answer, too."""

    async def _answer(self, api: Api, connection: Connection, request: Any, version: int) -> Answer:
        answer = await super()._answer(api, connection, request, version)
        if isinstance(answer, Later):
            return Later(self._checked(api, answer))
        if answer is not None:
            answers.check(api, answer)
        return answer

    async def _checked(self, api: Api, later: Later) -> Fields:
        answer = await later.answer
        answers.check(api, answer)
        return answer


class Served:
    """A running broker."""

    def __init__(self, broker: Broker, server: Server) -> None:
        self.broker, self.server = broker, server
        self._clients: list[Client] = []

    async def client(self, port: int | None = None, tls: ssl.SSLContext | None = None) -> Client:
        """A new connection, to the first listener or to `port`."""
        port = self.broker.port if port is None else port
        client = Client(*await asyncio.open_connection("127.0.0.1", port, limit=1 << 26, ssl=tls))
        self._clients.append(client)
        return client

    async def topic(self, name: str, partitions: int = 1, **configs: str) -> None:
        """Create a topic that keeps its records, whose times are old; underscores in config names stand for dots."""
        named = {"retention.ms": "-1"} | {key.replace("_", "."): text for key, text in configs.items()}
        await change(self.broker, lambda: self.broker.topics.create(name, partitions, named))

    def close(self) -> None:
        """Close all clients."""
        for client in self._clients:
            client.writer.close()


async def change(broker: Broker, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Change metadata, as a handler does."""

    async def work() -> T:
        async with broker.changes.one():
            return await make()

    return await broker.changes.finish("test", work)


@asynccontextmanager
async def serving(directory: Path, fs: FileSystem | None = None, **settings: Any) -> AsyncIterator[Served]:
    """A broker on `directory` (and `fs`) for the time of the block, stopped cleanly."""
    broker = Broker(BrokerConfig(directory, port=0, **settings), fs)
    await broker.start()
    server = CheckedServer(broker)
    await server.start()
    served = Served(broker, server)
    try:
        yield served
    finally:
        served.close()
        await server.stop()
        if not broker.failed.done():
            await broker.stop()


def request(name: str, version: int, correlation_id: int = 0, **fields: Any) -> bytes:
    """One request as it is sent; fields by their names, nested ones as dicts."""
    body = schema.builder(schema.entity(name, version, "request"))(fields)
    header = type(body).__header_schema__(
        request_api_key=type(body).__api_key__,
        request_api_version=version,
        correlation_id=correlation_id,
        client_id="raw",
    )
    out = io.BytesIO()
    entity_writer(type(header))(out, header)
    entity_writer(type(body))(out, body)
    return len(out.getvalue()).to_bytes(4, "big") + out.getvalue()


def batch(*values: bytes | None, timestamp_ms: int = 1_700_000_000_000, **header: int) -> bytes:
    """A batch of records with these values and the key b"k"."""
    return bytes(encode([(b"k", value) for value in values], timestamp_ms, **header))


def produce(topic: str, *batches: bytes, acks: int = -1, transactional_id: str | None = None) -> dict[str, Any]:
    """Fields of a ProduceRequest: one batch for each of the partitions 0, 1, 2 …"""
    data = [{"index": index, "records": records} for index, records in enumerate(batches)]
    topics = [{"name": topic, "partition_data": data}]
    return {"acks": acks, "timeout": 1000, "transactional_id": transactional_id, "topic_data": topics}


def fetch(topic: str, *offsets: int, max_wait: int = 0, committed: bool = False, **fields: Any) -> dict[str, Any]:
    """Fields of a FetchRequest v4 to v12: one offset for each of the partitions 0, 1, 2 …"""
    partitions = [
        {"partition": index, "fetch_offset": offset, "partition_max_bytes": fields.pop("partition_max_bytes", 1 << 20)}
        for index, offset in enumerate(offsets)
    ]
    return {
        "max_wait": max_wait,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "isolation_level": int(committed),
        "topics": [{"topic": topic, "partitions": partitions}],
        **fields,
    }
