"""Listeners: the addresses of a broker, their security protocols and PEM files. Values of `BrokerConfig`."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


class Protocol(StrEnum):
    """As in Kafka's `security.protocol`."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def is_encrypted(self) -> bool:
        """Whether TLS is spoken."""
        return self in (Protocol.SSL, Protocol.SASL_SSL)

    @property
    def is_sasl(self) -> bool:
        """Whether clients must log in."""
        return self in (Protocol.SASL_PLAINTEXT, Protocol.SASL_SSL)


class ClientAuth(StrEnum):
    """Whether clients show certificates: Kafka's `ssl.client.auth`."""

    NONE = "none"
    REQUESTED = "requested"
    REQUIRED = "required"


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files of a broker."""

    certificate: Path
    """The broker's, followed by those between it and its authority."""
    key: Path
    key_password: str | None = field(default=None, repr=False)
    client_authorities: Path | None = None
    """Who may have signed clients' certificates."""
    client_auth: ClientAuth = ClientAuth.NONE


@dataclass(frozen=True, slots=True)
class OAuth:
    """Which tokens OAUTHBEARER takes."""

    jwks_file: Path | None = None
    """The keys that sign them. None: tokens without any signature, for tests."""
    issuer: str | None = None
    """Who must have issued them (`sasl.oauthbearer.expected.issuer`); None: whoever signs."""
    audience: str | None = None
    """For whom they must be (`sasl.oauthbearer.expected.audience`); None: anybody."""


class BadListener(ValueError):
    """A listener that is invalid or not allowed."""


@dataclass(frozen=True, slots=True)
class Listener:
    """One address to listen on. Port 0: the operating system chooses."""

    host: str = "127.0.0.1"
    port: int = 9092
    protocol: Protocol = Protocol.PLAINTEXT
    advertised_host: str | None = None
    """Advertised to its clients; `host` by default, or localhost when that is a wildcard."""
    advertised_port: int | None = None

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can connect."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


@dataclass(slots=True)
class Endpoint:
    """A listener with its real port, once that is known."""

    listener: Listener
    port: int = 0

    @property
    def advertised(self) -> tuple[str, int]:
        """(host, port) that Metadata and FindCoordinator give to clients of this listener."""
        listener = self.listener
        host = "localhost" if listener.host in ("0.0.0.0", "::", "") else listener.host
        return listener.advertised_host or host, listener.advertised_port or self.port

    def __str__(self) -> str:
        host = f"[{self.listener.host}]" if ":" in self.listener.host else self.listener.host
        return f"{host}:{self.port}"


_ADDRESS = re.compile(r"(?:(?P<protocol>[A-Za-z_]+)://)?(?:\[(?P<six>[^\]]*)\]|(?P<host>[^:/]*)):(?P<port>\d{1,5})")


def parse(text: str) -> Listener:
    """Read `[PROTOCOL://]HOST:PORT`; IPv6 in brackets, no host: all addresses. Raises BadListener."""
    found = _ADDRESS.fullmatch(text)
    if found is None or int(found["port"]) > 65_535:
        raise BadListener(f"{text!r} is not [PROTOCOL://]HOST:PORT")
    name = (found["protocol"] or "PLAINTEXT").upper()
    if name not in Protocol.__members__:
        raise BadListener(f"{text!r}: the protocol must be one of {', '.join(Protocol)}")
    host = found["six"] if found["six"] is not None else found["host"]
    return Listener(host or "0.0.0.0", int(found["port"]), Protocol(name))


def refuse_open(listeners: tuple[Listener, ...]) -> None:
    """Raise BadListener when one that others can reach isn't encrypted."""
    for listener in listeners:
        if not listener.protocol.is_encrypted and not listener.is_loopback:
            raise BadListener(
                f"{listener.protocol}://{listener.host}:{listener.port} could be read by the whole network: "
                "use SSL or SASL_SSL, listen on 127.0.0.1, or allow plain text (allow_plain_text)"
            )
