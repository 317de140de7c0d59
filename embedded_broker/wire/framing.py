"""Frames: a signed 32-bit size, then that many bytes, which begin with a request header. Sans-I/O.

Nothing is allocated for a claimed size: bytes are kept as they come, and a size out of bounds ends the connection.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from embedded_broker.wire.skim import BadRequest, skip_tagged

SIZE_BYTES = 4
TLS_RECORDS = range(0x14030000, 0x18000000)
"""What the first four bytes of TLS are, taken for a size."""
PREFIX = struct.Struct(">hhi")
"""API key, version, correlation id."""
_CLIENT_ID = struct.Struct(">h")


class BadFrame(ValueError):
    """A size below the smallest request header or above the limit."""


class Framer:
    """Cuts a byte stream into frames. `bytes_max` may change between two frames."""

    def __init__(self, bytes_max: int, bytes_min: int = PREFIX.size) -> None:
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
            hint = " (TLS, where plain text is spoken?)" if size in TLS_RECORDS else ""
            raise BadFrame(f"frame of {size} bytes{hint}; allowed are {self.bytes_min} to {self.bytes_max}")
        return size


def read_header(frame: bytes, flexible: bool) -> tuple[str, int]:
    """(client id, where the body begins) of a request; `flexible`: its header is of version 2.

    Raises BadRequest, or UnicodeDecodeError.
    """
    try:
        length = _CLIENT_ID.unpack_from(frame, PREFIX.size)[0]
        at = PREFIX.size + _CLIENT_ID.size
        end = at + max(length, 0)
        if length < -1 or end > len(frame):
            raise BadRequest("the client id is longer than the request")
        return frame[at:end].decode(), skip_tagged(frame, end) if flexible else end
    except (struct.error, IndexError) as error:
        raise BadRequest("the header ends too early") from error
