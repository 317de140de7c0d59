"""`walk` goes through the batches of a segment file from a position on, and checks each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from embedded_broker.config.thresholds import DEFAULTS
from kafka_records.batch import HEADER_BYTES, BatchHeader, CorruptBatch, UnsupportedMagic, check_crc, read_header


class Readable(Protocol):
    """As much of a file as reading needs."""

    def read(self, at: int, size: int) -> bytes:
        """See fs.File."""

    def size(self) -> int:
        """See fs.File."""


def walk(
    file: Readable, at: int = 0, chunk_bytes: int = DEFAULTS.scan_bytes
) -> Iterator[tuple[BatchHeader | None, memoryview, str]]:
    """Yield sound batches from byte `at`; last, if there is one, the first that isn't, as (None, nothing, why).

    Sound is a batch by itself; whether its offsets follow those before it is for the caller to see. Raises OSError.
    """
    size, data, start = file.size(), memoryview(b""), 0
    while at < size:
        if at + HEADER_BYTES > start + len(data):
            data, start = memoryview(file.read(at, chunk_bytes)), at
        try:
            header = read_header(data, at - start)
            batch_bytes = header.size_bytes
            if batch_bytes > size - at:
                raise CorruptBatch(f"a batch of {batch_bytes} bytes in {size - at}")
            if at + batch_bytes > start + len(data):
                data, start = memoryview(file.read(at, max(chunk_bytes, batch_bytes))), at
            view = data[at - start : at - start + batch_bytes]
            check_crc(view)
        except (CorruptBatch, UnsupportedMagic) as error:
            yield None, memoryview(b""), str(error)
            return
        yield header, view, ""
        at += batch_bytes
