"""Payload digest of the `records` plane: blake2b-128 over canonical bytes of each record, chained by block.

Canonical bytes of a record, all integers big-endian: timestamp i64 (ms) · key length i32 (-1: null) · key ·
value length i32 (-1: null) · value · header count i32 · per header: key length i32 · key · value length i32 ·
value. A reader of the target can make the same bytes from what it reads, so the digest needs no trust in us.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Any

_FIXED = Struct(">qii")
_INT = Struct(">i")
_pack_fixed = _FIXED.pack
_pack_int = _INT.pack
NO_HEADERS = _pack_int(0)

Headers = Sequence[tuple[str, bytes | None]]
Fields = tuple[bytes | None, bytes | None, int, Any]
"""Of a record: key, value, timestamp (ms), headers."""


def canonical_headers(headers: Headers) -> bytes:
    """Return the canonical bytes of a record's headers, count included. Bytes of a key that aren't UTF-8 stand in it as
    `surrogateescape` has them."""
    parts = [_pack_int(len(headers))]
    for key, value in headers:
        raw = key.encode(errors="surrogateescape")
        parts += (_pack_int(len(raw)), raw)
        parts += (_pack_int(-1),) if value is None else (_pack_int(len(value)), value)
    return b"".join(parts)


def canonical(records: Iterable[Fields]) -> bytes:
    """Return the canonical bytes of consecutive records."""
    parts: list[bytes] = []
    append = parts.append
    for key, value, timestamp_ms, headers in records:
        append(_pack_fixed(timestamp_ms, -1 if key is None else len(key), -1 if value is None else len(value)))
        if key:
            append(key)
        if value:
            append(value)
        append(canonical_headers(headers) if headers else NO_HEADERS)
    return b"".join(parts)


class Chain:
    """A running block digest: starts from the previous block's, is fed chunks, ends as the next one's."""

    __slots__ = ("_hash",)

    def __init__(self, previous: str) -> None:
        self._hash = hashlib.blake2b(bytes.fromhex(previous), digest_size=16)

    def update(self, records: Iterable[Fields]) -> None:
        """Feed consecutive records."""
        self._hash.update(canonical(records))

    def hexdigest(self) -> str:
        """Return the chained digest so far."""
        return self._hash.hexdigest()
