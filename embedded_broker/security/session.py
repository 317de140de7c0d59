"""The session of a connection: its principal, and which requests it may make before and after authentication. No I/O.

Each `Connection` has one.

Invariants
- Without SASL a connection is `READY` at once, as User:ANONYMOUS or the principal of its certificate.
- With SASL it is `READY` only after a successful exchange; until then only the APIs of `BEFORE` are allowed.
- After a failed exchange no request is accepted: the response is sent, and the connection closed.
- After the end of a session's lifetime (KIP-368) only the SaslHandshake of a new login is accepted; it must use the
  same mechanism and authenticate the same principal, and comes at most once a second.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from typing import Protocol

from embedded_broker.config.listeners import Endpoint

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
ANONYMOUS = "User:ANONYMOUS"
SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE = 17, 18, 36

AGAIN_INTERVAL_S = 1.0
"""`KafkaChannel.MIN_REAUTH_INTERVAL_ONE_SECOND_NANOS`."""
LOGIN = frozenset({SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE})
"""What comes before a client does anything."""


class State(Enum):
    """Of `SaslServerAuthenticator`."""

    INITIAL = "before its login"
    VERSIONS_GIVEN = "between ApiVersions and SaslHandshake"
    EXCHANGE = "while it logs in"
    READY = "logged in"
    OTHER_MECHANISM = "after asking for another mechanism than it had logged in by"
    FAILED = "after its login failed"


BEFORE: Mapping[State, frozenset[int]] = {
    State.INITIAL: frozenset({SASL_HANDSHAKE, API_VERSIONS}),
    State.VERSIONS_GIVEN: frozenset({SASL_HANDSHAKE}),
    State.EXCHANGE: frozenset({SASL_AUTHENTICATE}),
    State.OTHER_MECHANISM: frozenset(),
    State.FAILED: frozenset(),
}
"""The API keys that may come in a state. In READY: all."""


class LoginFailed(Exception):
    """The exchange has failed; the text is for the client, and says no more than it may know."""


class Exchange(Protocol):
    """One SASL exchange."""

    principal: str | None
    """Whose it is, once it is complete: `User:name`."""
    lifetime_ms: int | None
    """For how long it holds by itself, once it is complete; None: it has no end."""

    def step(self, token: bytes) -> bytes:
        """Return the answer to the client's token. Raises LoginFailed."""


class ClientSession:
    """Of one connection."""

    def __init__(self, endpoint: Endpoint, client_host: str, client_port: int, lifetime_ms: int = 0) -> None:
        """`lifetime_ms`: of a login at most; 0: it ends only by itself."""
        self.endpoint, self._lifetime_ms_max = endpoint, lifetime_ms
        self._lifetime_ms = 0
        self._mechanism, self._expires_s, self._again_s = "", float("inf"), float("-inf")
        self._has_headers = True
        self.client_host, self.client_port = client_host, client_port
        self.principal = ANONYMOUS
        self.client_id = ""
        self.software = ""
        """Name and version, from ApiVersions (KIP-511)."""
        self.state = State.INITIAL if endpoint.listener.protocol.is_sasl else State.READY
        self.exchange: Exchange | None = None
        self.failure = ""
        """Why the login failed."""
        self.is_announced = False
        """Whether the log says that it is here."""

    @property
    def is_ready(self) -> bool:
        """Whether any request may come."""
        return self.state is State.READY

    @property
    def takes_tokens(self) -> bool:
        """Whether bare tokens come instead of requests (SaslHandshake 0)."""
        return self.state is State.EXCHANGE and not self._has_headers

    @property
    def is_again(self) -> bool:
        """Whether there was a login on this connection."""
        return self._mechanism != ""

    @property
    def lifetime_ms(self) -> int:
        """Session lifetime in the response to a successful login; 0: it doesn't expire."""
        return self._lifetime_ms if self.is_ready else 0

    def admits(self, key: int) -> bool:
        """Return whether an API may be called now."""
        return self.state is State.READY or key in BEFORE[self.state]

    def is_over(self, now_s: float) -> bool:
        """Return whether the session has ended: only a new login may come."""
        return now_s > self._expires_s

    def may_begin(self, now_s: float) -> bool:
        """Return whether a login may begin, the first or, in a session that has an end, another."""
        if not self.is_ready:
            return True
        return self._expires_s != float("inf") and now_s - self._again_s >= AGAIN_INTERVAL_S

    def introduce(self, name: str, version: str) -> bool:
        """Take in what software the client says it is; False when that is no proper name (`ApiVersionsRequest`)."""
        if not (_SOFTWARE.fullmatch(name) and _SOFTWARE.fullmatch(version)):
            return False
        self.software = f"{name[:100]} {version[:100]}"
        return True

    def versions_given(self) -> None:
        """Note that ApiVersions was answered without an error."""
        if self.state is State.INITIAL:
            self.state = State.VERSIONS_GIVEN

    def begin(self, mechanism: str, exchange: Exchange, now_s: float, *, has_headers: bool = True) -> None:
        """Begin the exchange, of which SaslHandshake has named the mechanism; `has_headers`: tokens come in
        SaslAuthenticate requests.
        """
        if self.is_again:
            self._again_s = now_s
        if self._mechanism not in ("", mechanism):
            self.state = State.OTHER_MECHANISM
            return
        self._mechanism, self._has_headers = mechanism, has_headers
        self.exchange, self.state = exchange, State.EXCHANGE

    def step(self, token: bytes, now_s: float) -> bytes:
        """Take one token of the exchange. Raises LoginFailed, after which the connection ends."""
        assert self.exchange is not None
        try:
            answer = self.exchange.step(token)
            if self.exchange.principal is not None:
                self._complete(self.exchange.principal, self.exchange.lifetime_ms, now_s)
        except LoginFailed as failed:
            self.fail(str(failed))
            raise
        return answer

    def _complete(self, principal: str, lifetime_ms: int | None, now_s: float) -> None:
        """Complete the login; the shorter of both lifetimes counts (`SaslServerAuthenticator.ReauthInfo`)."""
        if self.principal not in (ANONYMOUS, principal):
            names = f"{self.principal.replace(':', '.', 1)}: {principal.replace(':', '.', 1)}"
            raise LoginFailed(f"Cannot change principals during re-authentication from {names}")
        self.principal, self.state, self.exchange = principal, State.READY, None
        ends = [each for each in (lifetime_ms, self._lifetime_ms_max or None) if each is not None]
        if ends:
            self._lifetime_ms = max(0, min(ends))
            self._expires_s = now_s + self._lifetime_ms / 1000

    def fail(self, why: str) -> None:
        """Fail the login: there is none here any more."""
        self.state, self.failure, self.exchange = State.FAILED, why, None

    def __str__(self) -> str:
        host = f"[{self.client_host}]" if ":" in self.client_host else self.client_host
        return f"{host}:{self.client_port}"

    def describe(self) -> str:
        """Describe the session for the log: client id, software, principal, listener."""
        software = f" ({self.software})" if self.software else ""
        protocol = self.endpoint.listener.protocol
        return f"client {self.client_id[:100]!r}{software}, {self.principal}, {protocol} on {self.endpoint}"
