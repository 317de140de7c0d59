"""For each array of each API: the largest request that the broker takes.

By items: of one name repeated, and of distinct names. By bytes: of long names, of other long texts, and of unknown
tagged fields.
"""

from __future__ import annotations

import dataclasses
import enum
import io
import pathlib
import re
import struct
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from uuid import UUID

from embedded_broker.api.registry import load_all
from embedded_broker.config.settings import BrokerConfig
from embedded_broker.wire import request_limits, schema
from embedded_broker.wire.framing import read_header
from embedded_broker.wire.request_limits import ITEMS_MAX, STRING_BYTES_MAX
from tests.embedded_broker import generated
from tests.embedded_broker.generated import Path

COUNT, FEW = ITEMS_MAX - 100, 490
"""As many as there may be, and as many as are decoded on the event loop."""
BYTES_MAX = BrokerConfig(pathlib.Path()).frame_without_records_bytes_max
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


class Long(enum.Enum):
    """What makes a request as long as it may be."""

    NAMES = "long names"
    TEXTS = "long texts"
    TAGS = "unknown tagged fields"


@dataclasses.dataclass(frozen=True, slots=True)
class Largest:
    """One request."""

    api: str
    version: int
    path: Path
    what: str
    frame: bytes

    def __str__(self) -> str:
        return f"{self.api} v{self.version} {'.'.join(self.path)} {self.what}"


def all_of(topic_ids: Mapping[str, UUID], skip: frozenset[str], count: int = COUNT) -> Iterator[Largest]:
    """By items: of all APIs, in their newest version and the last one with names instead of ids.

    Args:
        topic_ids: of topics that exist, by name; those of the names w0, w1 … are used for distinct ones.
        skip: names of APIs to leave out.
        count: how many items the array and what is in it have together.
    """
    for name, version, path in _all(skip):
        kind = schema.entity(name, version, "request")
        for is_distinct in (False, True):
            made = _request(kind, path, is_distinct, topic_ids, count)
            yield Largest(name, version, path, "distinct" if is_distinct else "repeated", generated.frame(made))


def longest_of(topic_ids: Mapping[str, UUID], skip: frozenset[str]) -> Iterator[Largest]:
    """By bytes: of all APIs but Produce, as `all_of`."""
    for name, version, path in _all(skip | {"produce"}):
        kind = schema.entity(name, version, "request")
        for count in (COUNT, FEW, 1):
            for long in Long:
                frame = _long(kind, path, topic_ids, count, long)
                if frame is not None:
                    yield Largest(name, version, path, f"{count} with {long.value}, {len(frame)} bytes", frame)


def _long(kind: Any, path: Path, topic_ids: Mapping[str, UUID], count: int, long: Long) -> bytes | None:
    """None if nothing in it can be long in that way."""
    if long is Long.TAGS:
        if not kind.__flexible__:
            return None
        frame = generated.frame(_request(kind, path, True, topic_ids, (count + 1) // 2))
        sections = _tag_sections(kind, frame)[:count]
        each = (BYTES_MAX - len(frame)) // len(sections) - 8
        return _tagged(frame, sections, each) if each > 0 else None
    short = len(generated.frame(_request(kind, path, True, topic_ids, count)))
    texts, blobs = _padded(kind, path, long)
    if not texts and not blobs:
        return None
    inner = max(count // _per_item(_item_at(kind, path)), 1)
    each = (BYTES_MAX - short) // (inner * (len(texts) + len(blobs))) - 5
    widths = dict.fromkeys(texts, min(each, STRING_BYTES_MAX - 100)) | dict.fromkeys(blobs, each)
    return generated.frame(_request(kind, path, True, topic_ids, count, widths)) if each > 0 else None


def _padded(kind: Any, path: Path, long: Long) -> tuple[list[Path], list[Path]]:
    """(texts, bytes) of the items of an array, or what is in them, that are made long."""
    inside = [(at, kind) for at, kind in generated._leaves(kind, ()) if at[: len(path)] == path]
    wanted = [(at, kind) for at, kind in inside if (at[-1] in NAMES) is (long is Long.NAMES) and at[-1] not in NONE]
    return [at for at, kind in wanted if kind == "string"], [at for at, kind in wanted if kind == "bytes"]


def _item_at(kind: Any, path: Path) -> Any:
    for name in path:
        kind = generated._inner(generated._item(typing.get_type_hints(kind)[name])[0])
    return kind


def _tag_sections(kind: Any, frame: bytes) -> list[int]:
    """Where in a request (its size before it) tagged fields would stand and there are none."""
    found: list[int] = []
    tagged = request_limits._tagged

    def noting(known: Any) -> Any:
        skip = tagged(known)

        def note(frame: bytes, at: int, scan: Any) -> int:
            if frame[at] == 0:
                found.append(at + 4)
            return skip(frame, at, scan)

        return note

    request_limits._entity.cache_clear()
    try:
        request_limits._tagged = noting
        name = "_".join(re.findall("[A-Z][a-z]*", kind.__name__.removesuffix("Request"))).lower()
        request_limits.check_request(name, kind.__version__, frame[4:], read_header(frame[4:], True)[1])
    finally:
        request_limits._tagged = tagged
        request_limits._entity.cache_clear()
    return found


def _tagged(frame: bytes, sections: list[int], size: int) -> bytes:
    """With an unknown field of so many bytes in each of these sections."""
    field = b"\x01" + b"\x63" + _uvarint(size) + bytes(size)
    out, at = io.BytesIO(), 4
    for section in sections:
        out.write(frame[at:section] + field)
        at = section + 1
    out.write(frame[at:])
    return struct.pack(">i", len(out.getvalue())) + out.getvalue()


def _uvarint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


def _all(skip: frozenset[str]) -> Iterator[tuple[str, int, Path]]:
    """(API, version, array)."""
    for _, api in sorted(load_all().items()):
        if api.name not in skip:
            for version in sorted(_versions(api.name, api.versions)):
                for path in _arrays(schema.entity(api.name, version, "request")):
                    yield api.name, version, path


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


def _request(
    kind: Any,
    many: Path,
    is_distinct: bool,
    topic_ids: Mapping[str, UUID],
    count: int,
    widths: Mapping[Path, int] | None = None,
) -> Any:
    """`widths`: how long texts and bytes are made."""
    depth = len(many)

    def value(field: dataclasses.Field[Any], number: int, path: Path) -> Any:
        """Of one field; `number`: of the item of the long array that it is in."""
        number = number if is_distinct and path[:depth] == many else 0
        own = path[depth - 1 : depth] == many[-1:] and len(path) <= depth + 1
        made = _value(field, number if own else 0, is_distinct and own, topic_ids)
        width = (widths or {}).get(path)
        if width is None:
            return made
        return made.ljust(width, "x") if isinstance(made, str) else bytes(width)

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
                made[field.name] = [one(each) for each in range(max(count // _per_item(inner), 1))]
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
