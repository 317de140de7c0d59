"""The broker's settings under Kafka's names: described to clients (DescribeConfigs), and set by `broker --config`."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from embedded_broker.config.listeners import ClientAuth, Endpoint, Protocol
from embedded_broker.config.settings import BrokerConfig
from embedded_broker.metadata.topic_configs import CONFIGS, INT_MAX, LONG_MAX, ConfigKind, InvalidConfig

TRUTH = {"true": True, "false": False}
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
"""Whose behaviour ours has; tools ask whether there is one."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A field of `BrokerConfig` under Kafka's name; Kafka counts it in units of `unit`."""

    kind: ConfigKind
    field: str
    unit: int = 1
    low: int = 0


SETTINGS: Mapping[str, Setting] = {  # those that Kafka doesn't have begin with eos
    "auto.create.topics.enable": Setting(ConfigKind.BOOLEAN, "auto_create_topics"),
    "connection.failed.authentication.delay.ms": Setting(ConfigKind.INT, "login_failed_delay_ms"),
    "connections.max.reauth.ms": Setting(ConfigKind.LONG, "connections_reauth_ms_max"),
    "eos.login.deadline.ms": Setting(ConfigKind.INT, "login_deadline_ms", low=1),
    "eos.request.without.records.max.bytes": Setting(ConfigKind.INT, "frame_without_records_bytes_max", low=1024),
    "eos.tls.handshake.deadline.ms": Setting(ConfigKind.INT, "handshake_deadline_ms", low=1),
    "eos.unfinished.logins.max": Setting(ConfigKind.INT, "unfinished_logins_max", low=1),
    "eos.unfinished.logins.per.ip.max": Setting(ConfigKind.INT, "unfinished_logins_per_ip_max", low=1),
    "fetch.max.bytes": Setting(ConfigKind.INT, "fetch_bytes_max", low=1024),
    "group.consumer.heartbeat.interval.ms": Setting(ConfigKind.INT, "group_consumer_heartbeat_interval_ms", low=1),
    "group.consumer.session.timeout.ms": Setting(ConfigKind.INT, "group_consumer_session_timeout_ms", low=1),
    "group.initial.rebalance.delay.ms": Setting(ConfigKind.INT, "group_initial_rebalance_delay_ms"),
    "group.max.session.timeout.ms": Setting(ConfigKind.INT, "group_session_timeout_ms_max", low=1),
    "group.min.session.timeout.ms": Setting(ConfigKind.INT, "group_session_timeout_ms_min", low=1),
    "log.retention.check.interval.ms": Setting(ConfigKind.LONG, "retention_check_interval_ms", low=1),
    "max.connection.creation.rate": Setting(ConfigKind.INT, "connection_creation_rate_max", low=1),
    "max.connections": Setting(ConfigKind.INT, "connections_max", low=1),
    "max.connections.per.ip": Setting(ConfigKind.INT, "connections_per_ip_max", low=1),
    "max.connections.per.ip.overrides": Setting(ConfigKind.STRING, "connections_per_ip_overrides"),
    "num.partitions": Setting(ConfigKind.INT, "partitions_default", low=1),
    "offset.metadata.max.bytes": Setting(ConfigKind.INT, "offset_metadata_bytes_max"),
    "offsets.retention.minutes": Setting(ConfigKind.INT, "offsets_retention_ms", unit=60_000, low=1),
    "producer.id.expiration.ms": Setting(ConfigKind.INT, "producer_id_expiration_ms", low=1),
    "socket.request.max.bytes": Setting(ConfigKind.INT, "frame_bytes_max", low=1024),
    "transaction.max.timeout.ms": Setting(ConfigKind.INT, "transaction_timeout_ms_max", low=1),
    "transactional.id.expiration.ms": Setting(ConfigKind.INT, "transactional_id_expiration_ms", low=1),
}

# Of all topics that don't say otherwise; set while the broker runs, see `dynamic_configs`.
TOPIC_DEFAULTS: Mapping[str, str] = {
    "log.cleanup.policy": "cleanup.policy",
    "log.message.timestamp.after.max.ms": "message.timestamp.after.max.ms",
    "log.message.timestamp.before.max.ms": "message.timestamp.before.max.ms",
    "log.message.timestamp.type": "message.timestamp.type",
    "log.retention.bytes": "retention.bytes",
    "log.retention.ms": "retention.ms",
    "log.segment.bytes": "segment.bytes",
    "message.max.bytes": "max.message.bytes",
    "min.insync.replicas": "min.insync.replicas",
}

OF_ONE_BROKER: Mapping[str, tuple[ConfigKind, str | None]] = {
    "sasl.enabled.mechanisms": (ConfigKind.LIST, "GSSAPI"),
    "sasl.jaas.config": (ConfigKind.PASSWORD, None),
    "sasl.kerberos.kinit.cmd": (ConfigKind.STRING, "/usr/bin/kinit"),
    "sasl.kerberos.min.time.before.relogin": (ConfigKind.LONG, "60000"),
    "sasl.kerberos.principal.to.local.rules": (ConfigKind.LIST, "DEFAULT"),
    "sasl.kerberos.service.name": (ConfigKind.STRING, None),
    "sasl.kerberos.ticket.renew.jitter": (ConfigKind.DOUBLE, "0.05"),
    "sasl.kerberos.ticket.renew.window.factor": (ConfigKind.DOUBLE, "0.8"),
    "sasl.login.refresh.buffer.seconds": (ConfigKind.SHORT, "300"),
    "sasl.login.refresh.min.period.seconds": (ConfigKind.SHORT, "60"),
    "sasl.login.refresh.window.factor": (ConfigKind.DOUBLE, "0.8"),
    "sasl.login.refresh.window.jitter": (ConfigKind.DOUBLE, "0.05"),
}
"""Type and default of what Kafka lets be set for one broker while it runs, also where nobody logs in that way: it is
kept and told. The mechanisms of listeners that are there already don't change by it, in Kafka neither. Source: Kafka
`DynamicBrokerConfig.PER_BROKER_CONFIGS`."""
CONNECTIONS_MAX, PER_IP_MAX = "max.connections", "max.connections.per.ip"
PER_IP_OVERRIDES, CREATION_RATE_MAX = "max.connections.per.ip.overrides", "max.connection.creation.rate"
OF_CONNECTIONS = (CONNECTIONS_MAX, PER_IP_MAX, PER_IP_OVERRIDES, CREATION_RATE_MAX)
"""Hold at once, for this broker or for all. Source: Kafka `SocketServer.ReconfigurableConfigs`."""
_HOST = re.compile(r"[0-9a-zA-Z\-%._:]*")


def overrides(text: str) -> dict[str, int]:
    """Read what `max.connections.per.ip.overrides` says: address or host name → number of connections.

    Raises InvalidConfig. Source: Kafka `Csv.parseCsvMap`, `Utils.validHostPattern`.
    """
    found: dict[str, int] = {}
    for part in text.strip().split(",") if text.strip() else ():
        host, _, number = (each.strip() for each in part.rpartition(":"))
        try:
            if not host or not _HOST.fullmatch(host) or not -INT_MAX - 1 <= int(number) <= INT_MAX:
                raise ValueError
        except ValueError as error:
            raise InvalidConfig(f"Invalid value {text} for configuration {PER_IP_OVERRIDES}: {part}") from error
        found[host] = int(number)
    return found


def broker_configs(config: BrokerConfig, endpoints: Sequence[Endpoint]) -> Mapping[str, tuple[ConfigKind, str]]:
    """Return name → type and value, in order of the names. `endpoints`: the listeners with their real ports."""
    found = {name: (setting.kind, _text(getattr(config, setting.field), setting)) for name, setting in SETTINGS.items()}
    found |= {name: (CONFIGS[topic].kind, CONFIGS[topic].default) for name, topic in TOPIC_DEFAULTS.items()}
    node = (ConfigKind.INT, str(config.node_id))
    found |= {
        "broker.id": node,
        "default.replication.factor": (ConfigKind.INT, "1"),
        "delete.topic.enable": (ConfigKind.BOOLEAN, "true"),
        "group.consumer.assignors": (ConfigKind.LIST, "uniform,range"),
        "group.consumer.migration.policy": (ConfigKind.STRING, "disabled"),
        "group.coordinator.rebalance.protocols": (ConfigKind.LIST, "classic,consumer"),
        PER_IP_MAX: (ConfigKind.INT, str(config.connections_of_one_ip(config.connections_max))),
        "log.dirs": (ConfigKind.STRING, str(config.data_dir)),
        "node.id": node,
        "offsets.topic.num.partitions": (ConfigKind.INT, "1"),
        "offsets.topic.replication.factor": (ConfigKind.INT, "1"),
        "transaction.state.log.num.partitions": (ConfigKind.INT, "1"),
        "transaction.state.log.replication.factor": (ConfigKind.INT, "1"),
    }
    found |= _listeners(endpoints) | _security(config)
    return {name: found[name] for name in sorted(found)}


def _listeners(endpoints: Sequence[Endpoint]) -> dict[str, tuple[ConfigKind, str]]:
    """Return the configs of listeners; the name of each is that of its protocol."""
    here = [(each.listener.protocol, each.listener.host, each.port) for each in endpoints]
    told = [(each.listener.protocol, *each.advertised) for each in endpoints]
    return {
        "advertised.listeners": (ConfigKind.LIST, _addresses(told)),
        "listeners": (ConfigKind.LIST, _addresses(here)),
        "listener.security.protocol.map": (ConfigKind.STRING, ",".join(f"{each}:{each}" for each in Protocol)),
        "process.roles": (ConfigKind.LIST, "broker,controller"),
    }


def _addresses(listening: Sequence[tuple[Protocol, str, int]]) -> str:
    return ",".join(
        f"{name}://[{host}]:{port}" if ":" in host else f"{name}://{host}:{port}" for name, host, port in listening
    )


def _security(config: BrokerConfig) -> dict[str, tuple[ConfigKind, str]]:
    return {
        "allow.everyone.if.no.acl.found": (ConfigKind.BOOLEAN, str(config.allow_everyone_if_no_acl_found).lower()),
        "authorizer.class.name": (ConfigKind.STRING, AUTHORIZER if config.authorizer else ""),
        "sasl.enabled.mechanisms": (ConfigKind.LIST, ",".join(config.sasl_mechanisms)),
        "ssl.client.auth": (ConfigKind.STRING, config.tls.client_auth if config.tls is not None else ClientAuth.NONE),
        "super.users": (ConfigKind.STRING, ";".join(sorted(config.super_users))),
    }


def _text(value: object, setting: Setting) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value // setting.unit) if isinstance(value, int) else str(value)


def configured(config: BrokerConfig, settings: Mapping[str, str]) -> BrokerConfig:
    """Return the configuration with settings under Kafka's names.

    Raises:
        InvalidConfig: a name that can't be set here, or a value that makes no sense.
    """
    changes: dict[str, Any] = {}
    for name, text in settings.items():
        if name not in SETTINGS:
            near = difflib.get_close_matches(name, SETTINGS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"those are: {', '.join(sorted(SETTINGS))}"
            raise InvalidConfig(f"{name} is no setting of this broker; {hint}")
        changes[SETTINGS[name].field] = _value(name, SETTINGS[name], text)
    return replace(config, **changes)


def _value(name: str, setting: Setting, text: str) -> bool | int | str:
    if name == PER_IP_OVERRIDES:
        overrides(text)
        return text
    if setting.kind is ConfigKind.BOOLEAN:
        if text not in TRUTH:
            raise InvalidConfig(f"Invalid value {text} for configuration {name}: true or false")
        return TRUTH[text]
    high = INT_MAX if setting.kind is ConfigKind.INT else LONG_MAX
    if not text.isdecimal() or not setting.low <= int(text) <= high:
        raise InvalidConfig(f"Invalid value {text} for configuration {name}: from {setting.low} to {high}")
    return int(text) * setting.unit
