"""Numbers and byte strings as records have them. Sans-I/O.

Varints are zigzag-encoded as in org.apache.kafka.common.utils.ByteUtils. Claimed lengths are checked against the bytes
left before anything is allocated.
"""

from __future__ import annotations

from mmap import mmap

from kafka_records.batch import CorruptBatch


def varint(value: int) -> bytes:
    """Encode a number as records have them."""
    zigzag = (value << 1) ^ (value >> 63)
    zigzag &= (1 << 64) - 1
    out = bytearray()
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


def field(value: bytes | None) -> bytes:
    """Encode a byte string behind its length; -1 stands for none."""
    return varint(-1) if value is None else varint(len(value)) + value


class Cursor:
    """Reads varints and byte strings; refuses lengths beyond the bytes left."""

    def __init__(self, data: bytes | bytearray | memoryview | mmap, at: int = 0) -> None:
        self.data, self.at = data, at

    def varint(self) -> int:
        """Read the next number, which has 64 bits at most."""
        at = self.at
        try:
            byte = self.data[at]
            if byte < 0x80:  # nearly all
                self.at = at + 1
                return (byte >> 1) ^ -(byte & 1)
            value, shift = byte & 0x7F, 7
            while byte >= 0x80:
                if shift > 63:
                    raise CorruptBatch("number longer than 64 bits")
                at += 1
                byte = self.data[at]
                value |= (byte & 0x7F) << shift
                shift += 7
        except IndexError as error:
            raise CorruptBatch("record ends inside a number") from error
        if value >= 1 << 64:
            raise CorruptBatch("number longer than 64 bits")
        self.at = at + 1
        return (value >> 1) ^ -(value & 1)

    def field(self) -> bytes | None:
        """Read the next byte string, behind its length; None for length -1."""
        length = self.varint()
        if length == -1:
            return None
        begin, end = self.at, self.at + length
        if length < 0 or end > len(self.data):
            raise CorruptBatch(f"field of {length} bytes in {len(self.data) - begin}")
        self.at = end
        return bytes(self.data[begin:end])

    def skip_field(self) -> bool:
        """Skip what `field` reads; return whether there is one."""
        length = self.varint()
        if length < -1 or length > len(self.data) - self.at:
            raise CorruptBatch(f"field of {length} bytes in {len(self.data) - self.at}")
        self.at += max(length, 0)
        return length >= 0

    def headers(self) -> tuple[tuple[bytes, bytes | None], ...]:
        """Read all headers of a record, in order."""
        count = self.varint()
        if count < 0 or count > len(self.data) - self.at:
            raise CorruptBatch(f"{count} headers in {len(self.data) - self.at} bytes")
        found = []
        for _ in range(count):
            key = self.field()
            if key is None:
                raise CorruptBatch("header without a key")
            found.append((key, self.field()))
        return tuple(found)
