"""Limits of a request, checked by `Server` before it is decoded: every count must fit into the remaining bytes.

Sans-I/O. The codec allocates an array's claimed size before it reads the first item, so twenty bytes could allocate
32 GiB. Here nothing is allocated: one pass finds where each field ends. It also limits the total number of items of a
request, because two bytes on the wire become a hundred in memory, and removes tagged fields that the codec doesn't
know: the codec refuses them, although KIP-482 requires that they be ignored. Each of them counts as an item, since
three bytes of the wire are looked at, and left out, by themselves.
"""

from __future__ import annotations

import dataclasses
import struct
import typing
from collections.abc import Callable, Sequence
from functools import cache
from types import NoneType
from typing import Any

from embedded_broker.wire.schema import Frame, entity

ITEMS_MAX = 22_000
"""Per request, over all its arrays, and unknown tagged fields: more than a client sends that names 10,000 partitions,
each of another topic. An item becomes two kilobytes of objects, and all of them are decoded at once."""
STRING_BYTES_MAX = 2**15 - 1
"""Of a string in any version of any API. The compact strings of flexible versions could be longer, but no record or
answer in which they are repeated: Kafka's generated readers refuse those, too ("invalid length")."""
UVARINT_BYTES_MAX = 5
TAGS_MAX = 64


@dataclasses.dataclass(slots=True)
class _Scan:
    """State of one pass over a request."""

    items_left: int
    edits: list[tuple[int, int, bytes]] = dataclasses.field(default_factory=list)
    """(from, to, replacement), to remove unknown tagged fields: one for those that follow each other; and records that
    are taken out."""
    taken: list[memoryview | None] | None = None
    """Records that are taken out, in order, with None for those that are null; None where they stay."""

    def count(self, items: int) -> None:
        """Count so many items more. Raises TooManyItems."""
        self.items_left -= items
        if self.items_left < 0:
            raise TooManyItems("too many items in one request")


Skip = Callable[[Frame, int, _Scan], int]
"""(frame, where a field begins, state of the pass) → where it ends. Raises BadRequest, IndexError or struct.error."""

_INT16, _INT32 = struct.Struct(">h").unpack_from, struct.Struct(">i").unpack_from
_FIXED = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "uint16": 2,
    "int32": 4,
    "timedelta_i32": 4,
    "int64": 8,
    "timedelta_i64": 8,
    "float64": 8,
    "uuid": 16,
}


class BadRequest(ValueError):
    """A request that claims more than it holds."""


class TooManyItems(BadRequest):
    """A request with more items than are allowed."""


def check_request(
    name: str,
    version: int,
    frame: Frame,
    at: int,
    items_max: int = ITEMS_MAX,
    taken: list[memoryview | None] | None = None,
) -> tuple[Frame, int]:
    """Check the body of request `name` (snake case), which begins at `at` and ends with the frame.

    Args:
        name: of the API.
        version: of the request.
        frame: with its header.
        at: where the body begins.
        items_max: how many there may be.
        taken: gets the records of each partition, where they stand in `frame`; what is returned has null instead.

    Returns the frame, without tagged fields that this version doesn't have, and how many items there are.

    Raises BadRequest when a count or size doesn't fit, TooManyItems when there are more items than `items_max`.
    """
    scan = _Scan(items_max, taken=taken)
    try:
        end = _entity(entity(name, version, "request"))(frame, at, scan)
    except (IndexError, struct.error) as error:
        raise BadRequest("the request ends too early") from error
    if end > len(frame):
        raise BadRequest("the request ends too early")
    return _edited(frame, scan.edits) if scan.edits else frame, items_max - scan.items_left


def skip_tagged(frame: Frame, at: int) -> int:
    """Return where tagged fields that begin at `at` end, all unknown. Raises BadRequest or IndexError."""
    return _tagged({})(frame, at, _Scan(TAGS_MAX))


def _edited(frame: Frame, edits: list[tuple[int, int, bytes]]) -> bytes:
    parts, at, view = list[bytes | memoryview](), 0, memoryview(frame)  # what stays is copied once
    for start, end, instead in sorted(edits):
        parts += (view[at:start], instead)
        at = end
    return b"".join((*parts, view[at:]))


@cache
def _entity(kind: Any) -> Skip:
    """Return a function that skips all fields of an entity, one after the other. Neighbours of a fixed size are skipped
    together.
    """
    hints = typing.get_type_hints(kind)
    steps: list[Skip | int] = []
    tags: dict[int, Skip] = {}
    for field in dataclasses.fields(kind):
        size, skip = _field(field, hints[field.name], kind.__flexible__)
        if "tag" in field.metadata:
            tags[field.metadata["tag"]] = _fixed(size) if skip is None else skip
        elif skip is not None:
            steps.append(skip)
        elif steps and isinstance(steps[-1], int):
            steps[-1] += size
        else:
            steps.append(size)
    if kind.__flexible__:
        steps.append(_tagged(tags))
    return _sequence([_fixed(step) if isinstance(step, int) else step for step in steps])


def _sequence(steps: Sequence[Skip]) -> Skip:
    def skip(frame: Frame, at: int, scan: _Scan) -> int:
        for step in steps:
            at = step(frame, at, scan)
        return at

    return steps[0] if len(steps) == 1 else skip


def _fixed(size: int) -> Skip:
    return lambda frame, at, scan: at + size


def _field(field: dataclasses.Field[Any], hint: Any, flexible: bool) -> tuple[int, Skip | None]:
    """Return (size, None) of a field of a fixed size, or (0, how to skip it)."""
    parts = [part for part in typing.get_args(hint) if part is not NoneType]
    optional = NoneType in typing.get_args(hint) and typing.get_origin(hint) is not tuple
    if any(typing.get_origin(part) is tuple for part in parts):
        hint = next(part for part in parts if typing.get_origin(part) is tuple)
    if typing.get_origin(hint) is tuple:
        item = typing.get_args(hint)[0]
        return 0, _array(_one(field, item, flexible, NoneType in typing.get_args(item)), flexible, optional)
    found = _one(field, hint, flexible, optional)
    if isinstance(found, int):
        return found, None
    is_entity = "kafka_type" not in field.metadata
    return 0, _nullable(found) if is_entity and optional else found


def _one(field: dataclasses.Field[Any], hint: Any, flexible: bool, optional: bool) -> int | Skip:
    """Return the size of one value, or how to skip it."""
    kind = field.metadata.get("kafka_type")
    if kind is None:
        inner: Any = next(part for part in (hint, *typing.get_args(hint)) if dataclasses.is_dataclass(part))
        return _entity(inner)
    if kind in _FIXED:
        return _FIXED[kind]
    size_min = -1 if optional else 0
    if kind == "records":
        return _records(flexible, size_min)
    if flexible:
        return _compact(size_min, STRING_BYTES_MAX if kind == "string" else None)
    return _sized(_INT16, 2, size_min) if kind == "string" else _sized(_INT32, 4, size_min)


def _records(flexible: bool, size_min: int) -> Skip:
    def skip(frame: Frame, at: int, scan: _Scan) -> int:
        size, begin = _uvarint(frame, at) if flexible else (_INT32(frame, at)[0] + 1, at + 4)
        end = _end(frame, begin, size - 1, size_min)
        if scan.taken is not None:
            is_null = size == 0
            scan.taken.append(None if is_null else memoryview(frame)[begin:end])
            if not is_null:
                scan.edits.append((at, end, b"\x00" if flexible else b"\xff\xff\xff\xff"))
        return end

    return skip


def _nullable(skip: Skip) -> Skip:
    return lambda frame, at, scan: at + 1 if frame[at] >= 0x80 else skip(frame, at + 1, scan)


def _sized(read: Callable[[Frame, int], tuple[Any, ...]], prefix_bytes: int, size_min: int) -> Skip:
    """Return a function that skips text or bytes behind a fixed prefix; `size_min` is -1 where null is allowed."""
    return lambda frame, at, scan: _end(frame, at + prefix_bytes, read(frame, at)[0], size_min)


def _compact(size_min: int, size_max: int | None) -> Skip:
    """Return a function that skips text or bytes behind a varint; `size_max` is None where only the frame is the
    limit.
    """

    def skip(frame: Frame, at: int, scan: _Scan) -> int:
        size, at = _uvarint(frame, at)
        if size_max is not None and size - 1 > size_max:
            raise BadRequest(f"a string of {size - 1} bytes, at most {size_max} are allowed")
        return _end(frame, at, size - 1, size_min)

    return skip


def _end(frame: Frame, at: int, size: int, size_min: int = 0) -> int:
    """Return the place after `size` bytes, or none when that is -1 (null)."""
    if not size_min <= size <= len(frame) - at:
        raise BadRequest(f"{size} bytes are claimed where {len(frame) - at} are left")
    return at + max(size, 0)


def _uvarint(frame: Frame, at: int) -> tuple[int, int]:
    """Read (value, where it ends)."""
    byte = frame[at]
    if byte < 0x80:
        return byte, at + 1
    value = 0
    for index in range(UVARINT_BYTES_MAX):
        byte = frame[at + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, at + index + 1
    raise BadRequest("a number of more than 5 bytes")


def _array(one: int | Skip, flexible: bool, optional: bool) -> Skip:
    bytes_min = one if isinstance(one, int) else 1
    count_min = -1 if optional else 0

    def skip(frame: Frame, at: int, scan: _Scan) -> int:
        if flexible:
            count, at = _uvarint(frame, at)
            count -= 1
        else:
            count, at = _INT32(frame, at)[0], at + 4
        if not count_min <= count <= (len(frame) - at) // bytes_min:
            raise BadRequest(f"{count} items are claimed where {len(frame) - at} bytes are left")
        scan.count(max(count, 0))
        if isinstance(one, int):
            return at + max(count, 0) * one
        for _ in range(count):
            at = one(frame, at, scan)
        return at

    return skip


def _tagged(known: dict[int, Skip]) -> Skip:
    """Return a function that skips tagged fields (KIP-482). Those known must be as long as they say: the codec relies
    on it.
    """

    def skip(frame: Frame, at: int, scan: _Scan) -> int:
        count = frame[at]
        if count == 0:
            return at + 1
        if count > TAGS_MAX:
            raise BadRequest("too many tagged fields")
        begin, at, kept = at, at + 1, count
        unknown_at = -1  # where those that follow each other begin
        for _ in range(count):
            start = at
            tag, at = _uvarint(frame, at)
            size, at = _uvarint(frame, at)
            end = _end(frame, at, size)
            if tag not in known:
                scan.count(1)
                kept -= 1
                unknown_at = start if unknown_at < 0 else unknown_at
            elif known[tag](frame, at, scan) != end:
                raise BadRequest(f"tagged field {tag} isn't as long as it says")
            elif unknown_at >= 0:
                scan.edits.append((unknown_at, start, b""))
                unknown_at = -1
            at = end
        if unknown_at >= 0:
            scan.edits.append((unknown_at, at, b""))
        if kept < count:
            scan.edits.append((begin, begin + 1, bytes([kept])))
        return at

    return skip
