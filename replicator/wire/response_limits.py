"""Checks a response before kio decodes it: every count and size must fit into the bytes that are left. Sans-I/O.

kio allocates an array's claimed size before it reads the first item, and ends the process where that is more than there
is; and it refuses tagged fields that it doesn't know, although a client must ignore those (KIP-482). Here nothing is
allocated: one pass finds where each field ends, and notes the tagged fields to leave out. Used by `protocol`.
"""

from __future__ import annotations

import dataclasses
import struct
import typing
from collections.abc import Callable
from functools import cache
from types import NoneType
from typing import Any

ITEMS_MAX = 400_000
"""In all arrays of one response: one topic is asked for, which may have 50,000 partitions with three replicas."""
_UVARINT_BYTES_MAX = 5
_INT16, _INT32 = struct.Struct(">h"), struct.Struct(">i")
_FIXED = {"bool": 1, "int8": 1, "error_code": 2, "int16": 2, "int32": 4, "timedelta_i32": 4}
_FIXED |= {"int64": 8, "timedelta_i64": 8, "datetime_i64": 8, "uuid": 16}


class BadResponse(ValueError):
    """Bytes that are no response to what was asked."""


class _Scan:
    """One pass over a response."""

    def __init__(self, data: bytes, at: int) -> None:
        self.data, self.at, self.items_left = data, at, ITEMS_MAX
        self.unknown: list[tuple[int, int, bytes]] = []  # (first, end, instead) of tagged fields

    def uvarint(self) -> int:
        value = 0
        for shift in range(0, 7 * _UVARINT_BYTES_MAX, 7):
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise BadResponse(f"a number of more than {_UVARINT_BYTES_MAX} bytes")

    def number(self, kind: struct.Struct) -> int:
        (value,) = kind.unpack_from(self.data, self.at)
        self.at += kind.size
        return int(value)

    def skip(self, size: int) -> None:
        if size > len(self.data) - self.at:
            raise BadResponse(f"{size} bytes are claimed where {len(self.data) - self.at} are left")
        self.at += size


_Skip = Callable[[_Scan], None]


def checked(header: type, body: type, data: bytes) -> bytes:
    """Return a response without the tagged fields that kio's `header` and `body` don't have.

    Raises BadResponse: it claims more than it holds, or holds more than it should.
    """
    scan = _Scan(data, 0)
    try:
        _entity(header)(scan)
        _entity(body)(scan)
    except (IndexError, struct.error) as error:
        raise BadResponse("it ends too early") from error
    if scan.at != len(data):
        raise BadResponse(f"{len(data) - scan.at} bytes follow it")
    for first, end, instead in sorted(scan.unknown, reverse=True):
        data = data[:first] + instead + data[end:]
    return data


@cache
def _entity(kind: Any) -> _Skip:
    hints = typing.get_type_hints(kind)
    steps: list[_Skip] = []
    tags: dict[int, _Skip] = {}
    for field in dataclasses.fields(kind):
        skip = _field(field, hints[field.name], kind.__flexible__)
        if "tag" in field.metadata:
            tags[field.metadata["tag"]] = skip
        else:
            steps.append(skip)
    if kind.__flexible__:
        steps.append(_tagged(tags))

    def skip_all(scan: _Scan) -> None:
        for step in steps:
            step(scan)

    return skip_all


def _field(field: dataclasses.Field[Any], hint: Any, flexible: bool) -> _Skip:
    parts = [hint, *(typing.get_args(hint) if typing.get_origin(hint) is not tuple else ())]
    optional = NoneType in parts
    items = next((typing.get_args(part)[0] for part in parts if typing.get_origin(part) is tuple), None)
    kind = field.metadata.get("kafka_type")
    if items is not None:
        return _array(_one(kind, items, flexible, False), flexible, optional)
    return _one(
        kind, next(part for part in parts if isinstance(part, type) and part is not NoneType), flexible, optional
    )


def _one(kind: str | None, hint: Any, flexible: bool, optional: bool) -> _Skip:
    """Return a function that skips one value."""
    if kind is None:
        if optional:
            raise NotImplementedError(f"{hint}: no response that is read here has a part that may be missing")
        return _entity(hint)
    if kind in _FIXED:
        size = _FIXED[kind]
        return lambda scan: scan.skip(size)
    size_min = -1 if optional else 0

    def skip(scan: _Scan) -> None:
        found = scan.uvarint() - 1 if flexible else scan.number(_INT16 if kind == "string" else _INT32)
        if found < size_min:
            raise BadResponse(f"a field of {found} bytes")
        scan.skip(max(found, 0))

    return skip


def _array(one: _Skip, flexible: bool, optional: bool) -> _Skip:
    count_min = -1 if optional else 0

    def skip(scan: _Scan) -> None:
        count = scan.uvarint() - 1 if flexible else scan.number(_INT32)
        scan.items_left -= count
        if not count_min <= count <= len(scan.data) - scan.at or scan.items_left < 0:
            raise BadResponse(f"{count} items are claimed where {len(scan.data) - scan.at} bytes are left")
        for _ in range(count):
            one(scan)

    return skip


def _tagged(known: dict[int, _Skip]) -> _Skip:
    """Return a function that skips tagged fields. Those known must be as long as they say: kio relies on it."""

    def skip(scan: _Scan) -> None:
        begin = scan.at
        count = kept = scan.uvarint()
        counted = scan.at
        for _ in range(count):
            first = scan.at
            tag, size = scan.uvarint(), scan.uvarint()
            end = scan.at + size
            if tag in known:
                known[tag](scan)
                if scan.at != end:
                    raise BadResponse(f"tagged field {tag} isn't as long as it says")
            else:
                scan.skip(size)
                kept -= 1
                scan.unknown.append((first, end, b""))
        if kept < count:
            scan.unknown.append((begin, counted, bytes([kept])))

    return skip
