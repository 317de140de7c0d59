"""Frames: a signed 32-bit size, then that many bytes, which begin with a request header. Sans-I/O.

Nothing is allocated for a claimed size: bytes are kept as they come, and a size out of bounds ends the connection.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from embedded_broker.wire.request_limits import BadRequest, skip_tagged
from embedded_broker.wire.schema import Frame

SIZE_BYTES = 4
TLS_RECORDS = range(0x14030000, 0x18000000)
"""What the first four bytes of TLS are, taken for a size."""
PREFIX = struct.Struct(">hhi")
"""API key, version, correlation id."""
KEY_BYTES = 2
PRODUCE = 0
COPIED_BYTES_MAX = 64 * 1024
"""A longer Produce request is memory of its own, into which the log writes the offsets; it isn't copied any more."""
_CLIENT_ID = struct.Struct(">h")


class BadFrame(ValueError):
    """A size below the smallest request header or above the limit."""


@dataclass(frozen=True, slots=True)
class WithoutRecords:
    """The limit of all requests but those that carry records. Clients send lists of names: what is longer costs more
    time and memory in objects than in bytes."""

    bytes_max: int
    names: Mapping[int, str]
    """Of APIs, by their keys."""

    def check(self, key: int, size: int) -> None:
        """Check a frame of `size` bytes. Raises BadFrame."""
        if size > self.bytes_max and key != PRODUCE:
            name = self.names.get(key, f"API {key}")
            raise BadFrame(f"{name}: frame of {size} bytes; without records allowed are {self.bytes_max}")


class Framer:
    """Cuts a byte stream into frames. `bytes_max` may change between two frames."""

    def __init__(self, bytes_max: int, bytes_min: int = PREFIX.size) -> None:
        """Frames are `bytes_min` (key, version and correlation id) to `bytes_max` bytes without their size."""
        self.bytes_max, self.bytes_min = bytes_max, bytes_min
        self.without_records: WithoutRecords | None = None
        """Where frames are requests."""
        self._buffer = bytearray()
        self._wanted = -1

    @property
    def partial_bytes(self) -> int:
        """Bytes held of a frame that is not whole yet."""
        return len(self._buffer)

    @property
    def _is_kept(self) -> bool:
        """Whether the next frame is a request that isn't copied any more."""
        return self._wanted > COPIED_BYTES_MAX and self.without_records is not None

    @property
    def holds_whole(self) -> bool:
        """Whether the next frame is here already. Raises BadFrame."""
        return self._end(self._buffer, 0) is not None

    def feed(self, data: bytes | bytearray | memoryview, frames_max: int | None = None) -> Iterator[Frame]:
        """Take bytes in; yields whole frames, at most `frames_max`: others are held, see `holds_whole`.

        A frame that is whole in `data` is copied once, out of it; `data` may be used for something else afterwards.
        One that has come in pieces and is most of what is held isn't copied at all. Long requests are bytearrays, which
        are the caller's.

        Raises BadFrame at a bad size, after the frames before it.
        """
        held = self._buffer
        if held:
            held += data
        source, at = held or data, 0
        count = 0
        while count != frames_max and (end := self._end(source, at)) is not None:
            begin, is_kept, self._wanted = at + SIZE_BYTES, self._is_kept, -1
            frame: Frame
            if is_kept and source is held and 2 * (end - at) > len(held):
                rest = self._buffer = held[end:]
                del held[end:], held[:begin]
                frame, source, held, at = held, rest, rest, 0
            else:
                with memoryview(source) as view:
                    frame = bytearray(view[begin:end]) if is_kept else bytes(view[begin:end])
                at = end
            count += 1
            yield frame
        if source is held:
            del held[:at]
        else:
            held += memoryview(source)[at:]

    def _end(self, source: bytes | bytearray | memoryview, at: int) -> int | None:
        """Return where the frame at `at` ends; None if it isn't whole."""
        if self._wanted < 0:
            if len(source) - at < SIZE_BYTES:
                return None
            size = self._size(source[at : at + SIZE_BYTES])
            if self.without_records is not None and size > self.without_records.bytes_max:
                begin = at + SIZE_BYTES
                if len(source) < begin + KEY_BYTES:
                    return None
                self.without_records.check(int.from_bytes(source[begin : begin + KEY_BYTES], "big"), size)
            self._wanted = size
        end = at + SIZE_BYTES + self._wanted
        return end if end <= len(source) else None

    def _size(self, prefix: bytes | bytearray | memoryview) -> int:
        size = int.from_bytes(prefix, "big", signed=True)
        if not self.bytes_min <= size <= self.bytes_max:
            hint = " (TLS, where plain text is spoken?)" if size in TLS_RECORDS else ""
            raise BadFrame(f"frame of {size} bytes{hint}; allowed are {self.bytes_min} to {self.bytes_max}")
        return size


def read_header(frame: Frame, flexible: bool) -> tuple[str, int]:
    """Read (client id, where the body begins) of a request; `flexible`: its header is of version 2.

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
