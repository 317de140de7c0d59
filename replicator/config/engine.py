"""Which engine a flow is copied by: `records`, or `batches` where nothing that it asks for stands against that. Pure.

Used by `load`, which refuses what can't be, by the flow's wiring, and by what tells of it (`plan`, `status`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from replicator.config.models import Cluster, Flow
from replicator.model.delivery import Delivery

RECORDS, BATCHES = "records", "batches"
_TLS = ("ca.location", "ca.pem", "certificate.location", "certificate.pem", "key.location", "key.pem", "key.password")
_HONOURED = frozenset(
    {
        *("bootstrap.servers", "client.id", "client.rack", "security.protocol"),
        *("sasl.mechanism", "sasl.mechanisms", "sasl.username", "sasl.password"),
        *(f"sasl.oauthbearer.{name}" for name in ("method", "client.id", "client.secret", "scope", "extensions")),
        *("sasl.oauthbearer.token.endpoint.url", "sasl.oauthbearer.grant.type", "sasl.oauthbearer.config"),
        *("enable.sasl.oauthbearer.unsecure.jwt", "https.ca.location"),
        *(f"ssl.{name}" for name in (*_TLS, "cipher.suites", "endpoint.identification.algorithm")),
        "enable.ssl.certificate.verification",
    }
)
_TUNING = (
    *("socket.", "reconnect.", "metadata.", "topic.metadata.", "connections.", "fetch.", "queued.", "queue."),
    *("batch.", "linger.ms", "statistics.", "debug", "log_level", "retry.", "receive.message.", "request.timeout"),
)
"""How librdkafka does what it does; batches have nothing of it, and what is copied doesn't change."""
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """The engine, and why it isn't `batches` where that was asked for, or could have been."""

    name: str
    reasons: tuple[str, ...] = ()

    def told(self) -> str:
        """Say it in one line; empty where there is nothing to say: `records` was asked for."""
        why = f", because batches can't honour {'; '.join(self.reasons)}" if self.reasons else ""
        return f"engine {self.name}{why}" if self.name == BATCHES or why else ""


def not_honoured(flow: Flow) -> tuple[str, ...]:
    """Return what the flow asks for and `batches` can't do, by the keys of the flow file."""
    found: list[str] = []
    if flow.delivery is not Delivery.EXACTLY_ONCE:
        found.append(f"delivery: {flow.delivery.value}")
    for cluster in {cluster.name: cluster for cluster in (flow.source, flow.target)}.values():
        found += _of_cluster(cluster)
    return tuple(found)


def _of_cluster(cluster: Cluster) -> list[str]:
    given, prefix = cluster.properties, f"clusters.{cluster.name}.properties"
    found = [f"{prefix}.{key}" for key in sorted(given) if key not in _HONOURED and not key.startswith(_TUNING)]
    if given.get("security.protocol", "").upper().startswith("SASL"):
        mechanism = given.get("sasl.mechanisms", given.get("sasl.mechanism", "GSSAPI")).upper()
        tokens = mechanism == "OAUTHBEARER" and (bool(cluster.token_command) or _has_tokens(given))
        if mechanism not in _MECHANISMS and not tokens:
            found.append(f"{prefix}.sasl.mechanism: {mechanism}")
    return found


def _has_tokens(given: Mapping[str, str]) -> bool:
    """Return whether a cluster's properties say where tokens come from, in a way of librdkafka's that `wire.oauth`
    knows.
    """
    if given.get("sasl.oauthbearer.method", "default").lower() == "oidc":
        return given.get("sasl.oauthbearer.grant.type", "client_credentials").lower() == "client_credentials"
    return given.get("enable.sasl.oauthbearer.unsecure.jwt", "false").lower() in ("true", "t", "1", "yes", "on")


def chosen_engine(flow: Flow) -> EngineChoice:
    """Choose the engine of a flow: what it says, or for `auto` batches, unless something stands against it."""
    if flow.engine == "auto":
        reasons = not_honoured(flow)
        return EngineChoice(RECORDS if reasons else BATCHES, reasons)
    return EngineChoice(flow.engine)
