"""Batches of any bytes, for tests of what isn't as it should be."""

from __future__ import annotations

from kafka_records.batch import HEADER_BYTES, write_header


def seal(
    body: bytes,
    *,
    count: int,
    base_timestamp: int,
    max_timestamp: int,
    attributes: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytearray:
    """Make a batch around encoded records, with its CRC; offsets begin at 0."""
    batch = bytearray(HEADER_BYTES + len(body))
    batch[HEADER_BYTES:] = body
    write_header(batch, count, base_timestamp, max_timestamp, attributes, producer_id, producer_epoch, base_sequence)
    return batch
