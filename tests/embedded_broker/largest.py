"""For each array of each API: the largest request that the broker takes, of one name repeated and of distinct names."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from uuid import UUID

from embedded_broker.api.registry import load_all
from embedded_broker.wire import schema
from embedded_broker.wire.request_limits import ITEMS_MAX
from tests.embedded_broker import generated
from tests.embedded_broker.generated import Path

COUNT = ITEMS_MAX - 100
TOPIC, GROUP, TXN_ID = "wide", "offsets", "open"
"""What requests name that name one thing again and again."""
NAMES: Mapping[str, str] = {
    "topic": TOPIC, "name": TOPIC, "topic_name": TOPIC, "resource_name": TOPIC, "group_id": GROUP, "groups": GROUP,
    "group_ids": GROUP, "groups_names": GROUP, "coordinator_keys": GROUP, "key": GROUP, "transactional_ids": TXN_ID,
    "transactional_id": TXN_ID, "resource_pattern_filter": TOPIC, "resource_name_filter": TOPIC,
    "subscribed_topic_names": TOPIC, "protocol_type": "consumer", "principal": "User:x", "host": "*",
}  # fmt: skip
NUMBERS: Mapping[str, Any] = {
    "max_bytes": 2**31 - 1, "partition_max_bytes": 2**31 - 1, "timestamp": 1, "resource_type": 2, "operation": 3,
    "permission_type": 3, "pattern_type": 3, "acks": -1, "session_timeout": 10_000, "rebalance_timeout": 10_000,
    "timeout": 1_000, "transaction_timeout": 10_000, "num_partitions": 1, "replication_factor": 1, "mechanism": 1,
    "iterations": 4096, "current_leader_epoch": -1, "replica_id": -1, "session_epoch": -1, "count": 1,
    "resource_type_filter": 1, "pattern_type_filter": 1, "response_partition_limit": 2_000, "validate_only": True,
    "leader_epoch": 0, "member_epoch": -1, "generation_id_or_member_epoch": -1, "generation_id": -1,
    "committed_leader_epoch": -1, "duration_filter": -1, "resource_types": 2, "config_operation": 0,
    "match_type": 2, "transactional": False, "replica_epoch": -1, "election_type": 0,
}  # fmt: skip
EMPTY = frozenset({"assignments", "configs", "configuration_keys", "forgotten_topics_data"})
"""Arrays that stand for everything, or for the default, when they are empty."""
NONE = frozenset({"group_instance_id", "error_message", "cluster_id", "user_data"})


@dataclasses.dataclass(frozen=True, slots=True)
class Largest:
    """One request."""

    api: str
    version: int
    path: Path
    is_distinct: bool
    made: Any

    def __str__(self) -> str:
        return f"{self.api} v{self.version} {'.'.join(self.path)} {'distinct' if self.is_distinct else 'repeated'}"


def all_of(topic_ids: Mapping[str, UUID], skip: frozenset[str], count: int = COUNT) -> Iterator[Largest]:
    """Of all APIs, in their newest version and the last one with names instead of ids.

    Args:
        topic_ids: of topics that exist, by name; those of the names w0, w1 … are used for distinct ones.
        skip: names of APIs to leave out.
        count: how many items the array and what is in it have together.
    """
    for _, api in sorted(load_all().items()):
        if api.name in skip:
            continue
        for version in _versions(api.name, api.versions):
            kind = schema.entity(api.name, version, "request")
            for path in _arrays(kind):
                for is_distinct in (False, True):
                    yield Largest(
                        api.name, version, path, is_distinct, _request(kind, path, is_distinct, topic_ids, count)
                    )


def _versions(name: str, versions: range) -> set[int]:
    last = versions[-1]
    named = [each for each in versions if "topic_id" not in str(_fields(schema.entity(name, each, "request")))]
    return {last, *named[-1:]}


def _fields(kind: Any) -> list[str]:
    return [".".join(path) for path, _ in generated._leaves(kind, ())]


def _arrays(kind: Any, path: Path = ()) -> Iterator[Path]:
    hints = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        item, is_array = generated._item(hints[field.name])
        inner = generated._inner(item)
        if is_array:
            yield (*path, field.name)
        if inner is not None:
            yield from _arrays(inner, (*path, field.name))


def _request(kind: Any, many: Path, is_distinct: bool, topic_ids: Mapping[str, UUID], count: int) -> Any:
    depth = len(many)

    def value(field: dataclasses.Field[Any], number: int, path: Path) -> Any:
        """Of one field; `number`: of the item of the long array that it is in."""
        number = number if is_distinct and path[:depth] == many else 0
        own = path[depth - 1 : depth] == many[-1:] and len(path) <= depth + 1
        return _value(field, number if own else 0, is_distinct and own, topic_ids)

    def entity(kind: Any, path: Path, number: int) -> Any:
        hints, made = typing.get_type_hints(kind), {}
        for field in dataclasses.fields(kind):
            at = (*path, field.name)
            item, is_array = generated._item(hints[field.name])
            inner = generated._inner(item)
            one: Callable[[int], Any] = (
                (lambda n, inner=inner, at=at: entity(inner, at, n))  # type: ignore[misc]
                if inner is not None
                else (lambda n, field=field, at=at: value(field, n, at))  # type: ignore[misc]
            )
            if not is_array:
                made[field.name] = one(number)
            elif at == many:
                made[field.name] = [one(each) for each in range(count // _per_item(inner))]
            else:
                made[field.name] = [] if field.name in EMPTY and at != many[: len(at)] else [one(number)]
        return made

    return schema.builder(kind)(entity(kind, (), 0))


def _per_item(inner: Any) -> int:
    """How many items one item is, those of its arrays included."""
    return 1 if inner is None else 1 + len(list(_arrays(inner)))


def _value(field: dataclasses.Field[Any], number: int, varies: bool, topic_ids: Mapping[str, UUID]) -> Any:
    kind, name = field.metadata.get("kafka_type", ""), field.name
    if name in NONE:
        return None if field.default is None or "None" in str(field.type) else ""
    if kind == "string":
        text = NAMES.get(name, "x")
        if name == "operations":
            return "x"
        return f"{text[:1]}{number}" if varies else text
    if kind == "uuid":
        if name != "topic_id" or not varies:
            return topic_ids[TOPIC] if name == "topic_id" else UUID(int=7)
        return topic_ids.get(f"w{number}", UUID(int=number + 1000))
    if varies and name in ("partition", "partition_index", "index", "partitions", "partition_indexes", "producer_id",
                           "producer_id_filters", "broker_ids"):  # fmt: skip
        return number
    if name in NUMBERS:
        return NUMBERS[name]
    return generated._leaf(kind, generated.Filling(), False)
