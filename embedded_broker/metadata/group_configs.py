"""Configs of single consumer groups (KIP-848), in the metadata log under `group:<id>`; the group need not exist.

Those of share and streams groups don't exist here. Source: Kafka `GroupConfig`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from embedded_broker.metadata.topic_configs import INT_MAX, InvalidConfig

if TYPE_CHECKING:
    from embedded_broker.broker import Broker
    from embedded_broker.state.consumer_types import ConsumerGroupConfig

PREFIX = "group:"
HEARTBEAT, SESSION = "consumer.heartbeat.interval.ms", "consumer.session.timeout.ms"
NAMES: Mapping[str, str] = {HEARTBEAT: "heartbeat_interval_ms", SESSION: "session_timeout_ms"}


def own(broker: Broker, group_id: str) -> dict[str, str]:
    """What is set for a group."""
    return dict(broker.metadata.get(f"{PREFIX}{group_id}") or {})


def ids(broker: Broker) -> list[str]:
    """Groups for which something is set."""
    return sorted(key.removeprefix(PREFIX) for key, _ in broker.metadata.items() if key.startswith(PREFIX))


def defaults(broker: Broker) -> dict[str, str]:
    """What holds for groups that don't say otherwise."""
    config = broker.config
    return {
        HEARTBEAT: str(config.group_consumer_heartbeat_interval_ms),
        SESSION: str(config.group_consumer_session_timeout_ms),
    }


def check(broker: Broker, configs: Mapping[str, str]) -> None:
    """Raises InvalidConfig unless a group can have these."""
    for name, text in configs.items():
        if name not in NAMES:
            raise InvalidConfig(f"Unknown group config name: {name}")
        if not text.isdecimal() or not 1 <= int(text) <= INT_MAX:
            raise InvalidConfig(f"Invalid value {text} for configuration {name}: from 1 to {INT_MAX}")
    held = defaults(broker) | dict(configs)
    if int(held[SESSION]) <= int(held[HEARTBEAT]):
        raise InvalidConfig(f"{SESSION} must be greater than {HEARTBEAT}")


async def save(broker: Broker, group_id: str, configs: Mapping[str, str]) -> None:
    """Make a group's configs durable, then let them hold. They have been checked. Raises OSError."""
    await broker.metadata.put(f"{PREFIX}{group_id}", dict(configs) or None)
    apply(broker, group_id)


def apply(broker: Broker, group_id: str) -> None:
    """Let a group's configs hold from its members' next heartbeats on."""
    values = {NAMES[name]: int(text) for name, text in (defaults(broker) | own(broker, group_id)).items()}
    broker.groups.configure(group_id, lambda config: _changed(config, values))


def _changed(config: ConsumerGroupConfig, values: Mapping[str, int]) -> ConsumerGroupConfig:
    return replace(config, **dict(values))


def load(broker: Broker) -> None:
    """At the start: all that is kept."""
    for group_id in ids(broker):
        apply(broker, group_id)
