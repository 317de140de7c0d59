"""Client properties of a cluster: secrets from outside, and what a flow file must not set.

Exactly-once rests on a few client properties. They are the replicator's own, so the file cannot weaken them.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from replicator.config.models import Properties, servers
from replicator.model.nearest import nearest

SECRET = re.compile(
    r"password|secret|\.key\.pem$|^ssl\.key\.pem|oauthbearer\.config|assertion\.private\.key|passphrase"
)
_VARIABLE = re.compile(r"\$(\$?)\{([^}]*)\}")
FILE = "file:"
PATH_PROPERTIES = r"^ssl\.(ca|certificate|key|keystore|crl)\.location$|^sasl\.kerberos\.keytab$|\.private\.key\.file$"
"""Of files that the client library reads itself when it connects."""
_ADDRESS = re.compile(r"(?P<host>[a-z0-9_][a-z0-9._-]*|\[[0-9a-f:.%a-z]+\]):(?P<port>\d{1,5})")
PORT_MAX = 65_535
SECRET_BYTES_MAX = 1024 * 1024

OWNED: dict[str, str] = {
    "isolation.level": "the source is always read with read_committed, or aborted records would be copied",
    "enable.auto.commit": "positions are committed with the records on the target, never on the source",
    "enable.auto.offset.store": "positions are committed with the records on the target, never on the source",
    "auto.commit.interval.ms": "positions are committed with the records on the target, never on the source",
    "auto.offset.reset": "a reset would skip or repeat records silently; a lost position is an incident",
    "topic.metadata.refresh.interval.ms": "set limits.discovery_interval_ms of the flow instead",
    "group.id": "the positions of a flow are kept in a group of its own on the target",
    "group.instance.id": "the positions of a flow are kept in a group without members",
    "group.protocol": "the positions of a flow are kept in a group without members",
    "partition.assignment.strategy": "partitions are shared out by the flow's generation",
    "transactional.id": "fencing rests on it: it is the flow, its generation and the lane, and nothing else",
    "transaction.timeout.ms": "set limits.transaction_timeout_ms of the flow instead",
    "enable.idempotence": "without it a retry could write a record twice or out of order",
    "enable.gapless.guarantee": "the delivery mode of the flow decides",
    "acks": "the delivery mode of the flow decides; exactly_once needs all",
    "request.required.acks": "the delivery mode of the flow decides; exactly_once needs all",
    "retries": "the delivery mode of the flow decides",
    "message.send.max.retries": "the delivery mode of the flow decides",
    "max.in.flight": "more than five would break the order of records",
    "max.in.flight.requests.per.connection": "more than five would break the order of records",
    "message.timeout.ms": "a record must not be given up while its transaction goes on",
    "delivery.timeout.ms": "a record must not be given up while its transaction goes on",
    "enable.partition.eof": "needed to move positions past the end of aborted transactions",
    "message.max.bytes": "set limits.record_bytes_max of the flow instead",
    "receive.message.max.bytes": "set limits.record_bytes_max of the flow instead",
    "session.timeout.ms": "set limits.session_timeout_ms of the flow instead",
    "heartbeat.interval.ms": "set limits.session_timeout_ms of the flow instead",
    "max.poll.interval.ms": "set limits.session_timeout_ms of the flow instead",
    "queue.buffering.backpressure.threshold": "an idempotent producer has no choice there",
    "delivery.report.only.error": "a record counts as written when the target has acknowledged it",
    "check.crcs": "always on: damaged records must not be copied",
    "allow.auto.create.topics": "target topics are created with the source's partitions and configs",
    "partitioner": "a record stays in its partition",
    "plugin.library.paths": "loading code from a flow file is not supported",
}
"""Properties that a cluster must not set, with the reason that the error gives."""


FETCH_BYTES, FETCH_PARTITION_BYTES = "fetch.max.bytes", ("fetch.message.max.bytes", "max.partition.fetch.bytes")
"""How much a fetch from the source asks for, in all and of one partition; the latter has two names."""
NUMBERS = frozenset({FETCH_BYTES, *FETCH_PARTITION_BYTES, "reconnect.backoff.ms", "socket.timeout.ms"})
"""Properties that aren't only handed on: a client gets them within the bounds that the replicator needs."""


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with one property; an empty key means the properties as a whole."""

    key: str
    message: str


def resolve(raw: Mapping[str, str], env: Mapping[str, str], directory: Path) -> tuple[Properties, list[Problem]]:
    """Replace `${NAME}` and `file:PATH`.

    Everything that came from outside is hidden in print, and so is every property named like a secret; only
    addresses and user names stay readable.
    """
    values: dict[str, str] = {}
    hidden: set[str] = set()
    problems: list[Problem] = []
    for key, text in raw.items():
        try:
            values[key] = _resolved(text, env, directory)
        except (LookupError, OSError, ValueError) as error:
            problems.append(Problem(key, _reason(error)))
            continue
        outside = values[key] != text and key not in ("bootstrap.servers", "sasl.username", "client.id")
        if outside or SECRET.search(key):
            hidden.add(key)
    return Properties(values, frozenset(hidden)), problems


def check(
    raw: Mapping[str, str], resolved: Mapping[str, str], written: Collection[str], *, allow_plaintext_password: bool
) -> Iterator[Problem]:
    """Yield what is wrong with a cluster's properties.

    Args:
        raw: as written in the file, to see where a secret came from.
        resolved: with secrets put in.
        written: all keys, those too whose values aren't text.
        allow_plaintext_password: the cluster's own word that a readable password is wanted.
    """
    if "bootstrap.servers" not in written and nearest("bootstrap.servers", written, 0.6) is None:
        yield Problem("", "bootstrap.servers is missing")  # one that is misspelt is an unknown property
    for key in raw:
        if key in OWNED:
            yield Problem(key, f"belongs to the replicator: {OWNED[key]}")
        elif key in NUMBERS and key in resolved and not resolved[key].isdecimal():
            yield Problem(key, "expected a whole number, written in digits")
    addresses = servers(resolved.get("bootstrap.servers", ""))
    if "bootstrap.servers" in resolved and not addresses:
        yield Problem("bootstrap.servers", "names no address")
    for text in resolved.get("bootstrap.servers", "").split(","):
        if not all(map(is_address, servers(text))):
            yield Problem(
                "bootstrap.servers", f"expected addresses such as broker-1:9092,broker-2:9092, not {text.strip()!r}"
            )
            break
    if not allow_plaintext_password and not all(is_loopback(address) for address in addresses):
        yield from _readable_secrets(raw, resolved)


def is_written_in_the_file(text: str) -> bool:
    """Return whether a secret stands in the flow file itself."""
    return not text.startswith(FILE) and not _VARIABLE.search(text)


def _readable_secrets(raw: Mapping[str, str], resolved: Mapping[str, str]) -> Iterator[Problem]:
    """Yield passwords that others could read: in the file itself, or on the wire."""
    advice = "or set allow_plaintext_password: true for this cluster"
    for key, text in raw.items():
        if SECRET.search(key) and is_written_in_the_file(text):
            yield Problem(key, f"a secret written in the file; use ${{NAME}} or file:PATH, {advice}")
    protocol = resolved.get("security.protocol", "plaintext").lower()
    mechanism = resolved.get("sasl.mechanisms", resolved.get("sasl.mechanism", "GSSAPI")).upper()
    if protocol == "sasl_plaintext" and mechanism in ("PLAIN", "OAUTHBEARER"):
        yield Problem(
            "security.protocol",
            f"{mechanism} without TLS sends the secret readably; use SASL_SSL or SCRAM, {advice}",
        )


def _resolved(text: str, env: Mapping[str, str], directory: Path) -> str:
    if text.startswith(FILE):
        path = directory / Path(text[len(FILE) :]).expanduser()
        if path.stat().st_size > SECRET_BYTES_MAX:
            raise ValueError(f"{path} is larger than {SECRET_BYTES_MAX} bytes")
        return path.read_text(encoding="utf-8").rstrip("\r\n")

    def put(match: re.Match[str]) -> str:
        if match.group(1):
            return match.group(0)[1:]
        name = match.group(2)
        if name not in env:
            raise LookupError(f"environment variable {name!r} is not set")
        return env[name]

    return _VARIABLE.sub(put, text)


def _reason(error: Exception) -> str:
    """Return the error in one line. A decode error would quote the secret, so it is named only."""
    if isinstance(error, OSError):
        return f"cannot read {error.filename}: {error.strerror}"
    if isinstance(error, UnicodeDecodeError):
        return "the file is not UTF-8 text"
    return str(error.args[0]) if error.args else type(error).__name__


def is_address(text: str) -> bool:
    """Return whether it is a host, which isn't only a number, and a port."""
    match = _ADDRESS.fullmatch(text)
    return match is not None and not match["host"].isdecimal() and 0 < int(match["port"]) <= PORT_MAX


def is_loopback(address: str) -> bool:
    """Return whether `HOST:PORT` can be reached from this machine only."""
    host = address.rpartition(":")[0].strip("[]")
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
