"""The SASL mechanisms: PLAIN and SCRAM, and OAUTHBEARER from `oauth`. Sans-I/O: tokens in, tokens out.

What a failure says is what Kafka says (PlainSaslServer, ScramSaslServer, SaslServerAuthenticator): nothing that tells
whether a user exists.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from embedded_broker.security.session import LoginFailed

if TYPE_CHECKING:
    from embedded_broker.security.credentials import ScramCredential
    from embedded_broker.security.users import Users

PLAIN = "PLAIN"


class PlainExchange:
    """RFC 4616: one token, `authorization id NUL name NUL password`."""

    def __init__(self, users: Users) -> None:
        self._users = users
        self.principal: str | None = None
        self.lifetime_ms: int | None = None

    def step(self, token: bytes) -> bytes:
        """See `session.Exchange`."""
        parts = token.decode(errors="replace").split("\0")
        if len(parts) != 3:
            raise LoginFailed(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
        acting_as, name, password = parts
        if not name:
            raise LoginFailed("Authentication failed: username not specified")
        if not password:
            raise LoginFailed("Authentication failed: password not specified")
        if not self._users.knows(name, password):
            raise LoginFailed("Authentication failed: Invalid username or password")
        if acting_as not in ("", name):
            raise LoginFailed(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self.principal = f"User:{name}"
        return b""


class ScramExchange:
    """RFC 5802 over scramp, which compares keys in constant time."""

    def __init__(self, mechanism: str, find: Callable[[str], ScramCredential | None], again: bool = False) -> None:
        """`find` gives a user's credential of this mechanism; `again`: it isn't the connection's first login."""
        from scramp.core import Salt, ScramMechanism

        Salt.MIN_LENGTH = 0  # a login must work with any salt that AlterUserScramCredentials has taken, as in Kafka
        self._mechanism, self._find, self._again = mechanism, find, again
        self._server = ScramMechanism(mechanism).make_server(self._keys)
        self._name = ""
        self._begun = False
        self.principal: str | None = None
        self.lifetime_ms: int | None = None

    def _keys(self, name: str) -> tuple[bytes, bytes, bytes, int]:
        self._name = name
        credential = self._find(name)
        if credential is None:
            raise _bad_credentials(self._mechanism, self._again)
        return credential.salt, credential.stored_key, credential.server_key, credential.iterations

    def step(self, token: bytes) -> bytes:
        """See `session.Exchange`."""
        from scramp.core import ScramException

        try:
            if not self._begun:
                self._begun = True
                self._server.set_client_first(token.decode())
                return str(self._server.get_server_first()).encode()
            self._server.set_client_final(token.decode())
            answer = str(self._server.get_server_final()).encode()
        except (ScramException, UnicodeDecodeError, ValueError) as error:
            raise _bad_credentials(self._mechanism, self._again) from error
        self.principal = f"User:{self._name}"
        return answer


def _bad_credentials(mechanism: str, again: bool) -> LoginFailed:
    doing = "re-authentication" if again else "authentication"
    return LoginFailed(
        f"Authentication failed during {doing} due to invalid credentials with SASL mechanism {mechanism}"
    )
