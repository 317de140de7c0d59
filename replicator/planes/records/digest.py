"""Payload digest of the `records` plane: blake2b-128 over canonical bytes of each record, chained by block.

Canonical bytes of a record, all integers big-endian: timestamp i64 (ms) · key length i32 (-1: null) · key ·
value length i32 (-1: null) · value · header count i32 · per header: key length i32 · key · value length i32 ·
value. A reader of the target can make the same bytes from what it reads, so the digest needs no trust in us.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from struct import Struct

_FIXED = Struct(">qii")
_INT = Struct(">i")
_pack_fixed = _FIXED.pack
_pack_int = _INT.pack
NO_HEADERS = _pack_int(0)

Headers = Sequence[tuple[str, bytes | None]]


def canonical_headers(headers: Headers) -> bytes:
    """Return the canonical bytes of a record's headers, count included."""
    parts = [_pack_int(len(headers))]
    for key, value in headers:
        raw = key.encode()
        parts += (_pack_int(len(raw)), raw)
        parts += (_pack_int(-1),) if value is None else (_pack_int(len(value)), value)
    return b"".join(parts)


def add_record(
    parts: list[bytes], timestamp_ms: int, key: bytes | None, value: bytes | None, headers: Headers | None
) -> None:
    """Append one record's canonical bytes to `parts`: fixed part, key, value, headers, in few pieces."""
    parts.append(_pack_fixed(timestamp_ms, -1 if key is None else len(key), -1 if value is None else len(value)))
    if key:
        parts.append(key)
    if value:
        parts.append(value)
    parts.append(canonical_headers(headers) if headers else NO_HEADERS)


class Chain:
    """A running block digest: starts from the previous block's, is fed chunks, ends as the next one's."""

    __slots__ = ("_hash",)

    def __init__(self, previous: str) -> None:
        self._hash = hashlib.blake2b(bytes.fromhex(previous), digest_size=16)

    def update(self, parts: list[bytes]) -> None:
        """Feed the canonical bytes of consecutive records."""
        self._hash.update(b"".join(parts))

    def hexdigest(self) -> str:
        """Return the chained digest so far."""
        return self._hash.hexdigest()
