"""OAUTHBEARER (RFC 7628): a client shows a token, a JWT, that says who it is and until when.

Tokens are signed by a key of a JWKS file, or, for tests, not at all (`alg: none`), as Kafka's own default for this
mechanism. PyJWT checks signatures; it is imported when the mechanism is offered (the extra `oauth`).
Source: OAuthBearerSaslServer, OAuthBearerClientInitialResponse, OAuthBearerUnsecuredValidatorCallbackHandler.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from embedded_broker.security.session import LoginFailed

if TYPE_CHECKING:
    from embedded_broker.config.listeners import OAuth

RSA = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})
ALGORITHMS: Mapping[tuple[str, str | None], frozenset[str]] = {
    ("RSA", None): RSA,
    ("EC", "P-256"): frozenset({"ES256"}),
    ("EC", "P-384"): frozenset({"ES384"}),
    ("EC", "P-521"): frozenset({"ES512"}),
    ("OKP", "Ed25519"): frozenset({"EdDSA"}),
}
"""Type and curve of a public key → the algorithms by which it checks signatures. A token can't choose another one, such
as that of a shared secret, for which a public key would be the secret. A key that names its algorithm has only that."""
_FIRST = re.compile(
    r"n,(?:a=(?P<acting_as>(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+))?,"
    r"\x01(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01"
)
_BEARER = re.compile(r"[Bb]earer +(?P<token>[-_~+/.a-zA-Z0-9]+=*)")


class TokenRejected(Exception):
    """A token that says nothing that can be relied on; the text says why, for the broker's log only."""


class Shown(NamedTuple):
    """What a token says: a principal's name, and until when."""

    name: str
    expires_ms: int


class Tokens(Protocol):
    """Checks tokens."""

    def check(self, token: str) -> Shown:
        """Check a token, and return what it says. Raises TokenRejected."""


def tokens(settings: OAuth, now_ms: Callable[[], int]) -> Tokens:
    """Make the check that the settings ask for. Raises ImportError without PyJWT, OSError or ValueError for a key file
    that can't be read."""
    return Unsecured(now_ms) if settings.jwks_file is None else Signed(settings, now_ms)


class Unsecured:
    """Tokens that anybody can write."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        import jwt

        self._jwt, self._now_ms = jwt, now_ms

    def check(self, token: str) -> Shown:
        """See `Tokens`."""
        try:
            found = self._jwt.decode_complete(token, options={"verify_signature": False})
        except self._jwt.PyJWTError as error:
            raise TokenRejected(str(error)) from error
        if str(found["header"].get("alg")).lower() != "none" or found["signature"]:
            raise TokenRejected("the token is signed, and there is no key to check it with")
        return _shown(found["payload"], self._now_ms())


class _Key(NamedTuple):
    """A public key as it stands in the file, and what it may be used for."""

    jwk: dict[str, Any]
    algorithms: frozenset[str]


class Signed:
    """Tokens signed by a key of a file, which is read again when it has changed."""

    def __init__(self, settings: OAuth, now_ms: Callable[[], int]) -> None:
        import jwt

        self._jwt, self._settings, self._now_ms = jwt, settings, now_ms
        self._changed_ns = 0
        self._keys: list[_Key] = []
        self._read()

    def check(self, token: str) -> Shown:
        """See `Tokens`."""
        try:
            self._read()
            header = self._jwt.get_unverified_header(token)
            algorithm = str(header.get("alg"))
            payload = self._jwt.decode(
                token,
                self._jwt.PyJWK(self._key(header, algorithm).jwk, algorithm),
                algorithms=[algorithm],
                audience=self._settings.audience,
                issuer=self._settings.issuer,
                # Times are checked below, by the broker's clock.
                options={
                    "verify_exp": False,
                    "verify_nbf": False,
                    "verify_iat": False,
                    "verify_aud": self._settings.audience is not None,
                },
            )
        except (self._jwt.PyJWTError, OSError, ValueError) as error:
            raise TokenRejected(str(error)) from error
        return _shown(payload, self._now_ms())

    def _read(self) -> None:
        path = self._settings.jwks_file
        assert path is not None
        changed_ns = path.stat().st_mtime_ns
        if changed_ns == self._changed_ns:
            return
        content = json.loads(path.read_bytes())
        listed = content.get("keys") if isinstance(content, dict) else None
        if not isinstance(listed, list):
            raise ValueError(f"{path} is no JWKS: no object with keys")
        keys = [found for jwk in listed if isinstance(jwk, dict) and (found := self._usable(jwk)) is not None]
        if not keys:
            raise ValueError(f"{path} is no JWKS: none of its keys can check signatures")
        self._keys = keys
        self._changed_ns = changed_ns

    def _usable(self, jwk: Mapping[str, Any]) -> _Key | None:
        """Return a key that can check signatures; None for others, which may stand in the file, too."""
        kind, curve = jwk.get("kty"), jwk.get("crv")
        algorithms = ALGORITHMS.get((str(kind), None if kind == "RSA" else str(curve)), frozenset())
        if "alg" in jwk:
            algorithms &= {str(jwk["alg"])}
        if not algorithms or jwk.get("use", "sig") != "sig":
            return None
        try:
            self._jwt.PyJWK(dict(jwk), min(algorithms))
        except self._jwt.PyJWTError:
            return None
        return _Key(dict(jwk), algorithms)

    def _key(self, header: Mapping[str, Any], algorithm: str) -> _Key:
        """Find the key that a token names; if it names none, the only one that has its algorithm.

        Source: VerificationJwkSelector of jose4j, which Kafka uses.
        """
        named = [
            key
            for key in self._keys
            if algorithm in key.algorithms and ("kid" not in header or key.jwk.get("kid") == header["kid"])
        ]
        if len(named) != 1:
            raise TokenRejected(f"{len(named)} keys for {algorithm} are named {header.get('kid')!r}")
        return named[0]


def _shown(claims: Mapping[str, Any], now_ms: int) -> Shown:
    """Check claims as OAuthBearerUnsecuredValidatorCallbackHandler does: a subject and an end are needed, without any
    tolerance.
    """
    name = claims.get("sub")
    if not isinstance(name, str) or not name:
        raise TokenRejected("the token has no subject (sub)")
    if any("\ud800" <= char <= "\udfff" for char in name):  # as JSON may escape them
        raise TokenRejected("the token's subject (sub) is no text")
    expires_ms, begins_ms = _ms(claims, "exp"), _ms(claims, "nbf")
    if expires_ms is None or expires_ms <= now_ms:
        raise TokenRejected("the token has expired, or never does (exp)")
    for at_ms in (begins_ms, _ms(claims, "iat")):
        if at_ms is not None and at_ms > now_ms:
            raise TokenRejected("the token is of a time to come (iat, nbf)")
    return Shown(name, expires_ms)


def _ms(claims: Mapping[str, Any], name: str) -> int | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
        raise TokenRejected(f"{name} is no time")
    return int(value * 1000)


class OAuthExchange:
    """One token from the client. A refusal is told in JSON, and fails the login when the client has taken note."""

    def __init__(self, checks: Tokens, now_ms: Callable[[], int]) -> None:
        self._checks, self._now_ms = checks, now_ms
        self._refusal = ""
        self.principal: str | None = None
        self.lifetime_ms: int | None = None

    def step(self, token: bytes) -> bytes:
        """See `session.Exchange`."""
        if self._refusal:
            raise LoginFailed(self._refusal)
        first = _FIRST.fullmatch(token.decode(errors="replace"))
        pairs = dict(pair.split("=", 1) for pair in first["pairs"].split("\x01") if pair) if first is not None else {}
        bearer = _BEARER.fullmatch(pairs.get("auth", ""))
        if first is None or bearer is None:
            raise LoginFailed("Invalid OAUTHBEARER client first message")
        try:
            shown = self._checks.check(bearer["token"])
        except TokenRejected:
            self._refusal = json.dumps({"status": "invalid_token"}, separators=(",", ":"))
            return self._refusal.encode()
        acting_as = (first["acting_as"] or "").replace("=2C", ",").replace("=3D", "=")
        if acting_as not in ("", shown.name):
            raise LoginFailed(
                f"Authentication failed: Client requested an authorization id ({acting_as}) that is different from the "
                f"token's principal name ({shown.name})"
            )
        self.principal, self.lifetime_ms = f"User:{shown.name}", shown.expires_ms - self._now_ms()
        return b""
