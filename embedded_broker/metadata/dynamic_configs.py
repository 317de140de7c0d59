"""Configs of brokers that are set while they run: for all brokers, whose name is empty, or first of all for this one.

They are the defaults of topics under the brokers' names (`log.retention.ms`), `max.connections` and, for one broker
only, what concerns logins (`broker_configs.OF_ONE_BROKER`); kept in the metadata log under `broker:<name>`. `Broker`
has one `DynamicConfigs`; the handlers of the config APIs read and change it. All other settings need a new start, as
most of Kafka's. Source: Kafka `DynamicBrokerConfig`, KIP-226.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import NamedTuple

from embedded_broker.metadata.broker_configs import CONNECTIONS_MAX, OF_ONE_BROKER, TOPIC_DEFAULTS
from embedded_broker.metadata.metadata_log import MetadataLog
from embedded_broker.metadata.topic_configs import CONFIGS, INT_MAX, LONG_MAX, InvalidConfig, Kind, check

PREFIX = "broker:"
ALL_BROKERS = ""
HIDDEN = "[hidden]"
"""Kept in the place of a password: nobody reads it again."""
LARGEST = {Kind.SHORT: 2**15 - 1, Kind.INT: INT_MAX, Kind.LONG: LONG_MAX}


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
                if (topic := TOPIC_DEFAULTS.get(name)) is not None:
                    found[topic] = (*found.get(topic, ()), Default(name, value, broker))
        return found

    def of(self, name: str) -> tuple[Default, ...]:
        """What is set for brokers under their own name of a config, of which the first counts."""
        own = [(broker, self.own(broker)) for broker in (self.this_broker, ALL_BROKERS)]
        return tuple(Default(name, values[name], broker) for broker, values in own if name in values)

    def connections_max(self, usual: int) -> int:
        """How many connections there may be; `usual` where nothing is set that leaves any."""
        return next((number for each in self.of(CONNECTIONS_MAX) if (number := int(each.value)) > 0), usual)

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

    def check(self, broker: str, configs: Mapping[str, str]) -> None:
        """Raises NotDynamic or InvalidConfig unless this broker, or ALL_BROKERS, can have these."""
        others = sorted(configs.keys() - TOPIC_DEFAULTS.keys() - OF_ONE_BROKER.keys() - {CONNECTIONS_MAX})
        if others:
            raise NotDynamic(f"Cannot update these configs dynamically: {', '.join(others)}")
        of_one = sorted(configs.keys() & OF_ONE_BROKER.keys())
        for name in of_one:
            check_number(name, OF_ONE_BROKER[name][0], configs[name])
        if of_one and broker == ALL_BROKERS:
            named = ", ".join(of_one)
            raise NotDynamic(
                f"Cannot update these configs at default cluster level, broker id must be specified: [{named}]"
            )
        if CONNECTIONS_MAX in configs:
            self._check_connections(broker, configs[CONNECTIONS_MAX])
        for name in sorted(configs.keys() & TOPIC_DEFAULTS.keys()):
            text = configs[name]
            try:
                check(TOPIC_DEFAULTS[name], text)
            except InvalidConfig as error:
                raise InvalidConfig(str(error).replace(TOPIC_DEFAULTS[name], name)) from error

    def _check_connections(self, broker: str, text: str) -> None:
        """Only a number that would hold is looked at, as in Kafka: a broker may have its own beside that of all."""
        check_number(CONNECTIONS_MAX, Kind.INT, text)
        holds = broker == self.this_broker or CONNECTIONS_MAX not in self.own(self.this_broker)
        if holds and int(text) <= 0:
            raise InvalidConfig(f"Invalid {CONNECTIONS_MAX} {text}")

    async def save(self, broker: str, configs: Mapping[str, str]) -> None:
        """Make a broker's configs durable, then let them hold. They have been checked; within `Changes.one`.

        Raises OSError."""
        passwords = {name: HIDDEN for name in configs if OF_ONE_BROKER.get(name, (None,))[0] is Kind.PASSWORD}
        await self._metadata.put(f"{PREFIX}{broker}", {**configs, **passwords} or None)
        self.load()

    def load(self) -> None:
        """Let hold what is kept."""
        self._apply({topic: defaults[0].value for topic, defaults in self.of_topics().items()})


def check_number(name: str, kind: Kind, text: str) -> None:
    """Raises InvalidConfig where a number is asked for, and the text is none; its size doesn't matter."""
    try:
        if kind is Kind.DOUBLE:
            float(text)
        elif kind in LARGEST and not -LARGEST[kind] - 1 <= int(text) <= LARGEST[kind]:
            raise ValueError
    except ValueError as error:
        message = f"Invalid value {text} for configuration {name}: Not a number of type {kind.name}"
        raise InvalidConfig(message) from error
