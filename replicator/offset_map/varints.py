"""Unsigned varints, as org.apache.kafka.common.utils.ByteUtils writes them, for blocks of the map. Used by `block`.

Kafka's records have signed ones (`kafka_records.varints`); offsets, lengths and gaps are never negative, and in an
unsigned one a byte holds a length up to 127.
"""

from __future__ import annotations

OFFSET_MAX = (1 << 63) - 1
"""Offsets have 64 bits with a sign."""


class BadBlock(ValueError):
    """Bytes that are no block of the map, or not one that this version may read."""


def put(out: bytearray, value: int) -> None:
    """Append a number from 0 to OFFSET_MAX."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


class VarintReader:
    """Reads numbers and bytes, never beyond the end of what it was given."""

    __slots__ = ("at", "data")

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    @property
    def left(self) -> int:
        """Bytes that were not read yet."""
        return len(self.data) - self.at

    def number(self) -> int:
        """Read a number from 0 to OFFSET_MAX. Raises BadBlock."""
        at = self.at
        if at < len(self.data) and (byte := self.data[at]) < 0x80:  # as most are
            self.at = at + 1
            return byte
        return self.numbers(1)[0]

    def numbers(self, count: int) -> list[int]:
        """Read so many numbers. Raises BadBlock."""
        data, at = self.data, self.at
        found: list[int] = []
        try:
            for _ in range(count):
                byte = value = data[at]
                at += 1
                if byte > 0x7F:
                    value, shift = byte & 0x7F, 7
                    while byte > 0x7F:
                        if shift > 56:  # nine bytes hold 63 bits
                            raise BadBlock("a number longer than 63 bits")
                        byte = data[at]
                        at += 1
                        value |= (byte & 0x7F) << shift
                        shift += 7
                found.append(value)
        except IndexError:
            raise BadBlock("ends inside a number") from None
        self.at = at
        return found

    def count(self, what: str, bytes_min: int, most: int) -> int:
        """Read how many items follow, each of at least `bytes_min` bytes, `most` in all.

        Raises BadBlock before anything is kept for them: where the bytes left can't hold so many, or more are claimed
        than a block may have.
        """
        count = self.number()
        if count > most or count * bytes_min > len(self.data) - self.at:
            raise BadBlock(f"{count} {what} in {self.left} bytes")
        return count

    def byte(self) -> int:
        """Read one byte. Raises BadBlock."""
        try:
            found = self.data[self.at]
        except IndexError:
            raise BadBlock("1 byte expected, 0 left") from None
        self.at += 1
        return found

    def take(self, length: int) -> bytes:
        """Read so many bytes. Raises BadBlock."""
        at = self.at
        found = self.data[at : at + length]
        if len(found) != length:
            raise BadBlock(f"{length} bytes expected, {len(found)} left")
        self.at = at + length
        return found
