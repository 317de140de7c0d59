"""Batches of any bytes, for tests of what isn't as it should be."""

from __future__ import annotations

from kafka_records.batch import HEADER_BYTES, write_header


def seal(body: bytes, **header: int) -> bytearray:
    """Make a batch around encoded records, with its CRC; offsets begin at 0. `header` goes to `write_header`."""
    batch = bytearray(HEADER_BYTES + len(body))
    batch[HEADER_BYTES:] = body
    write_header(batch, **header)
    return batch
