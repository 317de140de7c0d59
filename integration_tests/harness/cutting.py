"""A log that has lost its end, as after an unclean leader election: acknowledged records are gone, the rest stands."""

from __future__ import annotations

import struct

FIRST_SEGMENT = "00000000000000000000.log"
_HEAD = struct.Struct(">qi")  # base offset, bytes after this field


def batches_below(segment: bytes, offset: int) -> bytes:
    """The first bytes of a segment, up to the batch that begins at `offset`. Kafka's format v2, both brokers use it.

    Raises AssertionError when no batch begins there.
    """
    at, bases = 0, list[int]()
    while at < len(segment):
        base, size = _HEAD.unpack_from(segment, at)
        if base == offset:
            return segment[:at]
        at += _HEAD.size + size
        bases.append(base)
    raise AssertionError(f"no batch begins at offset {offset}, but at {bases}")
