"""Who is at the other end of a connection, and what they may send before that is known. No I/O.

Invariants
- Without SASL a connection is `READY` at once, as User:ANONYMOUS or whom its certificate names.
- With SASL it is `READY` only after an exchange that ended well; until then `BEFORE` says what may come.
- After a failed exchange nothing is taken any more: the answer is sent, and the connection closed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from typing import Protocol

from embedded_broker.security.listeners import Endpoint

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
ANONYMOUS = "User:ANONYMOUS"
SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE = 17, 18, 36

LOGIN = frozenset({SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE})
"""What comes before a client does anything."""


class State(Enum):
    """Of `SaslServerAuthenticator`, as far as re-authentication isn't offered."""

    INITIAL = "before its login"
    VERSIONS_GIVEN = "between ApiVersions and SaslHandshake"
    EXCHANGE = "while it logs in"
    READY = "logged in"
    FAILED = "after its login failed"


BEFORE: Mapping[State, frozenset[int]] = {
    State.INITIAL: frozenset({SASL_HANDSHAKE, API_VERSIONS}),
    State.VERSIONS_GIVEN: frozenset({SASL_HANDSHAKE}),
    State.EXCHANGE: frozenset({SASL_AUTHENTICATE}),
    State.FAILED: frozenset(),
}
"""The API keys that may come in a state. In READY: all."""


class LoginFailed(Exception):
    """The exchange has failed; the text is for the client, and says no more than it may know."""


class Exchange(Protocol):
    """One SASL exchange."""

    principal: str | None
    """Whose it is, once it is complete: `User:name`."""

    def step(self, token: bytes) -> bytes:
        """The answer to the client's token. Raises LoginFailed."""


class Session:
    """Of one connection."""

    def __init__(self, endpoint: Endpoint, client_host: str, client_port: int) -> None:
        self.endpoint = endpoint
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

    def admits(self, key: int) -> bool:
        """Whether an API may be called now."""
        return self.state is State.READY or key in BEFORE[self.state]

    def introduce(self, name: str, version: str) -> bool:
        """Take in what software the client says it is; False when that is no proper name (`ApiVersionsRequest`)."""
        if not (_SOFTWARE.fullmatch(name) and _SOFTWARE.fullmatch(version)):
            return False
        self.software = f"{name[:100]} {version[:100]}"
        return True

    def versions_given(self) -> None:
        """ApiVersions was answered without an error."""
        if self.state is State.INITIAL:
            self.state = State.VERSIONS_GIVEN

    def begin(self, exchange: Exchange) -> None:
        """SaslHandshake has named a mechanism."""
        self.exchange, self.state = exchange, State.EXCHANGE

    def step(self, token: bytes) -> bytes:
        """One token of the exchange. Raises LoginFailed, after which the connection ends."""
        assert self.exchange is not None
        try:
            answer = self.exchange.step(token)
        except LoginFailed as failed:
            self.fail(str(failed))
            raise
        if self.exchange.principal is not None:
            self.principal, self.state, self.exchange = self.exchange.principal, State.READY, None
        return answer

    def fail(self, why: str) -> None:
        """No login here any more."""
        self.state, self.failure, self.exchange = State.FAILED, why, None

    def __str__(self) -> str:
        host = f"[{self.client_host}]" if ":" in self.client_host else self.client_host
        return f"{host}:{self.client_port}"

    def describe(self) -> str:
        """For the log: client id, software, principal, listener."""
        software = f" ({self.software})" if self.software else ""
        protocol = self.endpoint.listener.protocol
        return f"client {self.client_id[:100]!r}{software}, {self.principal}, {protocol} on {self.endpoint}"
