"""Primitive fields of Kafka's log records, for the internal topics: big-endian numbers, strings, tagged fields."""

from __future__ import annotations

import struct
from uuid import UUID

STRING_BYTES_MAX = 2**15 - 1
SMALL = [bytes((number,)) for number in range(0x80)]
_NUMBERS = {code: struct.Struct(f">{code}") for code in "bhiq"}


class StringTooLong(ValueError):
    """A string that no record can hold: `wire.request_limits` and `api.boundary` let none in."""


class Truncated(Exception):
    """An internal record ends before its last field, or claims a length beyond its end."""


def put_string(text: str) -> bytes:
    """Encode text as an int16 length and UTF-8. Raises StringTooLong."""
    raw = text.encode()
    if len(raw) > STRING_BYTES_MAX:
        raise StringTooLong(f"{len(raw)} bytes of text in a record, at most {STRING_BYTES_MAX} are allowed")
    return struct.pack(">h", len(raw)) + raw


def put_nullable_string(text: str | None) -> bytes:
    """Encode as `put_string` does; length -1 for None."""
    return b"\xff\xff" if text is None else put_string(text)


def put_bytes(raw: bytes) -> bytes:
    """Encode bytes as an int32 length and the bytes."""
    return struct.pack(">i", len(raw)) + raw


def put_uvarint(number: int) -> bytes:
    """Encode an unsigned varint, as the flexible versions use for lengths and tags."""
    if number <= 0x7F:  # nearly all
        return SMALL[number]
    if number <= 0x3FFF:
        return bytes((number & 0x7F | 0x80, number >> 7))
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def put_compact_string(text: str) -> bytes:
    """Encode text as an unsigned varint of length plus one, and UTF-8."""
    raw = text.encode()
    return put_uvarint(len(raw) + 1) + raw


def put_nullable_compact_string(text: str | None) -> bytes:
    """Encode as `put_compact_string` does; length zero for None."""
    return b"\0" if text is None else put_compact_string(text)


def put_tags(tags: dict[int, bytes]) -> bytes:
    """Encode the tagged fields that end a flexible structure, in rising order of tags."""
    parts = [put_uvarint(len(tags))]
    for tag in sorted(tags):
        parts += [put_uvarint(tag), put_uvarint(len(tags[tag])), tags[tag]]
    return b"".join(parts)


class FieldReader:
    """Reads fields one after the other; every length is checked against what is left.

    Raises:
        Truncated: from every method, if the record is too short for the field.
    """

    def __init__(self, raw: bytes | memoryview) -> None:
        self._raw = bytes(raw)
        self._position = 0

    def _take(self, size: int) -> bytes:
        end = self._position + size
        if size < 0 or end > len(self._raw):
            raise Truncated(f"{size} bytes wanted at {self._position} of {len(self._raw)}")
        taken = self._raw[self._position : end]
        self._position = end
        return taken

    def number(self, code: str) -> int:
        """Read a signed big-endian number: code b, h, i or q as in `struct`."""
        value: int = self.numbers(_NUMBERS[code])[0]
        return value

    def numbers(self, layout: struct.Struct) -> tuple[int, ...]:
        """Read numbers that follow each other."""
        try:
            values = layout.unpack_from(self._raw, self._position)
        except struct.error as error:
            wanted = f"{layout.size} bytes wanted at {self._position} of {len(self._raw)}"
            raise Truncated(wanted) from error
        self._position += layout.size
        return values

    def uvarint(self) -> int:
        """Read an unsigned varint of at most 32 bits."""
        if self._position < len(self._raw) and self._raw[self._position] < 0x80:  # nearly all
            self._position += 1
            return self._raw[self._position - 1]
        value = 0
        for shift in range(0, 35, 7):
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise Truncated("varint longer than 32 bits")

    def string(self) -> str:
        """Read a string with an int16 length."""
        return self._take(self.number("h")).decode()

    def nullable_string(self) -> str | None:
        """Read a string with an int16 length, None for -1."""
        size = self.number("h")
        return None if size == -1 else self._take(size).decode()

    def blob(self) -> bytes:
        """Read bytes with an int32 length."""
        return self._take(self.number("i"))

    def compact_string(self) -> str:
        """Read a string with a varint of length plus one."""
        return self._take(self.uvarint() - 1).decode()

    def nullable_compact_string(self) -> str | None:
        """Read a string with a varint of length plus one, None for zero."""
        size = self.uvarint()
        return None if size == 0 else self._take(size - 1).decode()

    def count(self) -> int:
        """Read the number of elements of a flexible array, which has a varint of their number plus one; each takes a
        byte at least.
        """
        count = self.uvarint() - 1
        if not 0 <= count <= len(self._raw) - self._position:
            raise Truncated(f"{count} elements in {len(self._raw) - self._position} bytes")
        return count

    def uuid(self) -> UUID:
        """Read a UUID of sixteen bytes."""
        return UUID(bytes=self._take(16))

    def tags(self) -> dict[int, bytes]:
        """Read the tagged fields at the end of a flexible structure."""
        return {self.uvarint(): self._take(self.uvarint()) for _ in range(self.uvarint())}
