"""The flexible versions' way to write lengths, strings and tagged fields (KIP-482). Pure.

Used by `list_offsets`, `metadata_response`, `offset_fetch_groups` and `offset_commit`.
"""

from __future__ import annotations

from struct import Struct

from replicator.wire.response_limits import BadResponse

_HEADER = Struct(">hhih")  # API key, version, correlation id, length of the client's id


def uvarint(value: int) -> bytes:
    """Encode an unsigned varint."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def written(text: str) -> bytes:
    """Encode a string."""
    data = text.encode()
    return uvarint(len(data) + 1) + data


def header(key: int, version: int, client_id: str) -> bytes:
    """Make the header of a request; `Connection.send` puts in its correlation id."""
    client = client_id.encode()
    return _HEADER.pack(key, version, 0, len(client)) + client + b"\0"


def read_uvarint(data: bytes | bytearray, at: int) -> tuple[int, int]:
    """Read an unsigned varint, and where it ends. Raises BadResponse, IndexError."""
    value = 0
    for shift in range(0, 35, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise BadResponse("a number of more than 5 bytes")


def count(data: bytes | bytearray, at: int) -> tuple[int, int]:
    """Read how many items an array has; each takes a byte at least. Raises BadResponse, IndexError."""
    length, at = read_uvarint(data, at)
    if length - 1 > len(data) - at:
        raise BadResponse(f"{length - 1} items are claimed where {len(data) - at} bytes are left")
    return max(0, length - 1), at


def string(data: bytes | bytearray, at: int) -> tuple[str, int]:
    """Read a string, empty where there is none; return it and where it ends. Raises BadResponse, IndexError,
    UnicodeDecodeError.
    """
    length, at = read_uvarint(data, at)
    end = at + max(0, length - 1)
    if end > len(data):
        raise BadResponse("a string ends behind it")
    return data[at:end].decode(), end


def skip_tagged(data: bytes | bytearray, at: int) -> int:
    """Return where tagged fields end; a client ignores those that it doesn't know. Raises BadResponse, IndexError."""
    tags, at = read_uvarint(data, at)
    for _ in range(tags):
        _, at = read_uvarint(data, at)
        size, at = read_uvarint(data, at)
        at += size
    return at
