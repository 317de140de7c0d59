"""What the client library itself says about a cluster's properties. Nothing is connected."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterator, Mapping

from replicator.config.messages import alternatives, suggestion
from replicator.config.properties import FETCH_BYTES, SECRET, Problem

_QUOTED = re.compile(r'configuration property:? "([^"]+)"', re.IGNORECASE)
_LEADING = re.compile(r"^`?([a-z]+(?:\.[a-z]+)+)`? ")
_ALIASES = {
    "compression.codec": "compression.type",
    "sasl.mechanisms": "sasl.mechanism",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "linger.ms": "queue.buffering.max.ms",
    "queue.buffering.max.ms": "linger.ms",
}
"""Properties by the names that librdkafka's errors give them, with another name that a file may have."""
_NAMED = re.compile("`([a-z.]+)`")
CHOICES = {
    "security.protocol": ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl"),
    "sasl.mechanism": ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"),
}
"""What librdkafka takes in each of its builds; its own errors don't say so."""
_MECHANISM = re.compile("SASL mechanism|Unsupported hash function")
_PYTHON_ONLY = re.compile(r".*_cb|logger|default\.topic\.config|on_.*")

COMMON = """
bootstrap.servers client.id client.rack security.protocol sasl.mechanism sasl.username sasl.password
sasl.oauthbearer.method sasl.oauthbearer.client.id sasl.oauthbearer.client.secret
sasl.oauthbearer.token.endpoint.url sasl.oauthbearer.scope sasl.oauthbearer.extensions ssl.ca.location ssl.ca.pem
ssl.certificate.location ssl.certificate.pem ssl.key.location ssl.key.pem ssl.key.password ssl.keystore.location
ssl.keystore.password ssl.cipher.suites ssl.endpoint.identification.algorithm enable.ssl.certificate.verification
socket.timeout.ms socket.keepalive.enable socket.nagle.disable socket.send.buffer.bytes socket.receive.buffer.bytes
socket.connection.setup.timeout.ms connections.max.idle.ms broker.address.family reconnect.backoff.ms
reconnect.backoff.max.ms metadata.max.age.ms fetch.min.bytes fetch.wait.max.ms fetch.max.bytes
fetch.message.max.bytes receive.message.max.bytes queued.min.messages queued.max.messages.kbytes compression.type
compression.level linger.ms batch.size batch.num.messages queue.buffering.max.messages queue.buffering.max.kbytes
message.max.bytes request.timeout.ms retry.backoff.ms retry.backoff.max.ms statistics.interval.ms debug log_level
"""
"""Names that an unknown property may have been meant for; a help for spelling, not the list of what is allowed."""


def further_problems(raw: Mapping[str, str], resolved: Mapping[str, str], faulty: Collection[str]) -> list[Problem]:
    """Return the problems besides those of the `faulty` properties, which are known already.

    A secret that could not be resolved is stood in for, so as not to hide the rest; what is wrong with the
    properties as a whole is only told when each of them is right.
    """
    values = {key: value for key, value in resolved.items() if key not in faulty}
    values |= {key: "-" for key in raw if key in faulty and SECRET.search(key)}
    found = list(problems(values)) if raw else []
    return [problem for problem in found if not _of_all(problem) or not (faulty or len(found) > 1)]


def _of_all(problem: Problem) -> bool:
    """Return whether it may follow from another property's problem, though it may name one."""
    return not problem.key or problem.message.endswith("must be set")


def problems(values: Mapping[str, str]) -> Iterator[Problem]:
    """Yield what librdkafka refuses, one property after the other. Values are never repeated: they may be secrets.

    Args:
        values: properties with secrets put in; `bootstrap.servers` is left out, so that nothing is connected.
    """
    from confluent_kafka import KafkaException

    left = {key: value for key, value in values.items() if key != "bootstrap.servers"}
    for key in [key for key in left if _PYTHON_ONLY.fullmatch(key)]:
        yield _unknown(key)
        del left[key]
    while True:
        try:
            _make_clients(left)
        except KafkaException as error:
            text = str(error.args[0].str()).strip()
        else:
            return
        problem = _problem(text, left)
        yield problem
        if problem.key not in left or _of_all(problem):
            return
        del left[problem.key]


def _make_clients(values: Mapping[str, str]) -> None:
    """Make a client of each kind: each takes what the others refuse. Raises KafkaException.

    Args:
        values: without addresses. The size of a fetch is told to the source reader alone, within its bounds.
    """
    from confluent_kafka import Consumer, Producer
    from confluent_kafka.admin import AdminClient

    settings: dict[str, str | int | float | bool] = {"log_level": 0, **values}
    AdminClient(settings, logger=_silent())
    read = {key: value for key, value in settings.items() if key != FETCH_BYTES}
    Consumer({**read, "group.id": "check"}, logger=_silent())
    Producer(settings, logger=_silent())


def _silent() -> logging.Logger:
    """Return a logger that takes the lines of a client that a property lets write some: they would go to stderr by
    themselves.
    """
    logger = logging.Logger("librdkafka")
    logger.addHandler(logging.NullHandler())
    return logger


def _problem(text: str, values: Mapping[str, str]) -> Problem:
    text = re.sub("^Failed to create (admin client|consumer|producer): ", "", text)
    found = _QUOTED.search(text) or _LEADING.match(text)
    key = found.group(1) if found else ""
    if key not in values:
        named = (key, *_NAMED.findall(text))  # of two that don't go together one may have its default
        key = next((it for name in named for it in (name, _ALIASES.get(name, "")) if it in values), "")
    if text.startswith("No such configuration"):
        return _unknown(key)
    if _MECHANISM.search(text):
        key = next((name for name in ("sasl.mechanism", "sasl.mechanisms") if name in values), "")
        if not key:  # librdkafka's default, GSSAPI, which not every build has
            return Problem("", f"sasl.mechanism is missing: {alternatives(CHOICES['sasl.mechanism'])}")
    choices = CHOICES.get("sasl.mechanism" if key.startswith("sasl.mechanism") else key)
    if choices and key in values:
        near = suggestion(values[key].lower(), choices) or suggestion(values[key].upper(), choices)
        return Problem(key, f"expected {alternatives(choices)}{near}")
    value = values.get(key)
    shown = text if not value else text.replace(f'"{value}" ', "").replace(f"value {value} ", "value ")
    return Problem(key if key in values else "", shown[:1].lower() + shown[1:])


def _unknown(key: str) -> Problem:
    hint = suggestion(key, COMMON.split(), cutoff=0.7)
    return Problem(key, f"librdkafka has no property of this name{hint}")
