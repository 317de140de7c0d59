"""Tokens of OAUTHBEARER logins (KIP-255, KIP-768), from the same properties as librdkafka's. Used by `access`.

With `sasl.oauthbearer.method: oidc` a token endpoint gives them for a client's id and secret (RFC 6749, section 4.4);
a cluster's `token_command` prints them; for tests they are written here, without a signature. A token is used for a
part of its life, as librdkafka does it; a new one is asked for by the next connection, which is made before the login
ends (KIP-368).
"""

from __future__ import annotations

import base64
import json
import math
import re
import ssl
import time
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from http.client import HTTPException
from typing import Any

from replicator.config import Cluster
from replicator.config.properties import is_loopback
from replicator.kafka.kept_token import KeptToken
from replicator.kafka.token_command import LIFE_S_MAX, TOKEN, kept_token, life_left_s
from replicator.model.errors import ConfigError, LocalFault, Unreachable, Unsupported
from replicator.model.printable import printable

OAUTHBEARER = "OAUTHBEARER"
UNDERSTOOD = frozenset(
    {
        *(f"sasl.oauthbearer.{name}" for name in ("method", "client.id", "client.secret", "scope", "extensions")),
        *("sasl.oauthbearer.token.endpoint.url", "sasl.oauthbearer.grant.type", "sasl.oauthbearer.config"),
        *("enable.sasl.oauthbearer.unsecure.jwt", "https.ca.location"),
    }
)
ENDPOINT_S = 10.0
"""How long a token endpoint is waited for."""
_ANSWER_BYTES_MAX, _TOLD_MAX = 1024 * 1024, 300
_EXTENSION = re.compile(r"[a-zA-Z]+=[\x21-\x7e \t\r\n]+")
_TRUE = ("true", "t", "1", "yes", "on")
_UNSECURED = {
    "principal": "",
    "principalClaimName": "sub",
    "scope": "",
    "scopeClaimName": "scope",
    "lifeSeconds": "3600",
}


@dataclass(frozen=True, slots=True)
class TokenSettings:
    """Where tokens come from: an endpoint (`url`), or `claims` that nobody signs. `extensions`: said with each."""

    cluster: str
    url: str = ""
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    scope: str = ""
    ca_location: str = ""
    claims: tuple[tuple[str, str], ...] = ()
    life_s: int = 0
    extensions: tuple[str, ...] = ()


class TokenSource:
    """The tokens of one cluster, for all connections of the process. May be used by any thread."""

    def __init__(self, settings: TokenSettings, kept: KeptToken | None = None) -> None:
        """`kept`: the tokens, where they come from elsewhere."""
        self._settings = settings
        self._kept = kept or KeptToken(lambda: _asked(settings) if settings.url else _unsigned(settings))

    def first_message(self) -> bytes:
        """Return what a client says first (RFC 7628). Raises Unreachable: there is no token."""
        said = [f"auth=Bearer {self.token()}", *self._settings.extensions]
        return ("n,,\x01" + "".join(f"{each}\x01" for each in said) + "\x01").encode()

    def token(self) -> str:
        """Return a token that is valid for a while. Raises Unreachable."""
        return self._kept.token()

    def refused(self) -> None:
        """Take note that a broker doesn't take the token."""
        self._kept.refused()


def token_source(cluster: Cluster) -> TokenSource:
    """Return the process's source of a cluster's tokens. Raises as `token_settings`."""
    given = cluster.properties
    if cluster.token_command:
        return TokenSource(
            TokenSettings(cluster.name, extensions=_extensions(cluster.name, given)), kept_token(cluster)
        )
    return _source_of(token_settings(cluster.name, given, plaintext_allowed=cluster.allow_plaintext_password))


@lru_cache(maxsize=64)
def _source_of(settings: TokenSettings) -> TokenSource:
    return TokenSource(settings)


def token_settings(cluster: str, given: Mapping[str, str], *, plaintext_allowed: bool) -> TokenSettings:
    """Read a cluster's properties. `plaintext_allowed`: secrets may go over http.

    Raises Unsupported for what librdkafka can do besides; ConfigError.
    """
    unknown = sorted(key for key in given if key.startswith(("sasl.oauthbearer.", "https.")) and key not in UNDERSTOOD)
    if unknown:
        raise _unsupported(cluster, ", ".join(unknown))
    extensions = _extensions(cluster, given)
    if given.get("sasl.oauthbearer.method", "default").lower() != "oidc":
        return _unsecured_settings(cluster, given, extensions)
    if (grant := given.get("sasl.oauthbearer.grant.type", "client_credentials").lower()) != "client_credentials":
        raise _unsupported(cluster, f"sasl.oauthbearer.grant.type {grant}; known is client_credentials")
    url, prefix = given.get("sasl.oauthbearer.token.endpoint.url", ""), "sasl.oauthbearer.client."
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise _wrong(cluster, "sasl.oauthbearer.token.endpoint.url", "expected an address that begins with https://")
    if parts.scheme == "http" and not plaintext_allowed and not is_loopback(f"{parts.hostname}:0"):
        raise _wrong(cluster, "sasl.oauthbearer.token.endpoint.url", "http sends the secret readably; use https")
    for name in ("id", "secret"):
        if not given.get(prefix + name):
            raise _wrong(cluster, prefix + name, "it is missing")
    return TokenSettings(
        cluster, url, given[prefix + "id"], given[prefix + "secret"], given.get("sasl.oauthbearer.scope", ""),
        given.get("https.ca.location", ""), extensions=extensions,
    )  # fmt: skip


def _extensions(cluster: str, given: Mapping[str, str]) -> tuple[str, ...]:
    found = tuple(each for each in given.get("sasl.oauthbearer.extensions", "").split(",") if each)
    if not all(_EXTENSION.fullmatch(each) for each in found):
        raise _wrong(cluster, "sasl.oauthbearer.extensions", "expected name=value, separated by commas")
    return found


def _unsecured_settings(cluster: str, given: Mapping[str, str], extensions: tuple[str, ...]) -> TokenSettings:
    """Read `sasl.oauthbearer.config`, as librdkafka has it."""
    if given.get("enable.sasl.oauthbearer.unsecure.jwt", "false").lower() not in _TRUE:
        raise _unsupported(cluster, "OAUTHBEARER, unless sasl.oauthbearer.method is oidc or there is a token_command")
    said = dict(item.partition("=")[::2] for item in given.get("sasl.oauthbearer.config", "").split())
    unknown = sorted(name for name in said if name not in _UNSECURED and not name.startswith("extension_"))
    values = _UNSECURED | said
    if unknown or not values["principal"] or not values["lifeSeconds"].isdecimal():
        raise _wrong(cluster, "sasl.oauthbearer.config", f"expected principal=NAME and {', '.join(_UNSECURED)}")
    claims = [(values["principalClaimName"], values["principal"])]
    claims += [(values["scopeClaimName"], values["scope"])] if values["scope"] else []
    more = [f"{name.removeprefix('extension_')}={said[name]}" for name in said if name.startswith("extension_")]
    return TokenSettings(
        cluster, claims=tuple(claims), life_s=int(values["lifeSeconds"]), extensions=(*extensions, *more)
    )


def _unsupported(cluster: str, what: str) -> Unsupported:
    return Unsupported(f"cluster {cluster!r}: its logs can't be read batch by batch with {what}")


def _wrong(cluster: str, key: str, why: str) -> ConfigError:
    return ConfigError(f"clusters.{cluster}.properties.{key}: {why}")


def _unsigned(settings: TokenSettings) -> tuple[str, float]:
    now_s = time.time()
    claims: dict[str, Any] = {"iat": now_s, "exp": now_s + settings.life_s, **dict(settings.claims)}
    if "scope" in claims:
        claims["scope"] = claims["scope"].split(",")
    return f"{_part({'alg': 'none'})}.{_part(claims)}.", settings.life_s


def _part(fields: Mapping[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(fields).encode()).decode().rstrip("=")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """The secret is for the endpoint that the file names, and for no other."""

    def redirect_request(self, *_: Any) -> None:
        """See the base class: None follows no redirect."""
        return


def _asked(settings: TokenSettings) -> tuple[str, float]:
    """Ask the endpoint for a token; return it, and for how long it is valid; 0: it doesn't say."""
    where = f"cluster {settings.cluster!r}: token endpoint {settings.url}"
    fields = {"grant_type": "client_credentials"} | ({"scope": settings.scope} if settings.scope else {})
    basic = base64.b64encode(f"{settings.client_id}:{settings.client_secret}".encode()).decode()
    request = urllib.request.Request(
        settings.url,
        urllib.parse.urlencode(fields).encode(),
        {"Authorization": f"Basic {basic}", "Accept": "application/json"},
    )
    try:
        context = ssl.create_default_context(cafile=settings.ca_location or None)
    except OSError as error:
        key = f"clusters.{settings.cluster}.properties.https.ca.location"
        raise LocalFault(f"{key}: it can't be used: {error}") from error
    opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), _NoRedirect)
    try:
        with opener.open(request, timeout=ENDPOINT_S) as answer:
            body = answer.read(_ANSWER_BYTES_MAX + 1)
    except (OSError, HTTPException) as error:
        raise Unreachable(f"{where}: no token: {_told(error)}") from error
    if len(body) > _ANSWER_BYTES_MAX:
        raise Unreachable(f"{where}: its answer has more than {_ANSWER_BYTES_MAX} bytes")
    try:
        found = json.loads(body)
        token, said = found["access_token"], found.get("expires_in")
        if not isinstance(token, str) or not TOKEN.fullmatch(token):
            raise ValueError("access_token is no token")
        life_s = float(said) if said is not None else life_left_s(token) or 0.0
        if not math.isfinite(life_s):  # it would be used for ever
            raise ValueError("expires_in is no number of seconds")
        return token, min(max(0.0, life_s), LIFE_S_MAX)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        raise Unreachable(f"{where}: its answer can't be used: {_told(error)}") from error


def _told(error: Exception) -> str:
    """Say what is wrong, which may repeat what the endpoint has said, at any length."""
    return printable(str(error))[:_TOLD_MAX]
