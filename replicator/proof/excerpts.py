"""The fields of an altered record side by side, shortened around what differs, as text that is safe to show. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from replicator.model.printable import printable

BEFORE_BYTES, DIFFERING_BYTES, AFTER_BYTES = 24, 64, 24
"""Bytes of a field that are shown before, of and behind what differs."""
_ESCAPED_SHARE_MAX = 0.3
"""With more characters than these to be escaped, hexadecimal is easier to read."""

Header = tuple[str, bytes | None]


class Fields(NamedTuple):
    """What a record says. `headers` None: there are none."""

    key: bytes | None
    value: bytes | None
    headers: Sequence[Header] | None
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class Excerpt:
    """One field of one side: what differs, with a little of what stands before and behind it.

    `bytes`: the whole field's length; None: it is null. `sha256`: of the whole field. `cut_before`, `cut_after`:
    whether more stands there. `cut_differing`: whether more differs than is shown; then nothing follows it.
    """

    before: str = ""
    differing: str = ""
    after: str = ""
    bytes: int | None = None
    sha256: str | None = None
    cut_before: bool = False
    cut_differing: bool = False
    cut_after: bool = False


@dataclass(frozen=True, slots=True)
class FieldPair:
    """One field of both sides."""

    name: str
    same: bool
    source: Excerpt
    target: Excerpt


def side_by_side(source: Fields, target: Fields) -> tuple[FieldPair, ...]:
    """Return key, value, headers and timestamp of both sides, in this order."""
    headers = _header_bytes(source.headers), _header_bytes(target.headers)
    times = str(source.timestamp_ms).encode(), str(target.timestamp_ms).encode()
    pairs = {
        "key": (source.key, target.key),
        "value": (source.value, target.value),
        "headers": headers,
        "timestamp": times,
    }
    return tuple(FieldPair(name, one == other, *excerpts(one, other)) for name, (one, other) in pairs.items())


def excerpts(one: bytes | None, other: bytes | None) -> tuple[Excerpt, Excerpt]:
    """Return both sides of one field, cut at the same place: around the first byte that differs.

    Of fields that are equal, or that only one side has, the beginning is shown.
    """
    if one is None or other is None or one == other:
        first, last = 0, 0
    else:
        first, last = _common(one, other)
    sides = [_cut(data, first, last, marked=one != other) for data in (one, other)]
    binary = any(_binary(part) for side in sides if side is not None for part in side[:3])
    here, there = (
        _excerpt(data, side, binary=binary) for data, side in zip((one, other), sides, strict=True)
    )  # both as text, or both in hexadecimal: else they can't be compared by eye
    return here, there


def text_of(data: bytes, *, binary: bool | None = None) -> str:
    """Write bytes as people read them: text in which control characters, invalid UTF-8 and backslashes are escaped, so
    that different bytes never look alike; mostly binary data in hexadecimal.

    Args:
        binary: hexadecimal (True) or text (False); None: as the data is.
    """
    if binary if binary is not None else _binary(data):
        return "0x" + data.hex() if data else ""
    return printable(data.decode("utf-8", "surrogateescape"), backslash=True)


def _binary(data: bytes) -> bool:
    text = data.decode("utf-8", "surrogateescape")
    return sum(not character.isprintable() for character in text) > _ESCAPED_SHARE_MAX * max(1, len(text))


def _common(one: bytes, other: bytes) -> tuple[int, int]:
    """Count how many bytes both have alike at the beginning, and behind those at the end; whole characters of UTF-8."""
    shorter = min(len(one), len(other))
    first = _alike(one, other, shorter)
    while first and (_inside(one, first) or _inside(other, first)):
        first -= 1
    last = _alike(one[::-1], other[::-1], shorter - first)
    while last and (_inside(one, len(one) - last) or _inside(other, len(other) - last)):
        last -= 1
    return first, last


def _alike(one: bytes, other: bytes, end: int) -> int:
    """Count how many bytes are alike from the beginning, at most `end`; found by halving, for values of many
    megabytes.
    """
    low, high = 0, end
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _inside(data: bytes, at: int) -> bool:
    """Return whether a character of UTF-8 goes on at this place."""
    return at < len(data) and data[at] & 0xC0 == 0x80


_Parts = tuple[bytes, bytes, bytes, bool, bool, bool]


def _cut(data: bytes | None, first: int, last: int, *, marked: bool) -> _Parts | None:
    """Return the bytes before, of and behind what differs, and which of them were cut."""
    if data is None:
        return None
    if not marked:
        end = _whole(data, DIFFERING_BYTES)
        return data[:end], b"", b"", False, False, end < len(data)
    start = _whole(data, max(0, first - BEFORE_BYTES))
    end = len(data) - last
    shown = min(end, _whole(data, first + DIFFERING_BYTES))
    if shown < end:
        return data[start:first], data[first:shown], b"", start > 0, True, False
    after = _whole(data, end + AFTER_BYTES)
    return data[start:first], data[first:end], data[end:after], start > 0, False, after < len(data)


def _whole(data: bytes, at: int) -> int:
    """Return this place, or the nearest one before it at which no character of UTF-8 is divided."""
    if at >= len(data):
        return len(data)
    back = next((step for step in range(4) if at >= step and not _inside(data, at - step)), 0)
    return at - back


def _excerpt(data: bytes | None, parts: _Parts | None, *, binary: bool) -> Excerpt:
    if data is None or parts is None:
        return Excerpt()
    before, differing, after = (text_of(part, binary=binary) for part in parts[:3])
    if binary:  # one number in three parts
        differing = differing.removeprefix("0x") if before else differing
        after = after.removeprefix("0x") if before or differing else after
    return Excerpt(before, differing, after, len(data), hashlib.sha256(data).hexdigest(), *parts[3:])


def _header_bytes(headers: Sequence[Header] | None) -> bytes | None:
    """Write headers as `name="value"` each, quotes in it doubled, null without quotes: headers that differ give
    different bytes.
    """
    if not headers:
        return None
    return b", ".join(_header(name, value) for name, value in headers)


def _header(name: str, value: bytes | None) -> bytes:
    quoted = b"null" if value is None else b'"' + value.replace(b'"', b'""') + b'"'
    return name.encode("utf-8", "surrogateescape") + b"=" + quoted
