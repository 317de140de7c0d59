"""Accepts connections and calls the handlers of their requests.

`broker.serve` starts one `Server`, as `testing.broker_run` and `simulation.machine` do; every `Connection` calls its
`dispatch`.
"""

from __future__ import annotations

import asyncio
import resource
import struct
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Protocol, TextIO

from kio.serial.errors import SerialError

from embedded_broker.api import boundary
from embedded_broker.api.ports import Parts
from embedded_broker.api.registry import Api, load_all
from embedded_broker.config.listeners import Endpoint, refuse_open
from embedded_broker.config.listeners import Protocol as SecurityProtocol
from embedded_broker.net.budget import Budget, TooLarge
from embedded_broker.net.coding import Coding, encode
from embedded_broker.net.connection import Connection
from embedded_broker.net.connection_quotas import ConnectionQuotas, Turn
from embedded_broker.net.unfinished_logins import UnfinishedLogins
from embedded_broker.runtime.fair_share import FairShare
from embedded_broker.runtime.log_writer import LogWriter
from embedded_broker.security.compose import tls_context
from embedded_broker.security.session import API_VERSIONS, LOGIN, SASL_HANDSHAKE, LoginFailed
from embedded_broker.storage.failures import is_disk_failure
from embedded_broker.wire import schema
from embedded_broker.wire.framing import PREFIX, WithoutRecords
from embedded_broker.wire.responses import Answer, Encoded, Later
from embedded_broker.wire.schema import Frame

UNSUPPORTED_VERSION = 35
SWEEP_S_MAX = 10.0
UNSENT_BYTES_MAX = 1024 * 1024
SMALL_ITEMS = 20
"""With more in its arrays a request, once it is decoded, is counted as larger than its bytes."""
READ_BYTES_MAX = 1024 * 1024
"""What is read from a socket at once: most requests then come in one piece."""


class CloseConnection(Exception):
    """A request that ends its connection."""


class InjectedFaults(Protocol):
    """Faults that a test has injected: `testing.faults`."""

    async def around(
        self, api: Api, client_id: str, request: Any, version: int, handle: Callable[[], Awaitable[Answer]]
    ) -> Answer:
        """Handle one request with its faults applied. Raises CloseConnection to close the connection."""
        ...


class Served(Parts, Protocol):
    """The broker behind the sockets: what handlers need of it, and what the server does."""

    port: int
    """Of the first listener; the server sets it when it is known."""
    fair_share: FairShare
    endpoints: list[Endpoint]
    """The server fills it."""
    coding: Coding

    @property
    def faults(self) -> InjectedFaults | None:
        """None outside of tests."""
        ...

    def fail(self, error: BaseException) -> None:
        """Stop the broker, which can't go on."""
        ...


class Server:
    """The TCP side of a broker."""

    def __init__(self, broker: Served, log_to: TextIO | None = None) -> None:
        """`log_to`: who connects and why they leave; stderr by default."""
        self.broker = broker
        self.config = broker.config
        self._log = LogWriter(log_to)
        self.apis: Mapping[int, Api] = load_all()
        self._servers: list[asyncio.Server] = []
        self._connections: dict[Connection, None] = {}  # in the order of arrival: sets are in that of addresses
        config = self.config
        names = {key: each.name for key, each in self.apis.items()}
        self.without_records = WithoutRecords(config.frame_without_records_bytes_max, names)
        """See `host.Host`."""
        self.inbox = memoryview(bytearray(READ_BYTES_MAX))
        """What connections read into; nothing of it is used after the call that brought it."""
        self.requests = Budget[Connection]("requests", config.buffered_bytes_max, self._requests_full)
        self.answers = Budget[Connection](
            "unread answers",
            config.answers_bytes_max,
            self._answers_full,
            emptied=self._give_back,
            has_shed=lambda: broker.coding.give_back_now(),
        )
        self._giving_back: asyncio.Task[None] | None = None
        self._quotas = ConnectionQuotas(
            lambda: broker.dynamic_configs.connections,
            lambda address: broker.client_quotas.creation_rate(address),
            # half of the files that may be open: the other half is the logs'
            resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2,
        )
        self._logins = UnfinishedLogins[Connection](self._unfinished_logins_max, config.unfinished_logins_per_ip_max)
        self._empty = asyncio.Event()
        self._empty.set()
        self._sweep: asyncio.TimerHandle | None = None
        self._stops = False

    async def start(self) -> None:
        """Listen everywhere. Afterwards `Broker.port` is the first listener's real port.

        Raises OSError, ValueError (BadListener, or TLS files that can't be used).
        """
        config, loop = self.config, asyncio.get_running_loop()
        if not config.allow_plain_text:
            refuse_open(config.listening)
        context = tls_context(config)
        for listener in config.listening:
            tls = context if listener.protocol.is_encrypted else None
            endpoint = Endpoint(listener)
            accept = partial(Connection, self, endpoint, tls)
            server = await loop.create_server(accept, listener.host, listener.port, backlog=1024)
            endpoint.port = server.sockets[0].getsockname()[1]
            self._servers.append(server)
            self.broker.endpoints.append(endpoint)
        self.broker.port = self.broker.endpoints[0].port
        self._sweep_idle()

    async def stop(self) -> None:
        """Stop listening and close all connections; those that were accepted a moment ago, and aren't known yet, are
        refused when they are."""
        self._stops = True
        for server in self._servers:
            server.close()
        if self._sweep is not None:
            self._sweep.cancel()
        for connection in list(self._connections):
            connection.close()
        await self._empty.wait()
        self._log.close()

    def _unfinished_logins_max(self) -> int:
        """Return how many logins may be unfinished: some connections are left for those whose client is known."""
        most = self._quotas.most
        return min(self.config.unfinished_logins_max, most - most // 4)

    def admit(self, connection: Connection) -> Turn:
        """Register a new connection, unless there are too many, of its address or unfinished logins."""
        if self._stops:
            return Turn("the broker stops")
        address, now_s = connection.client_host, asyncio.get_running_loop().time()
        logs_in = connection.session.endpoint.listener.protocol is not SecurityProtocol.PLAINTEXT
        refusal = self._logins.refuse(address, now_s) if logs_in else ""
        turn = Turn(refusal) if refusal else self._quotas.take(address, now_s)
        if turn.refusal and not turn.wait_s:
            self.log(f"{connection.session} refused: {turn.refusal}")
            return turn
        if logs_in:
            self._logins.begin(connection, now_s)
        self._connections[connection] = None
        self._empty.clear()
        return turn

    def known(self, connection: Connection) -> None:
        """See `host.Host`."""
        self._logins.end(connection)

    def gone(self, connection: Connection, why: str) -> None:
        """Note that a connection has closed."""
        if connection in self._connections:
            self.log(f"{connection.session} closed: {why}")
            del self._connections[connection]
            self._quotas.gone(connection.client_host)
            self._logins.end(connection)
        if not self._connections:
            self._empty.set()

    def _requests_full(self, full: bool) -> None:
        """Stop reading connections that hold much, while requests are over their limit.

        Frames that are whole are handled meanwhile; those that aren't meet their deadline.
        """
        for each in self._connections:
            if not full:
                each.resume()
            elif self.requests.pauses(each):
                each.pause()

    def unsent_bytes_max(self) -> int:
        """Return how much one client may leave unread and still get further answers."""
        return 0 if self.answers.full else UNSENT_BYTES_MAX

    def _answers_full(self, full: bool) -> None:
        """See `unsent_bytes_max`."""
        if not full:
            for each in self._connections:
                each.look_again()

    def _give_back(self) -> None:
        """Give memory back: much was held for clients, and most of it is free again."""
        if self._giving_back is None or self._giving_back.done():
            self._giving_back = asyncio.create_task(self.broker.coding.give_back())

    def _sweep_idle(self) -> None:
        """Close who has been silent for too long, now and then."""
        loop, idle_s = asyncio.get_running_loop(), self.config.connections_idle_ms / 1000
        self._sweep = loop.call_later(min(idle_s / 2, SWEEP_S_MAX), self._sweep_idle)
        for connection in list(self._connections):
            try:
                connection.expire(loop.time(), idle_s)
            except Exception as error:  # noqa: BLE001 - it is told, and the others still have their turn
                self.broker.fail(error)

    async def dispatch(self, connection: Connection, frame: Frame) -> Awaitable[Encoded | None] | Encoded | None:
        """Handle one request: the response, a task that returns it, or None. Raises CloseConnection."""
        session = connection.session
        if session.takes_tokens:
            return await self._token(connection, frame)
        key, version, correlation_id = PREFIX.unpack_from(frame)
        if session.is_over(asyncio.get_running_loop().time()) and key != SASL_HANDSHAKE and session.is_ready:
            raise CloseConnection("the session is over, and no new login was begun")
        if not session.admits(key):
            name = self.apis[key].name if key in self.apis else f"API {key}"
            raise CloseConnection(f"{name} {session.state.value}")
        api = self.apis.get(key)
        if api is None:
            raise CloseConnection(f"unknown API key {key}")
        if version not in api.versions:
            if key != API_VERSIONS:
                raise CloseConnection(f"{api.name} version {version} is not spoken here")
            return self._versions_too_new(connection, api, correlation_id)
        request = await self._decode(api, version, frame, connection)
        if not session.is_announced and key not in LOGIN:
            session.is_announced = True
            self.log(f"{session} connected: {session.describe()}")
        faults = self.broker.faults
        if faults is None:
            answer = await self._answer(api, connection, request, version)
        else:
            handle = partial(self._answer, api, connection, request, version)
            answer = await faults.around(api, session.client_id, request, version, handle)
        if answer is None:
            return None
        codec = schema.load(api.name, version)
        if isinstance(answer, Later):
            return asyncio.create_task(self._later(answer, codec, correlation_id))
        return await self.broker.coding.encode(codec, correlation_id, answer)

    async def _token(self, connection: Connection, token: Frame) -> bytes | None:
        """Take a login's token, and return the answer to it, without headers. A failed login is answered by closing
        only.
        """
        try:
            answer = connection.session.step(bytes(token), asyncio.get_running_loop().time())
        except LoginFailed:
            await asyncio.sleep(self.config.login_failed_delay_ms / 1000)
            return None
        connection.expect_tokens()
        return len(answer).to_bytes(4, "big") + answer

    @property
    def fair_share(self) -> FairShare:
        """See `host.Host`."""
        return self.broker.fair_share

    async def _answer(self, api: Api, connection: Connection, request: Any, version: int) -> Answer:
        try:
            return await self._allowed(api, connection, request, version)
        except TooLarge as error:
            raise CloseConnection(f"{api.name}: {error}") from error

    async def _allowed(self, api: Api, connection: Connection, request: Any, version: int) -> Answer:
        authorizer = self.broker.security.authorizer
        if authorizer is None:
            return await api.handle(self.broker, connection, request, version)
        from embedded_broker.security.enforcing import ClientRights, NoRule, Unanswerable, enforce

        rights = ClientRights(authorizer, connection.session, self.broker.topics, self.broker.config.auto_create_topics)
        try:
            return await enforce(
                rights, api.name, request, lambda cut: api.handle(self.broker, connection, cut, version)
            )
        except (NoRule, Unanswerable) as error:
            raise CloseConnection(f"no right, and no way to say so: {error}") from error

    async def _decode(self, api: Api, version: int, frame: Frame, connection: Connection) -> Any:
        try:
            client_id, request, items = await self.broker.coding.decode(api.name, version, frame)
            connection.session.client_id = client_id
            if items > SMALL_ITEMS:
                connection.decoded(items)
            boundary.check(api.name, client_id, request)
            return request
        except (SerialError, ValueError, struct.error, EOFError, OverflowError) as error:
            raise CloseConnection(f"{api.name} v{version} cannot be decoded: {error}") from error

    async def _later(self, answer: Later, codec: Any, correlation_id: int) -> Encoded:
        return await self.broker.coding.encode(codec, correlation_id, await answer.answer)

    def _versions_too_new(self, connection: Connection, api: Api, correlation_id: int) -> Encoded:
        """Answer as KIP-511 says, in version 0, and say which versions there are."""
        keys = [{"api_key": API_VERSIONS, "min_version": api.versions[0], "max_version": api.versions[-1]}]
        return encode(schema.load(api.name, 0), correlation_id, {"error_code": UNSUPPORTED_VERSION, "api_keys": keys})

    def connection_failed(self, connection: Connection, error: BaseException) -> None:
        """Note that a request ended its connection: the client broke the protocol, or the broker has a bug, which is
        shown.

        Only what the broker couldn't write ends the broker: its memory is ahead of its files then.
        """
        if isinstance(error, CloseConnection):
            connection.refuse(str(error))
            return
        if isinstance(error, OSError) and not is_disk_failure(error):
            connection.refuse(f"a request failed: {error}")
            return
        connection.close()
        self.broker.fail(error)

    def log(self, line: str) -> None:
        """Write one line, with the time, if it can be written. What clients put into it stays on that line."""
        line = "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in line)
        now = time.gmtime(self.broker.clock.now_ms() / 1000)
        self._log.write(f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', now)} {line}")
