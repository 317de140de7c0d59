"""Digests of the batches plane, chained by transaction: of batches as they are, where the target keeps them so.

The payload digest is BLAKE3, cut to 128 bits, over what a batch holds: with blake2b, which positions before format 3
have, it was a third of what a copy costs.

Of each batch, in the order of the target: compression type u8 · last offset delta i32 · base and highest timestamp i64
(ms; a highest one below -1 counts as -1, as which brokers keep it) · record count i32, all big-endian · its records as
they stand in it, compressed. A reader of the target can make the same bytes from the batches that it fetches, as long
as the target keeps them: a topic with a `compression.type` of its own, and compaction, write others.

What is written to a topic that compresses anew has the digest of the `records` plane, over decoded records: 3.6 to 8 µs
a record in place of 0.4 (256 to 450 B, none to two headers, on one core), most of it for decoding in Python.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from struct import Struct

from blake3 import blake3

from kafka_records.batch import HEADER_BYTES, BatchHeader, Buffer, CorruptBatch
from kafka_records.compression import COMPRESSION_TYPES
from kafka_records.records import Record, decode
from replicator.model.checkpoint import DIGEST_KIND, OLD_PAYLOAD_DIGEST_KIND, PAYLOAD_DIGEST_KIND
from replicator.model.partition import Partition
from replicator.planes.records.digest import Chain, Fields

DIGEST_BYTES = 16
_FIXED = Struct(">Biqqi")


class PayloadChain:
    """A running digest of one partition's batches: starts from the previous transaction's, ends as the next one's."""

    __slots__ = ("_hash", "codecs", "kind")

    def __init__(self, previous: str, kind: str = PAYLOAD_DIGEST_KIND) -> None:
        """`kind`: PAYLOAD_DIGEST_KIND, or OLD_PAYLOAD_DIGEST_KIND to compare a block that has it."""
        old, before = kind == OLD_PAYLOAD_DIGEST_KIND, bytes.fromhex(previous)
        self._hash = hashlib.blake2b(before, digest_size=DIGEST_BYTES) if old else blake3(before)
        self.kind, self.codecs = kind, 0
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
        return self._hash.digest()[:DIGEST_BYTES].hex()


class DecodedChain:
    """The digest of the `records` plane, of batches. A batch that can't be decoded leaves one that can't be compared: a
    target that takes it all the same has other bytes."""

    __slots__ = ("_chain", "codecs", "kind")

    def __init__(self, previous: str) -> None:
        self._chain = Chain(previous)
        self.kind, self.codecs = DIGEST_KIND, 0

    def update(self, header: BatchHeader, data: Buffer) -> None:
        """Feed the next batch."""
        try:
            self._chain.update(map(fields_of, decode(data)))
        except CorruptBatch:
            self.kind = PAYLOAD_DIGEST_KIND

    def hexdigest(self) -> str:
        """Return the chained digest so far."""
        return self._chain.hexdigest()


def fields_of(record: Record) -> Fields:
    """Return what the digest of the `records` plane is made of."""
    headers = [(name.decode(errors="surrogateescape"), value) for name, value in record.headers]
    return record.key, record.value, record.timestamp_ms, headers


class Chains:
    """Which digest a partition's next block gets."""

    def __init__(self, compression: Mapping[Partition, str]) -> None:
        """`compression`: compression.type of the target topics, by source partition, as far as it is known."""
        self._codecs = {at: COMPRESSION_TYPES[name] for at, name in compression.items() if name in COMPRESSION_TYPES}
        self._differ: set[Partition] = set()  # that had a batch which the target compresses anew

    def begun(self, at: Partition, first: BatchHeader, previous: str) -> PayloadChain | DecodedChain:
        """Return the digest of a block that begins with this batch. Where a later one of it has another compression
        type than the target, the block can't be compared, and the next one is decoded."""
        self.look(at, first)
        return DecodedChain(previous) if at in self._differ else PayloadChain(previous)

    def look(self, at: Partition, header: BatchHeader) -> None:
        """Take note of how a batch is compressed."""
        if self._codecs and self._codecs.get(at, header.compression) != header.compression:
            self._differ.add(at)
