"""Frames: a signed 32-bit size, then that many bytes. Sans-I/O.

Nothing is allocated for a claimed size: bytes are kept as they come, and a size out of bounds ends the connection.
"""

from __future__ import annotations

from collections.abc import Iterator

SIZE_BYTES = 4


class BadFrame(ValueError):
    """A size below the smallest request header or above the limit."""


class Framer:
    """Cuts a byte stream into frames."""

    def __init__(self, bytes_max: int, bytes_min: int = 8) -> None:
        """Frames are `bytes_min` (key, version and correlation id) to `bytes_max` bytes without their size."""
        self.bytes_max, self.bytes_min = bytes_max, bytes_min
        self._buffer = bytearray()
        self._wanted = -1

    @property
    def partial_bytes(self) -> int:
        """Bytes held of a frame that is not whole yet."""
        return len(self._buffer)

    def feed(self, data: bytes | bytearray | memoryview) -> Iterator[bytes]:
        """Take bytes in; yields whole frames. Raises BadFrame at a bad size, after the frames before it."""
        self._buffer += data
        while True:
            if self._wanted < 0:
                if len(self._buffer) < SIZE_BYTES:
                    return
                self._wanted = self._size()
            end = SIZE_BYTES + self._wanted
            if len(self._buffer) < end:
                return
            with memoryview(self._buffer) as view:
                frame = bytes(view[SIZE_BYTES:end])
            del self._buffer[:end]
            self._wanted = -1
            yield frame

    def _size(self) -> int:
        size = int.from_bytes(self._buffer[:SIZE_BYTES], "big", signed=True)
        if not self.bytes_min <= size <= self.bytes_max:
            raise BadFrame(f"frame of {size} bytes; allowed are {self.bytes_min} to {self.bytes_max}")
        return size
