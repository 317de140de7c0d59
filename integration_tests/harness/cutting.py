"""A log that has lost its end, as after an unclean leader election, or of which a byte is damaged: the rest stands."""

from __future__ import annotations

import struct

FIRST_SEGMENT = "00000000000000000000.log"
_HEAD = struct.Struct(">qi")  # base offset, bytes after this field


def flipped(segment: bytes, value: bytes, *, mend: bool) -> tuple[int, bytes]:
    """Where the first byte of a value stands in a segment, and what is to stand there: its complement, or itself where
    it is mended. Raises AssertionError unless it stands there once."""
    whole, damaged = value, bytes([value[0] ^ 0xFF]) + value[1:]
    looked_for = damaged if mend else whole
    assert segment.count(looked_for) == 1, segment
    return segment.index(looked_for), (whole if mend else damaged)[:1]


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
