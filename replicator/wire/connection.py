"""One blocking connection to one broker: TCP, TLS, ApiVersions, login, then requests one after the other.

Every wait is bounded: by the time for connecting until the login is done, then by the deadline of each request. Used by
`partition_log`, `any_broker` and `leaders`.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode

from replicator.kafka import failures
from replicator.model.errors import Incident, Unreachable, Unsupported
from replicator.wire import protocol, sasl
from replicator.wire.access import Access
from replicator.wire.protocol import Exchange
from replicator.wire.response_limits import BadResponse

Address = tuple[str, int]
Fields = Callable[[Exchange], Mapping[str, Any]]
_CHUNK_BYTES = 256 * 1024
_HANDSHAKE_BYTES_MAX = 1024 * 1024
"""Largest response before the login is done."""
_NO_ERROR = 0
_PASSED_OVER_MAX = 64
_TLS_ALERT = b"\x15\x03"
_SESSION_SHARE = 0.85
"""Of a session's lifetime, after which a new connection is made (KIP-368); the Java client logs in again then too."""


class ConnectionLost(Unreachable):
    """The broker can't be connected to, or closed the connection: another one may lead the partition by now."""


class ResponseTooLarge(Unsupported):
    """The answer is larger than what is taken. Whoever asks again must ask for less."""


class HandedOver(NamedTuple):
    """A socket on which the login is done: versions that the broker offers, by API key; finalized features of its
    cluster; the number of the last request; until when the login holds, monotonic."""

    socket: socket.socket
    offered: Mapping[int, tuple[int, int]]
    features: Mapping[str, int]
    requests: int
    expires_s: float


class Spoken(NamedTuple):
    """What a broker speaks: lowest and highest version by API key; the highest version that it knows of each feature of
    a cluster, empty where it wasn't asked or tells none."""

    apis: Mapping[int, tuple[int, int]]
    features: Mapping[str, int]


class Connection:
    """A connection that is ready for requests. Used by one thread; `close` it."""

    def __init__(
        self,
        address: Address,
        access: Access,
        client_id: str,
        *,
        deadline_s: float,
        response_bytes_max: int,
        response_setting: str = "",
        features: bool = False,
    ) -> None:
        """Connects and logs in.

        Args:
            deadline_s: by when, on the monotonic clock.
            response_bytes_max: larger responses are refused.
            response_setting: what an operator can change about that, if anything.
            features: the cluster's finalized features are asked for, too (ApiVersions 3; Kafka 2.7, KIP-584).

        Raises:
            ConnectionLost: nobody answers there, in time.
            Unreachable: the login is refused, a certificate isn't trusted, or it isn't a Kafka broker.
            Unsupported: the broker speaks no version that is known here.
        """
        self._access, self._client_id = access, client_id
        self.where = f"cluster {access.cluster!r}, broker {address[0]}:{address[1]}"
        self._response_bytes_max, self._response_setting = _HANDSHAKE_BYTES_MAX, ""
        self._requests = 0
        self.throttled_s = 0.0
        """How long the broker keeps this client's next request waiting (KIP-219)."""
        self._passed_over: dict[int, bytes] = {}
        self._partial = bytearray()  # of the next response, see `receive`
        self.received_bytes = 0
        """By `receive`, so far."""
        self._expires_s = float("inf")
        key, *versions = protocol.SPOKEN["api_versions"]
        self._offered: dict[int, tuple[int, int]] = {key: (versions[0], versions[1])}
        self._features: dict[str, int] = {}
        self._known_features: dict[str, int] = {}
        self._socket = self._connect(address, deadline_s)
        try:
            self._ask_versions(deadline_s, features=features)
            if access.mechanism:
                self._log_in(deadline_s)
        except BaseException:
            self.close()
            raise
        self._response_bytes_max, self._response_setting = response_bytes_max, response_setting

    def _ask_versions(self, deadline_s: float, *, features: bool) -> None:
        """Ask for versions. A broker that knows no version 3 of the question answers in version 0, with an error."""
        answer = self._finalized(deadline_s) if features else None
        if answer is None:
            answer = self.ask("api_versions", lambda _: {}, deadline_s, highest=0)
            self._check(answer.error_code, "ask for the versions that it speaks")
        self._features = {each.name: each.max_version_level for each in getattr(answer, "finalized_features", ())}
        self._known_features = {each.name: each.max_version for each in getattr(answer, "supported_features", ())}
        self._offered = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}

    def _finalized(self, deadline_s: float) -> Any:
        exchange = protocol.exchange("api_versions", 3)
        self._requests += 1
        fields = {"client_software_name": "eos-replicate", "client_software_version": "1"}
        request = exchange.write(self._requests, self._client_id, fields)
        try:
            self._send(len(request).to_bytes(4, "big") + request, deadline_s)
            frame = self._receive_frame("api_versions", deadline_s)
        except OSError as error:
            raise _unreachable(error, f"{self.where}: cannot ask for api_versions") from error
        if frame[4:6] == ErrorCode.unsupported_version.to_bytes(2, "big"):
            return None
        try:
            correlation_id, answer = exchange.read(frame)
        except BadResponse as error:
            raise Unreachable(f"{self.where}: answers with {error}") from error
        if correlation_id != self._requests:
            raise Unreachable(f"{self.where}: answers request {correlation_id} instead of {self._requests}")
        self._check(answer.error_code, "ask for the versions that it speaks")
        return answer

    def handed_over(self) -> HandedOver:
        """Give the socket to somebody else, who closes it; nothing else of this connection may be used after that."""
        return HandedOver(self._socket, self._offered, self._features, self._requests, self._expires_s)

    @property
    def spoken(self) -> Spoken:
        """What the broker said when the connection was made."""
        return Spoken(self._offered, self._known_features)

    @property
    def expired(self) -> bool:
        """Whether the login should be renewed, which a new connection does."""
        return time.monotonic() >= self._expires_s

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def interrupt(self) -> None:
        """Shut the connection down, from any thread: whoever waits for an answer is told that it is lost."""
        with suppress(OSError):  # it has gone already
            self._socket.shutdown(socket.SHUT_RDWR)

    def version(self, api: str, highest: int | None = None) -> int:
        """Return the version of `api` that both sides speak, `highest` at most. Raises Unsupported."""
        return protocol.common_version(api, self._offered, self.where, highest)

    def ask(self, api: str, fields: Fields, deadline_s: float, *, highest: int | None = None) -> Any:
        """Send one request and wait for its response.

        Args:
            api: a name of `protocol.SPOKEN`.
            fields: makes the request's fields, for the version that it is given.
            deadline_s: by when, on the monotonic clock. A broker that throttles this client (KIP-219) is given that
                time besides.
            highest: version of the request at most.

        Raises:
            ConnectionLost: the broker closed the connection, or didn't answer in time.
            Unreachable: what it answered isn't Kafka's protocol.
            Unsupported: it doesn't speak a version that is known here. ResponseTooLarge.

        After an error only `close` may follow.
        """
        exchange = protocol.exchange(api, self.version(api, highest))
        self._requests += 1
        request = exchange.write(self._requests, self._client_id, fields(exchange))
        deadline_s += self.throttled_s
        try:
            self._send(len(request).to_bytes(4, "big") + request, deadline_s)
            frame = self._receive_frame(api, deadline_s)
        except OSError as error:
            raise _unreachable(error, f"{self.where}: cannot ask for {api}") from error
        try:
            correlation_id, answer = exchange.read(frame)
        except BadResponse as error:
            raise Unreachable(f"{self.where}: answers with {error}") from error
        if correlation_id != self._requests:
            raise Unreachable(f"{self.where}: answers request {correlation_id} instead of {self._requests}")
        self.throttled_s = getattr(answer, "throttle_time", timedelta()).total_seconds()
        return answer

    def send(self, request: bytes, deadline_s: float) -> int:
        """Send a request whose response `receive` takes later; its number.

        `request`: as `Exchange.write` makes it, with any correlation id. Raises ConnectionLost.
        """
        self._requests += 1
        numbered = request[:4] + self._requests.to_bytes(4, "big") + request[8:]
        try:
            self._send(len(numbered).to_bytes(4, "big") + numbered, deadline_s)
        except OSError as error:
            raise _unreachable(error, f"{self.where}: cannot ask") from error
        return self._requests

    def receive(self, number: int, deadline_s: float) -> bytes | None:
        """Return the response to a request that `send` numbered so, behind its correlation id; None while it hasn't
        come.

        Responses come in the order of the requests. Of those that are passed over, because their requests are waited
        for later or not at all, the last few are kept. Raises as `ask`.
        """
        while number not in self._passed_over:
            frame = self._frame(deadline_s)
            if frame is None:
                return None
            correlation_id = int.from_bytes(frame[:4], "big", signed=True)
            if not 0 < correlation_id <= number:
                raise Unreachable(f"{self.where}: answers request {correlation_id} instead of {number}")
            self._passed_over[correlation_id] = frame[4:]
            if len(self._passed_over) > _PASSED_OVER_MAX:
                del self._passed_over[next(iter(self._passed_over))]
        return self._passed_over.pop(number)

    def _frame(self, deadline_s: float) -> bytes | None:
        """Return the next response; what has come of it is kept where it isn't complete by then."""
        while True:
            if len(self._partial) >= 4:
                end = 4 + self._frame_size(bytes(self._partial[:4]), "this question")
                if len(self._partial) >= end:
                    frame = bytes(self._partial[4:end])
                    del self._partial[:end]
                    return frame
            try:
                self._socket.settimeout(max(deadline_s - time.monotonic(), 0.0005))
                part = self._socket.recv(_CHUNK_BYTES)
            except TimeoutError:
                return None
            except OSError as error:
                raise _unreachable(error, f"{self.where}: no answer") from error
            if not part:
                raise ConnectionLost(f"{self.where}: the broker closed the connection")
            self._partial += part
            self.received_bytes += len(part)

    def _connect(self, address: Address, deadline_s: float) -> socket.socket:
        try:
            raw = _tcp(address, deadline_s)
        except OSError as error:
            raise _unreachable(error, f"{self.where}: cannot connect") from error
        if self._access.tls is None:
            return raw
        try:
            raw.settimeout(_left_s(deadline_s))
            return self._access.tls.wrap_socket(raw, server_hostname=address[0])
        except (OSError, ValueError) as error:
            raw.close()
            raise _unreachable(error, f"{self.where}: no TLS connection") from error

    def _log_in(self, deadline_s: float) -> None:
        access = self._access
        answer = self.ask("sasl_handshake", lambda _: {"mechanism": access.mechanism}, deadline_s)
        known = f"{access.mechanism} isn't among the mechanisms of this listener: {', '.join(answer.mechanisms)}"
        self._check(answer.error_code, "log in", known)
        if access.tokens is not None:
            tokens = sasl.show_token(access.tokens.first_message())
        else:
            tokens = sasl.login(access.mechanism, access.username, access.password)
        try:
            said = next(tokens)
            while True:
                fields = {"auth_bytes": said}
                answer = self.ask("sasl_authenticate", lambda _, fields=fields: fields, deadline_s)  # type: ignore[misc]
                self._check(answer.error_code, "log in", answer.error_message or "")
                said = tokens.send(answer.auth_bytes)
        except StopIteration:
            lifetime = getattr(answer, "session_lifetime", timedelta())
            if lifetime:
                self._expires_s = time.monotonic() + _SESSION_SHARE * lifetime.total_seconds()
        except sasl.BadLogin as error:
            self._token_refused()
            raise Unreachable(f"{self.where}: cannot log in with {access.mechanism}: {error}") from error
        except Unreachable as error:
            if not isinstance(error, ConnectionLost):
                self._token_refused()
            raise
        finally:
            tokens.close()

    def _token_refused(self) -> None:
        if self._access.tokens is not None:
            self._access.tokens.refused()

    def _check(self, code: int, doing: str, said: str = "") -> None:
        if code != _NO_ERROR:
            error = failures.classify_code(int(code), self._access.cluster, doing, said=said)
            raise Unreachable(f"{self.where}: {error.detail}") if isinstance(error, Incident) else error

    def _send(self, data: bytes, deadline_s: float) -> None:
        self._socket.settimeout(_left_s(deadline_s))
        self._socket.sendall(data)

    def _receive_frame(self, api: str, deadline_s: float) -> bytes:
        return self._receive(self._frame_size(self._receive(4, deadline_s), api), deadline_s)

    def _frame_size(self, prefix: bytes, api: str) -> int:
        if prefix[:2] == _TLS_ALERT:
            raise Unreachable(f"{self.where}: it wants TLS (security.protocol: SSL or SASL_SSL)")
        size = int.from_bytes(prefix, "big", signed=True)
        if size < 0:
            raise Unreachable(f"{self.where}: answers with a frame of {size} bytes")
        if size > self._response_bytes_max:
            allowed = (
                f"{self._response_setting} allows" if self._response_setting else "it takes, as this program asks,"
            )
            raise ResponseTooLarge(
                f"{self.where}: answers {api} with {size} bytes; {allowed} {self._response_bytes_max} at most"
            )
        return size

    def _receive(self, size: int, deadline_s: float) -> bytes:
        """Receive so many bytes. Memory is taken as they come, not as they are announced."""
        parts = list[bytes]()
        while size:
            self._socket.settimeout(_left_s(deadline_s))
            part = self._socket.recv(min(size, _CHUNK_BYTES))
            if not part:
                raise ConnectionResetError("the broker closed the connection")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)


def address_of(text: str) -> Address:
    """Return host and port of an item of bootstrap.servers."""
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)


def _tcp(address: Address, deadline_s: float) -> socket.socket:
    """Connect to the first address of a host that answers; each is given its share of the time."""
    try:
        found = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)
    except ValueError as error:  # what no host is called: an empty label, one that is too long
        raise OSError(f"{address[0]!r} is no host name") from error
    for number, (family, kind, proto, _, target) in enumerate(found):
        made = socket.socket(family, kind, proto)
        try:
            made.settimeout(_left_s(deadline_s) / (len(found) - number))
            made.connect(target)
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return made
        except OSError:
            made.close()
            if number == len(found) - 1:
                raise
    raise OSError(f"{address[0]} has no address")


def _left_s(deadline_s: float) -> float:
    left_s = deadline_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError("no answer in time")
    return left_s


def _unreachable(error: Exception, what: str) -> Unreachable:
    """Say what a socket's error means. TLS that isn't agreed upon, a certificate above all, will not be later
    either.
    """
    refused = isinstance(error, ssl.SSLError | ValueError) and not isinstance(error, ssl.SSLEOFError)
    if isinstance(error, socket.gaierror):
        what += ": Failed to resolve its name"
    return (Unreachable if refused else ConnectionLost)(f"{what}: {str(error) or type(error).__name__}")
