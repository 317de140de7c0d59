"""Payload digest of the batches plane: blake2b-128 over what a batch holds, chained by transaction.

Of each batch, in the order of the target: compression type u8 · last offset delta i32 · base and highest timestamp i64
(ms; a highest one below -1 counts as -1, as which brokers keep it) · record count i32, all big-endian · its records as
they stand in it, compressed. A reader of the target can make the same bytes from the batches that it fetches, as long
as the target keeps them: a topic with a `compression.type` of its own, and compaction, write others.
"""

from __future__ import annotations

import hashlib
from struct import Struct

from kafka_records.batch import HEADER_BYTES, BatchHeader, Buffer

_FIXED = Struct(">Biqqi")


class PayloadChain:
    """A running digest of one partition's batches: starts from the previous transaction's, ends as the next one's."""

    __slots__ = ("_hash", "codecs")

    def __init__(self, previous: str) -> None:
        self._hash = hashlib.blake2b(bytes.fromhex(previous), digest_size=16)
        self.codecs = 0
        """Compression types so far, see `Evidence`."""

    def update(self, header: BatchHeader, data: Buffer) -> None:
        """Feed the next batch."""
        self.codecs |= 1 << header.compression
        self._hash.update(
            _FIXED.pack(
                header.compression,
                header.last_offset_delta,
                header.base_timestamp,
                max(header.max_timestamp, -1),
                header.record_count,
            )
        )
        self._hash.update(memoryview(data)[HEADER_BYTES:])

    def hexdigest(self) -> str:
        """Return the chained digest so far."""
        return self._hash.hexdigest()
