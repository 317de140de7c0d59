"""Configs of single consumer groups (KIP-848), in the metadata log under `group:<id>`; the group need not exist.

`Broker` has one `GroupConfigs`; the handlers of the config APIs read and change it. Configs of share and streams groups
don't exist here. Source: Kafka `GroupConfig`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from embedded_broker.config.settings import BrokerConfig
from embedded_broker.metadata.metadata_log import MetadataLog
from embedded_broker.metadata.topic_configs import INT_MAX, InvalidConfig
from embedded_broker.state.consumer_types import ConsumerGroupConfig

PREFIX = "group:"
HEARTBEAT, SESSION = "consumer.heartbeat.interval.ms", "consumer.session.timeout.ms"
NUMBER_LENGTH_MAX = 1_000
"""With zeros in front, which Kafka takes, too. Python refuses to read numbers that are much longer."""
NAMES: Mapping[str, str] = {HEARTBEAT: "heartbeat_interval_ms", SESSION: "session_timeout_ms"}

Configure = Callable[[str, Callable[[ConsumerGroupConfig], ConsumerGroupConfig]], None]
"""Given a group's id, and what makes its configs of those of all groups: lets them hold."""


class GroupConfigs:
    """The configs of all groups that have their own."""

    def __init__(self, config: BrokerConfig, metadata: MetadataLog, configure: Configure) -> None:
        """`config`: what holds for groups that don't say otherwise."""
        self._metadata, self._configure = metadata, configure
        self.defaults: Mapping[str, str] = {
            HEARTBEAT: str(config.group_consumer_heartbeat_interval_ms),
            SESSION: str(config.group_consumer_session_timeout_ms),
        }

    def load(self) -> None:
        """Let all that is kept hold, at the start."""
        for group_id in self.ids():
            self._apply(group_id)

    def own(self, group_id: str) -> dict[str, str]:
        """Return what is set for a group."""
        return dict(self._metadata.get(f"{PREFIX}{group_id}") or {})

    def ids(self) -> list[str]:
        """Return the groups for which something is set."""
        return sorted(key.removeprefix(PREFIX) for key, _ in self._metadata.items() if key.startswith(PREFIX))

    def check(self, configs: Mapping[str, str]) -> None:
        """Raise InvalidConfig unless a group can have these."""
        for name, text in configs.items():
            if name not in NAMES:
                raise InvalidConfig(f"Unknown group config name: {name}")
            if len(text) > NUMBER_LENGTH_MAX or not text.isdecimal() or not 1 <= int(text) <= INT_MAX:
                raise InvalidConfig(f"Invalid value {text} for configuration {name}: from 1 to {INT_MAX}")
        held = {**self.defaults, **_in_short(configs)}
        if int(held[SESSION]) <= int(held[HEARTBEAT]):
            raise InvalidConfig(f"{SESSION} must be greater than {HEARTBEAT}")

    async def save(self, group_id: str, configs: Mapping[str, str]) -> None:
        """Make a group's configs durable, then let them hold. They have been checked; within `Changes.one`.

        Raises OSError."""
        await self._metadata.put(f"{PREFIX}{group_id}", _in_short(configs) or None)
        self._apply(group_id)

    def _apply(self, group_id: str) -> None:
        """Let a group's configs hold from its members' next heartbeats on."""
        held = {**self.defaults, **self.own(group_id)}
        values = {NAMES[name]: int(text) for name, text in held.items()}
        self._configure(group_id, lambda config: replace(config, **values))


def _in_short(configs: Mapping[str, str]) -> dict[str, str]:
    """Return numbers as they are shown, whatever zeros were before them."""
    return {name: str(int(text)) for name, text in configs.items()}
