"""How large a record is in a batch of its own, which is what brokers compare with max.message.bytes. Pure."""

from __future__ import annotations

from typing import Any

BATCH_OVERHEAD_BYTES = 61  # a record batch's header: what the broker compares with max.message.bytes has it
FRAMING_BYTES_MAX = 128  # that and all lengths and deltas of a single record


def encoded_bytes(key: bytes | None, value: bytes | None, headers: list[Any] | None) -> int:
    """Count the bytes of an uncompressed record batch that holds this record alone (magic 2)."""
    size = 1 + 1 + 1 + _field(key) + _field(value) + _varint(len(headers or ()))  # attributes, both deltas of 0
    for name, content in headers or ():
        size += _field(name.encode()) + _field(content)
    return BATCH_OVERHEAD_BYTES + _varint(size) + size


def _field(content: bytes | None) -> int:
    return 1 if content is None else _varint(len(content)) + len(content)


def _varint(number: int) -> int:
    """Count the bytes of a zigzag varint of a number that isn't negative."""
    return max(1, -(-(2 * number).bit_length() // 7))
