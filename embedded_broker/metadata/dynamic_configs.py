"""Configs of brokers that are set while they run: for all brokers, whose name is empty, or first of all for this one.

They are the defaults of topics under the brokers' names (`log.retention.ms`), the limits of connections and, for one
broker only, what concerns logins (`broker_configs.OF_ONE_BROKER`); kept in the metadata log under `broker:<name>`.
`Broker` has one `DynamicConfigs`; the handlers of the config APIs read and change it. All other settings need a new
start, as most of Kafka's. Source: Kafka `DynamicBrokerConfig`, KIP-226.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import IntEnum
from ipaddress import ip_address
from typing import NamedTuple

from embedded_broker.config.settings import BrokerConfig
from embedded_broker.metadata.broker_configs import (
    CONNECTIONS_MAX,
    CREATION_RATE_MAX,
    OF_CONNECTIONS,
    OF_ONE_BROKER,
    PER_IP_MAX,
    PER_IP_OVERRIDES,
    TOPIC_DEFAULTS,
    overrides,
)
from embedded_broker.metadata.metadata_log import MetadataLog
from embedded_broker.metadata.topic_configs import CONFIGS, INT_MAX, LONG_MAX, ConfigKind, InvalidConfig, check

PREFIX = "broker:"
ALL_BROKERS = ""
HIDDEN = "[hidden]"
"""Kept in the place of a password: nobody reads it again."""
LARGEST = {ConfigKind.SHORT: 2**15 - 1, ConfigKind.INT: INT_MAX, ConfigKind.LONG: LONG_MAX}


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


class ConnectionLimits(NamedTuple):
    """How many connections there may be, of one address too, and how many may come in a second."""

    most: int
    per_ip: int | None
    """None: what `BrokerConfig.connections_of_one_ip` says."""
    overrides: Mapping[str, int]
    rate: int | None

    def most_of(self, address: str, most: int) -> int:
        """Return how many of `most` an address may have."""
        usual = most - most // 4 if self.per_ip is None else self.per_ip
        return self.overrides.get(address, usual)


class DynamicConfigs:
    """What is set for all brokers, and for this one."""

    def __init__(self, config: BrokerConfig, metadata: MetadataLog, apply: Callable[[Mapping[str, str]], None]) -> None:
        """`apply` is given the defaults of topic configs, by their names, that no longer are Kafka's."""
        self.this_broker = str(config.node_id)
        self._config, self._metadata, self._apply = config, metadata, apply
        self.connections = self._connections()

    def own(self, broker: str) -> dict[str, str]:
        """Return what is set for this broker, or for ALL_BROKERS."""
        return dict(self._metadata.get(f"{PREFIX}{broker}") or {})

    def of_topics(self) -> Mapping[str, tuple[Default, ...]]:
        """Return the name of a topic config → its defaults that are set, of which the first counts."""
        found: dict[str, tuple[Default, ...]] = {}
        for broker in (self.this_broker, ALL_BROKERS):
            for name, value in self.own(broker).items():
                if (topic := TOPIC_DEFAULTS.get(name)) is not None:
                    found[topic] = (*found.get(topic, ()), Default(name, value, broker))
        return found

    def of(self, name: str) -> tuple[Default, ...]:
        """Return what is set for brokers under their own name of a config, of which the first counts."""
        own = [(broker, self.own(broker)) for broker in (self.this_broker, ALL_BROKERS)]
        return tuple(Default(name, values[name], broker) for broker, values in own if name in values)

    def _connections(self) -> ConnectionLimits:
        config, set_here = self._config, self._of_connections({})
        per_ip = set_here.get(PER_IP_MAX)
        rate = int(set_here.get(CREATION_RATE_MAX, config.connection_creation_rate_max))
        return ConnectionLimits(
            int(set_here.get(CONNECTIONS_MAX, config.connections_max)) or config.connections_max,
            int(per_ip) if per_ip is not None else config.connections_per_ip_max or None,
            addresses(set_here.get(PER_IP_OVERRIDES, config.connections_per_ip_overrides)),
            rate if rate < INT_MAX else None,
        )

    def _of_connections(self, instead: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
        """Return the limits of connections that are set and hold; `instead`: of some brokers others than are kept."""
        own = [instead.get(broker, self.own(broker)) for broker in (ALL_BROKERS, self.this_broker)]
        return {name: text for each in own for name, text in each.items() if name in OF_CONNECTIONS}

    def of_topic(self, name: str, own: Mapping[str, str]) -> tuple[str, Source, tuple[Default, ...]]:
        """Return the value of a topic config, where it is set, and the defaults that are set for brokers; `own`: the
        topic's configs."""
        defaults = self.of_topics().get(name, ())
        if name in own:
            return own[name], Source.TOPIC, defaults
        if defaults:
            return defaults[0].value, self.source(defaults[0]), defaults
        return CONFIGS[name].default, Source.DEFAULT, ()

    def source(self, default: Default) -> Source:
        """Return where a default is set."""
        return Source.DYNAMIC_DEFAULT if default.broker == ALL_BROKERS else Source.DYNAMIC

    def check(self, broker: str, configs: Mapping[str, str]) -> None:
        """Raise NotDynamic or InvalidConfig unless this broker, or ALL_BROKERS, can have these."""
        others = sorted(configs.keys() - TOPIC_DEFAULTS.keys() - OF_ONE_BROKER.keys() - {*OF_CONNECTIONS})
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
        self._check_connections(broker, configs)
        for name in sorted(configs.keys() & TOPIC_DEFAULTS.keys()):
            text = configs[name]
            try:
                check(TOPIC_DEFAULTS[name], text)
            except InvalidConfig as error:
                raise InvalidConfig(str(error).replace(TOPIC_DEFAULTS[name], name)) from error

    def _check_connections(self, broker: str, configs: Mapping[str, str]) -> None:
        """Check that each is a number, and that those that would hold leave a connection, as in Kafka: a broker may
        have its own beside those of all."""
        for name in sorted(configs.keys() & {*OF_CONNECTIONS} - {PER_IP_OVERRIDES}):
            check_number(name, ConfigKind.INT, configs[name])
            if int(configs[name]) < 0:
                raise InvalidConfig(f"Invalid value {configs[name]} for configuration {name}: Value must be at least 0")
        overrides(configs.get(PER_IP_OVERRIDES, ""))
        holding = self._of_connections({broker: configs})
        others = overrides(holding.get(PER_IP_OVERRIDES, self._config.connections_per_ip_overrides))
        for name in (CONNECTIONS_MAX, CREATION_RATE_MAX, *(() if others else (PER_IP_MAX,))):
            if int(holding.get(name, 1)) == 0:
                raise InvalidConfig(f"Invalid {name} 0")

    async def save(self, broker: str, configs: Mapping[str, str]) -> None:
        """Make a broker's configs durable, then let them hold. They have been checked; within `Changes.one`.

        Raises OSError."""
        passwords = {name: HIDDEN for name in configs if OF_ONE_BROKER.get(name, (None,))[0] is ConfigKind.PASSWORD}
        await self._metadata.put(f"{PREFIX}{broker}", {**configs, **passwords} or None)
        self.load()

    def load(self) -> None:
        """Let hold what is kept."""
        self._apply({topic: defaults[0].value for topic, defaults in self.of_topics().items()})
        self.connections = self._connections()


def addresses(text: str) -> dict[str, int]:
    """Return `overrides` by address as the socket tells it. Of names only localhost is known: none is looked up."""
    found: dict[str, int] = {}
    for host, number in overrides(text).items():
        if host == "localhost":
            found |= {"127.0.0.1": number, "::1": number}
            continue
        with suppress(ValueError):
            found[str(ip_address(host))] = number
    return found


def check_number(name: str, kind: ConfigKind, text: str) -> None:
    """Raise InvalidConfig where a number is asked for, and the text is none; its size doesn't matter."""
    try:
        if kind is ConfigKind.DOUBLE:
            float(text)
        elif kind in LARGEST and not -LARGEST[kind] - 1 <= int(text) <= LARGEST[kind]:
            raise ValueError
    except ValueError as error:
        message = f"Invalid value {text} for configuration {name}: Not a number of type {kind.name}"
        raise InvalidConfig(message) from error
