"""How a cluster is reached, from its librdkafka properties: TLS and login of a connection that isn't librdkafka's.

What decides who is talked to and how safely is translated or refused, never dropped; tuning has no meaning here.
Defaults are librdkafka's (its CONFIGURATION.md). Used by `connection`.
"""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from replicator.config import Cluster
from replicator.model.errors import ConfigError, LocalFault, Unsupported
from replicator.wire.oauth import OAUTHBEARER, TokenSource, token_source
from replicator.wire.sasl import MECHANISMS

_DECISIVE = ("ssl.", "enable.ssl.")
_UNDERSTOOD = frozenset(
    {
        *(f"ssl.{name}.{form}" for name in ("ca", "certificate", "key") for form in ("location", "pem")),
        *("ssl.key.password", "ssl.cipher.suites"),
        *("ssl.endpoint.identification.algorithm", "enable.ssl.certificate.verification"),
    }
)
_TRUE = ("true", "t", "1", "yes", "on")
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


@dataclass(frozen=True, slots=True)
class Access:
    """TLS and login of a cluster's connections; `tls` None: plain text, `mechanism` empty: no login. `tokens`: of
    OAUTHBEARER, which has no password."""

    cluster: str
    tls: ssl.SSLContext | None = None
    mechanism: str = ""
    username: str = ""
    password: str = field(default="", repr=False)
    tokens: TokenSource | None = field(default=None, repr=False)


def access(cluster: Cluster) -> Access:
    """Return what `cluster`'s properties say of access to it.

    Raises:
        Unsupported: they ask for what can't be done here, such as GSSAPI.
        ConfigError: they contradict each other, or a file can't be used.
    """
    given, name = dict(cluster.properties), cluster.name
    protocol = given.get("security.protocol", "plaintext").upper()
    if protocol not in _PROTOCOLS:
        raise ConfigError(f"clusters.{name}.properties.security.protocol: {protocol.lower()} is none")
    mechanism, tokens = "", None
    if protocol.startswith("SASL"):
        mechanism = given.get("sasl.mechanisms", given.get("sasl.mechanism", "GSSAPI")).upper()
        if mechanism == OAUTHBEARER:
            tokens = token_source(cluster)
        elif mechanism not in MECHANISMS:
            known = ", ".join((*MECHANISMS, OAUTHBEARER))
            raise _unsupported(name, f"sasl.mechanism {mechanism}; known are {known}")
        elif "sasl.username" not in given or "sasl.password" not in given:
            raise ConfigError(f"clusters.{name}.properties: {mechanism} needs sasl.username and sasl.password")
    tls = _tls(name, given) if protocol.endswith("SSL") else None
    return Access(name, tls, mechanism, given.get("sasl.username", ""), given.get("sasl.password", ""), tokens)


def _unsupported(cluster: str, what: str) -> Unsupported:
    return Unsupported(f"cluster {cluster!r}: its logs can't be read batch by batch with {what}")


def _tls(cluster: str, given: Mapping[str, str]) -> ssl.SSLContext:
    unknown = sorted(each for each in given if each.startswith(_DECISIVE) and each not in _UNDERSTOOD)
    if unknown:
        raise _unsupported(cluster, ", ".join(unknown))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if given.get("enable.ssl.certificate.verification", "true").lower() not in _TRUE:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    elif given.get("ssl.endpoint.identification.algorithm", "https").lower() == "none":
        context.check_hostname = False
    used = "ssl"
    try:
        if "ssl.cipher.suites" in given:
            used = "ssl.cipher.suites"
            context.set_ciphers(given[used])
        used = "ssl.ca.location"
        if "ssl.ca.pem" in given:
            used = "ssl.ca.pem"
            context.load_verify_locations(cadata=given[used])
        elif given.get(used, "probe") == "probe":
            context.load_default_certs()
        elif Path(given[used]).is_dir():
            context.load_verify_locations(capath=given[used])
        else:
            context.load_verify_locations(cafile=given[used])
        used = "ssl.certificate"
        with ExitStack() as files:
            certificate = files.enter_context(_file(given, "ssl.certificate"))
            key = files.enter_context(_file(given, "ssl.key"))
            if (certificate is None) != (key is None):
                missing = "ssl.key" if key is None else "ssl.certificate"
                raise ConfigError(f"clusters.{cluster}.properties: {missing}.location or {missing}.pem is missing")
            if certificate is not None:
                # A password is always given: without one OpenSSL asks for it at the terminal.
                context.load_cert_chain(certificate, key, lambda: given.get("ssl.key.password", ""))
    except (OSError, ValueError) as error:  # an SSLError is an OSError
        raise LocalFault(f"clusters.{cluster}.properties.{used}: it can't be used: {error}") from error
    return context


@contextmanager
def _file(given: Mapping[str, str], name: str) -> Iterator[str | None]:
    """Yield the path of a certificate or key; text from a property stands in a file of ours meanwhile, which nobody
    else may read: Python's ssl takes no other form."""
    if f"{name}.pem" not in given:
        yield given.get(f"{name}.location")
        return
    with tempfile.NamedTemporaryFile("w", encoding="ascii", suffix=".pem") as file:
        file.write(given[f"{name}.pem"])
        file.flush()
        yield file.name
