"""What a connection goes through before its client is known: TLS handshake and login, with small limits and deadlines.

Each `Connection` has one `LoginPhase`.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable

from embedded_broker.config.listeners import Protocol
from embedded_broker.config.settings import BrokerConfig
from embedded_broker.net.deadline import Deadline
from embedded_broker.security.session import ClientSession
from embedded_broker.security.subject import principal_name
from embedded_broker.security.tls import TlsStream


class LoginPhase:
    """Of one connection. Where nobody logs in it is over at once; then only the first request has a deadline."""

    def __init__(self, config: BrokerConfig, context: ssl.SSLContext | None) -> None:
        """`context`: TLS is spoken here."""
        self._config = config
        self.tls = None if context is None else TlsStream(context)
        self.is_over = False
        """Whether the client is known."""
        self._turn = Deadline("")
        self._handshake = Deadline("the TLS handshake took too long")
        self._login = Deadline("the login took too long")
        self._first = Deadline("no request came")
        self._session: ClientSession

    @property
    def awaits_turn(self) -> bool:
        """Whether nothing is read yet."""
        return self._turn.runs

    def await_turn(self, wait_s: float, then: Callable[[str], object]) -> None:
        """Wait for the turn: until then nothing is read."""
        self._turn.begin(wait_s, then)

    def begin(self, session: ClientSession, close: Callable[[str], object]) -> None:
        """Begin the login; `close` is called with the reason when something took too long."""
        self._turn.cancel()
        self._session = session
        if self.is_done(close):
            return
        self._login.begin(self._config.login_deadline_ms / 1000, close)
        if self.tls is not None:
            self._handshake.begin(self._config.handshake_deadline_ms / 1000, close)

    @property
    def frame_bytes_max(self) -> int:
        """Of a request now."""
        return self._config.frame_bytes_max if self.is_over else self._config.login_frame_bytes_max

    @property
    def requests_pending_max(self) -> int:
        """How many may wait now."""
        return self._config.requests_pending_max if self.is_over else self._config.login_requests_pending_max

    def decrypt(self, data: memoryview, write: Callable[[bytes], object]) -> bytes | memoryview:
        """Return the plain text of what has come; `write` gets what TLS answers. Raises ssl.SSLError."""
        if self.tls is None:
            return data
        before = self.tls.is_established
        plain = self.tls.receive(data)
        if out := self.tls.take():
            write(out)
        if self.tls.is_established and not before:
            self._handshake.cancel()
            certificate = self.tls.client_certificate()
            if certificate is not None and self._session.endpoint.listener.protocol is Protocol.SSL:
                self._session.principal = f"User:{principal_name(certificate)}"
        return plain

    def is_done(self, close: Callable[[str], object]) -> bool:
        """Return whether the client has become known just now; `close` as for `begin`, and not held when no deadline
        runs.
        """
        if self.is_over or not self._session.is_ready or (self.tls is not None and not self.tls.is_established):
            return False
        self.is_over = True
        self._login.cancel()
        if not self._session.endpoint.listener.protocol.is_sasl:
            self._first.begin(self._config.first_request_deadline_ms / 1000, close)
        return True

    def request_came(self) -> None:
        """Note that a whole request came."""
        self._first.cancel()

    def cancel(self) -> None:
        """Cancel all deadlines."""
        for deadline in (self._turn, self._handshake, self._login, self._first):
            deadline.cancel()
