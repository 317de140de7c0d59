"""Configs of brokers that are set while they run: for all brokers, whose name is empty, or first of all for this one.

They are the defaults of topics under the brokers' names (`log.retention.ms`), kept in the metadata log under
`broker:<name>`. `Broker` has one `DynamicConfigs`; the handlers of the config APIs read and change it. All other
settings need a new start, as most of Kafka's. Source: Kafka `DynamicBrokerConfig`, KIP-226.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import NamedTuple

from embedded_broker.metadata.broker_configs import TOPIC_DEFAULTS
from embedded_broker.metadata.metadata_log import MetadataLog
from embedded_broker.metadata.topic_configs import CONFIGS, InvalidConfig, check

PREFIX = "broker:"
ALL_BROKERS = ""


class Source(IntEnum):
    """Where a config is set, as DescribeConfigs numbers it (`DescribeConfigsResponse.ConfigSource`)."""

    TOPIC = 1
    DYNAMIC = 2
    DYNAMIC_DEFAULT = 3
    STATIC = 4
    DEFAULT = 5
    GROUP = 8


class NotDynamic(ValueError):
    """Configs that can't be changed while the broker runs; the text names them."""


class Default(NamedTuple):
    """The default of a topic config that is set for a broker: the broker's name of it, and for which broker."""

    name: str
    value: str
    broker: str


class DynamicConfigs:
    """What is set for all brokers, and for this one."""

    def __init__(self, node_id: int, metadata: MetadataLog, apply: Callable[[Mapping[str, str]], None]) -> None:
        """`apply` is given the defaults of topic configs, by their names, that no longer are Kafka's."""
        self.this_broker = str(node_id)
        self._metadata, self._apply = metadata, apply

    def own(self, broker: str) -> dict[str, str]:
        """What is set for this broker, or for ALL_BROKERS."""
        return dict(self._metadata.get(f"{PREFIX}{broker}") or {})

    def of_topics(self) -> Mapping[str, tuple[Default, ...]]:
        """Name of a topic config → its defaults that are set, of which the first counts."""
        found: dict[str, tuple[Default, ...]] = {}
        for broker in (self.this_broker, ALL_BROKERS):
            for name, value in self.own(broker).items():
                topic = TOPIC_DEFAULTS[name]
                found[topic] = (*found.get(topic, ()), Default(name, value, broker))
        return found

    def of_topic(self, name: str, own: Mapping[str, str]) -> tuple[str, Source, tuple[Default, ...]]:
        """The value of a topic config, where it is set, and the defaults that are set for brokers; `own`: the topic's
        configs."""
        defaults = self.of_topics().get(name, ())
        if name in own:
            return own[name], Source.TOPIC, defaults
        if defaults:
            return defaults[0].value, self.source(defaults[0]), defaults
        return CONFIGS[name].default, Source.DEFAULT, ()

    def source(self, default: Default) -> Source:
        """Where a default is set."""
        return Source.DYNAMIC_DEFAULT if default.broker == ALL_BROKERS else Source.DYNAMIC

    def check(self, configs: Mapping[str, str]) -> None:
        """Raises NotDynamic or InvalidConfig unless a broker can have these."""
        others = sorted(configs.keys() - TOPIC_DEFAULTS.keys())
        if others:
            raise NotDynamic(f"Cannot update these configs dynamically: {', '.join(others)}")
        for name, text in configs.items():
            try:
                check(TOPIC_DEFAULTS[name], text)
            except InvalidConfig as error:
                raise InvalidConfig(str(error).replace(TOPIC_DEFAULTS[name], name)) from error

    async def save(self, broker: str, configs: Mapping[str, str]) -> None:
        """Make a broker's configs durable, then let them hold. They have been checked; within `Changes.one`.

        Raises OSError."""
        await self._metadata.put(f"{PREFIX}{broker}", dict(configs) or None)
        self.load()

    def load(self) -> None:
        """Let hold what is kept."""
        self._apply({topic: defaults[0].value for topic, defaults in self.of_topics().items()})
