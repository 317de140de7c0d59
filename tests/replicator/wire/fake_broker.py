"""A broker that answers as a test says: typed requests in, fields of responses out, or silence, or any bytes."""

from __future__ import annotations

import io
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any
from uuid import UUID

from embedded_broker.wire import schema
from embedded_broker.wire.framing import PREFIX
from replicator.config import Cluster, Flow, Limits, Properties
from replicator.wire.protocol import SPOKEN

Answer = Mapping[str, Any] | bytes | None
Answers = Callable[[str, int, Any], Answer]
NAMES = {key: name for name, (key, _, _) in SPOKEN.items()}
TOPIC, TOPIC_ID = "orders", b"0123456789abcdef"


class FakeBroker:
    """Runs during a `with` block, on a free port. `asked`: (API, version, request) of all requests so far.

    `answers` is given API, version and request, and returns the response's fields; bytes are sent as they are, with
    their size too; none at all lets the client wait; None closes the connection.
    """

    def __init__(
        self, answers: Answers, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1", port: int = 0
    ) -> None:
        self._answers, self._tls = answers, tls
        self.asked: list[tuple[str, int, Any]] = []
        self.connections = 0
        self.mutate: Callable[[str, bytes], bytes] = lambda api, data: data
        self._socket = socket.create_server((host, port))
        self.port = int(self._socket.getsockname()[1])
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.port

    def __enter__(self) -> FakeBroker:
        self._start(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for each in self._open:
            each.close()
        for thread in self._threads:
            thread.join(10)
            assert not thread.is_alive(), "a connection was left open"

    def _start(self, run: Callable[..., None], *arguments: Any) -> None:
        thread = threading.Thread(target=run, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.connections += 1
            self._start(self._serve, connection)

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection if self._tls is None else _welcomed(connection, self._tls) as talking:
                stream = talking.makefile("rb")
                while prefix := stream.read(4):
                    answer = self._answer(stream.read(int.from_bytes(prefix, "big")))
                    if answer is None:
                        return
                    talking.sendall(answer)
        except OSError:
            return  # the client has gone, or won't have our certificate

    def _answer(self, frame: bytes) -> bytes | None:
        key, version, correlation_id = PREFIX.unpack_from(frame)
        try:
            name = NAMES[key]
            codec = schema.load(name, version)
        except (KeyError, ModuleNotFoundError):
            return None  # no request
        client_id_bytes = int.from_bytes(frame[8:10], "big")
        at = PREFIX.size + 2 + client_id_bytes + (schema.request_header_version(name, version) - 1)
        request = codec.read(frame, at)
        self.asked.append((name, version, request))
        answer = self._answers(name, version, request)
        if answer is None or isinstance(answer, bytes):
            return answer
        return self.mutate(name, response(name, version, correlation_id, answer))


def _welcomed(connection: socket.socket, tls: ssl.SSLContext) -> socket.socket:
    """The connection after its handshake. Raises OSError when the client is refused, once it has read why: a socket
    that is closed with something unread is reset, and the client may never see the alert."""
    talking = tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
    try:
        talking.do_handshake()
    except ssl.SSLError:
        with socket.socket(fileno=talking.detach()) as refused:
            refused.shutdown(socket.SHUT_WR)
            while refused.recv(4096):
                pass
        raise
    return talking


def response(api: str, version: int, correlation_id: int, answer: Mapping[str, Any]) -> bytes:
    """A response with its size and header."""
    codec, out = schema.load(api, version), io.BytesIO()
    codec.write(out, codec.build(answer))
    body = codec.write_header(correlation_id) + out.getvalue()
    return len(body).to_bytes(4, "big") + body


def flow_of(
    broker: FakeBroker | int, request_timeout_ms: int = 5_000, connect_timeout_ms: int = 5_000, **properties: str
) -> Flow:
    """A flow whose source is this broker; property names with underscores for dots."""
    port = broker if isinstance(broker, int) else broker.port
    given = {"bootstrap.servers": f"127.0.0.1:{port}", **{k.replace("_", "."): v for k, v in properties.items()}}
    cluster = Cluster(name="east", properties=Properties(given))
    limits = Limits(request_timeout_ms=request_timeout_ms, connect_timeout_ms=connect_timeout_ms)
    return Flow(name="f", topics=(TOPIC,), source=cluster, target=cluster, limits=limits)


class Leader:
    """Answers like the leader of `TOPIC` with one batch; tests change what it says. `versions` by API key."""

    def __init__(self) -> None:
        self.broker: FakeBroker | None = None
        self.versions = {key: (lowest, highest) for key, lowest, highest in SPOKEN.values()}
        self.offsets = {-1: 10, -2: 0, -4: 0}
        self.records: bytes = b""
        self.high_watermark = 10
        self.host = "127.0.0.1"
        self.topic_id = TOPIC_ID
        self.instead: dict[str, list[Answer]] = {}
        """By API: what is answered first."""

    def __call__(self, api: str, version: int, request: Any) -> Answer:
        if self.instead.get(api):
            return self.instead[api].pop(0)
        return getattr(self, f"answer_{api}")(request)  # type: ignore[no-any-return]

    def answer_api_versions(self, request: Any) -> Answer:
        return {
            "api_keys": [
                {"api_key": key, "min_version": lowest, "max_version": highest}
                for key, (lowest, highest) in self.versions.items()
            ]
        }

    def metadata(self, topic: Mapping[str, Any] | None = None, **partition: Any) -> dict[str, Any]:
        port = 9092 if self.broker is None else self.broker.port
        found = {"error_code": 0, "partition_index": 0, "leader_id": 1, "leader_epoch": 5, **partition}
        return {
            "brokers": [{"node_id": 1, "host": self.host, "port": port}],
            "topics": [
                {
                    "error_code": 0,
                    "name": TOPIC,
                    "topic_id": uuid_of(self.topic_id),
                    "partitions": [found],
                    **(topic or {}),
                }
            ],
        }

    def answer_metadata(self, request: Any) -> Answer:
        return self.metadata()

    def answer_list_offsets(self, request: Any) -> Answer:
        timestamp = request.topics[0].partitions[0].timestamp
        if timestamp == -4 and type(request).__version__ < 8:
            return self.listed(error_code=35, offset=-1)
        return self.listed(offset=self.offsets[timestamp])

    def listed(self, **partition: Any) -> Answer:
        found = {"partition_index": 0, "error_code": 0, "timestamp": -1, **partition}
        return {"topics": [{"name": TOPIC, "partitions": [found]}]}

    def answer_fetch(self, request: Any) -> Answer:
        return self.fetched(records=self.records)

    def fetched(self, **partition: Any) -> Answer:
        found = {"partition_index": 0, "error_code": 0, "high_watermark": self.high_watermark, "records": b""}
        topic = {"topic": TOPIC, "topic_id": uuid_of(self.topic_id), "partitions": [{**found, **partition}]}
        return {"responses": [topic]}


def uuid_of(data: bytes) -> Any:
    """A topic id for kio."""
    return UUID(bytes=data)
