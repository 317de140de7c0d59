"""Client quotas: kept in the metadata log under `quota:<entity>` and described. Addresses are held to their
connection_creation_rate; by no other is anything throttled, and throttle_time_ms is 0 in every answer.

`Broker` has one `ClientQuotas`. Source: Kafka `ClientQuotaControlManager`, `ClientQuotasImage`, KIP-546.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum, IntEnum
from typing import NamedTuple

from embedded_broker.metadata.metadata_log import MetadataLog
from embedded_broker.metadata.metadata_size import NAME_BYTES_MAX, is_long
from embedded_broker.metadata.topic_configs import INT_MAX, LONG_MAX

PREFIX = "quota:"
USER, CLIENT_ID, IP = "user", "client-id", "ip"

Entity = Mapping[str, str | None]
"""Type of entity → name; None: the default of that type."""
Quotas = Mapping[str, float]
"""Key → value."""


class Number(Enum):
    """Types of values, with their greatest."""

    DOUBLE = float("inf")
    INT = INT_MAX
    LONG = LONG_MAX


OF_CLIENTS: Mapping[str, Number] = {
    "producer_byte_rate": Number.LONG,
    "consumer_byte_rate": Number.LONG,
    "request_percentage": Number.DOUBLE,
    "controller_mutation_rate": Number.DOUBLE,
}
CREATION_RATE = "connection_creation_rate"
OF_ADDRESSES: Mapping[str, Number] = {CREATION_RATE: Number.INT}


class QuotaRejected(ValueError):
    """An entity, quota or filter that can't be; the text says why."""


class UnknownEntityType(QuotaRejected):
    """A filter for a type of entity that there isn't."""


class Match(IntEnum):
    """How a filter's component is met (`DescribeClientQuotasRequest`)."""

    EXACT = 0
    DEFAULT = 1
    SPECIFIED = 2


class Component(NamedTuple):
    """A part of a filter: entities that have a name of this type, which is `name` if `match` is EXACT."""

    entity_type: str
    match: int
    name: str | None


def keys_of(entity: Entity) -> Mapping[str, Number]:
    """Return the quotas that an entity can have. Raises QuotaRejected."""
    if not entity:
        raise QuotaRejected("Invalid empty client quota entity")
    for entity_type, name in entity.items():
        if entity_type not in (USER, CLIENT_ID, IP):
            raise QuotaRejected(f"Unhandled client quota entity type: {entity_type}")
        if name == "":
            raise QuotaRejected(f"Empty {entity_type} not supported")
        if is_long(name):
            raise QuotaRejected(f"The name of a {entity_type} with quotas has at most {NAME_BYTES_MAX} bytes")
    if IP not in entity:
        return OF_CLIENTS
    if len(entity) > 1:
        raise QuotaRejected(f"Invalid quota entity combination, IP entity should not be used with others: {entity}")
    address = entity[IP]
    if address is not None:
        try:
            ipaddress.ip_address(address)
        except ValueError as error:
            raise QuotaRejected(f"{address} is not a valid IP or resolvable host.") from error
    return OF_ADDRESSES


def check(entity: Entity, changes: Mapping[str, float | None]) -> None:
    """Raise QuotaRejected unless an entity can have these; None removes one."""
    known = keys_of(entity)
    for key, value in changes.items():
        if key not in known:
            raise QuotaRejected(f"Invalid configuration key {key}")
        if value is None:
            continue
        if not value > 0:
            raise QuotaRejected(f"Quota {key} must be greater than 0")
        number = known[key]
        if number is not Number.DOUBLE and value > number.value:
            raise QuotaRejected(f"Proposed value for {key} is too large for {number.name}.")
        if number is not Number.DOUBLE and abs(value % 1.0) > 1e-6:
            raise QuotaRejected(f"{key} cannot be a fractional value.")


def check_filter(components: Sequence[Component]) -> None:
    """Raise QuotaRejected for a filter that makes no sense, of these UnknownEntityType for one that names none."""
    types = [component.entity_type for component in components]
    for entity_type, match, name in components:
        if types.count(entity_type) > 1:
            raise QuotaRejected(f"Entity type {entity_type} cannot appear more than once in the filter.")
        if entity_type not in (USER, CLIENT_ID, IP):
            raise UnknownEntityType(f"Unsupported entity type {entity_type}")
        if match not in tuple(Match):
            raise QuotaRejected(f"Unknown match type {match}")
        if (name is None) is (match == Match.EXACT):
            raise QuotaRejected(f"Request specified match type {Match(match).name}, and the match string {name!r}.")
    if IP in types and len(types) > 1:
        raise QuotaRejected("IP filter component should not be used with user or clientId filter component.")


def meets(entity: Entity, components: Sequence[Component], strict: bool) -> bool:
    """Return whether an entity meets every component; `strict`: and has no other type."""
    if strict and len(entity) != len(components):
        return False
    return all(
        component.entity_type in entity
        and (component.match == Match.SPECIFIED or entity[component.entity_type] == component.name)
        for component in components
    )


class ClientQuotas:
    """All that are set."""

    def __init__(self, metadata: MetadataLog) -> None:
        self._metadata = metadata
        self._creation_rates = self._read_creation_rates()

    def _read_creation_rates(self) -> dict[str | None, float]:
        """Read creation rates by address; None: of all that have none of their own."""
        of_addresses = [(entity[IP], quotas) for entity, quotas in self.all() if IP in entity]
        return {
            None if address is None else str(ipaddress.ip_address(address)): quotas[CREATION_RATE]
            for address, quotas in of_addresses
            if CREATION_RATE in quotas
        }

    def creation_rate(self, address: str) -> float | None:
        """Return how many connections may come from an address in a second; None: as many as like."""
        return self._creation_rates.get(address, self._creation_rates.get(None))

    def all(self) -> Iterator[tuple[Entity, Quotas]]:
        """Yield every entity with its quotas."""
        for key, body in self._metadata.items():
            if key.startswith(PREFIX):
                yield body["entity"], body["quotas"]

    async def change(self, entity: Entity, changes: Mapping[str, float | None]) -> None:
        """Set, and with None remove, quotas of an entity, durably. They have been checked. Raises OSError."""
        key = PREFIX + json.dumps(dict(entity), sort_keys=True, separators=(",", ":"))
        async with self._metadata.changes.one():
            before = (self._metadata.get(key) or {}).get("quotas", {})
            after = {name: value for name, value in {**before, **changes}.items() if value is not None}
            if after != before:
                await self._metadata.put(key, {"entity": dict(entity), "quotas": after} if after else None)
                if IP in entity:
                    self._creation_rates = self._read_creation_rates()
