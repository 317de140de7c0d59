"""A cluster's librdkafka properties as the Java client, which Spark's connector uses, knows them; logins: `java_login`.

What decides who is talked to and how safely is translated or refused, never dropped; tuning of librdkafka has no
meaning for another client and is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from replicator.config import Cluster
from replicator.model.errors import ConfigError
from replicator.spark.reconcile import java_login

_SAME = (
    "bootstrap.servers",
    "security.protocol",
    "ssl.cipher.suites",
    "ssl.key.password",
    "client.rack",
)
_PEM = {
    "ssl.ca": "ssl.truststore.certificates",
    "ssl.certificate": "ssl.keystore.certificate.chain",
    "ssl.key": "ssl.keystore.key",
}
"""librdkafka takes each as a file (`.location`) or text (`.pem`), the Java client as text in PEM form."""
_UNDERSTOOD = frozenset(
    {
        *_SAME,
        *(f"{name}.{form}" for name in _PEM for form in ("location", "pem")),
        *java_login.UNDERSTOOD,
        *("ssl.keystore.location", "ssl.keystore.password"),
        *("ssl.endpoint.identification.algorithm", "enable.ssl.certificate.verification"),
    }
)
_DECISIVE = ("ssl.", "sasl.", "security.", "enable.ssl.", "enable.sasl.")


def properties(cluster: Cluster) -> dict[str, str]:
    """Return the settings of a Java client (`org.apache.kafka.clients.CommonClientConfigs`) for `cluster`, secrets
    included.

    Raises:
        ConfigError: a security property has no counterpart; the message names the cluster and the property.
    """
    given = dict(cluster.properties)
    if cluster.token_command:
        raise ConfigError(
            f"clusters.{cluster.name}.token_command: Spark reads with Kafka's Java client, which can't be given tokens "
            "of a command; reconcile --local can"
        )
    _refuse(cluster.name, given)
    found = {name: given[name] for name in _SAME if name in given}
    if "security.protocol" in found:
        found["security.protocol"] = found["security.protocol"].upper()
    if found.get("security.protocol", "").startswith("SASL"):
        found |= java_login.properties(cluster.name, given)
    for name, theirs in _PEM.items():
        text = _pem(cluster.name, given, name)
        if text is not None:
            found[theirs] = text
            found["ssl.truststore.type" if "truststore" in theirs else "ssl.keystore.type"] = "PEM"
    if "ssl.keystore.location" in given:
        found |= {"ssl.keystore.type": "PKCS12", "ssl.keystore.location": given["ssl.keystore.location"]}
        found["ssl.keystore.password"] = given.get("ssl.keystore.password", "")
    if given.get("ssl.endpoint.identification.algorithm") == "none":
        found["ssl.endpoint.identification.algorithm"] = ""
    return found


def _refuse(cluster: str, given: Mapping[str, str]) -> None:
    unknown = sorted(name for name in given if name.startswith(_DECISIVE) and name not in _UNDERSTOOD)
    if given.get("enable.ssl.certificate.verification", "true").lower() not in ("true", "1", "yes", "on"):
        unknown.append("enable.ssl.certificate.verification: false")
    if unknown:
        raise ConfigError(
            f"clusters.{cluster}.properties: Spark reads with Kafka's Java client, which has nothing like "
            + ", ".join(unknown)
        )


def _pem(cluster: str, given: Mapping[str, str], name: str) -> str | None:
    if f"{name}.pem" in given:
        return given[f"{name}.pem"]
    location = given.get(f"{name}.location")
    if location is None:
        return None
    try:
        return Path(location).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"clusters.{cluster}.properties.{name}.location: {location} cannot be read as PEM: {error}"
        ) from error
