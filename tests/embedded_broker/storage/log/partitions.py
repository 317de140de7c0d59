"""A partition's log with the batches that went into it, for comparison."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from embedded_broker.storage.log.fs import FileSystem
from embedded_broker.storage.log.partition_log import PartitionLog
from embedded_broker.wire.checked_batch import CheckedBatch
from kafka_records.batch import BatchHeader, iter_batches, stamp
from kafka_records.records import encode

SEGMENT_BYTES = 1_000


def batch(base_offset: int, count: int = 1, value_bytes: int = 20, times_ms: Sequence[int] = (1_000,)) -> bytearray:
    """A stamped batch of `count` records; its content depends on its offset. All records have the highest time."""
    fill = (b"%d," % base_offset * value_bytes)[:value_bytes]
    made = encode([(b"k%d" % number, fill) for number in range(count)], max(times_ms))
    stamp(made, base_offset, 0)
    return made


def opened(fs: FileSystem, directory: Path, segment_bytes: int = SEGMENT_BYTES) -> tuple[PartitionLog, list[bytes]]:
    """The log, and all batches that recovery has shown."""
    shown: list[bytes] = []

    def on_batch(header: BatchHeader, view: memoryview) -> None:
        assert header.size_bytes == len(view)
        shown.append(bytes(view))

    return PartitionLog.open(fs, directory, segment_bytes, on_batch), shown


def fill(log: PartitionLog, batches: int, count: int = 1, value_bytes: int = 20) -> list[bytes]:
    """Append that many batches; what was appended."""
    made = []
    for _ in range(batches):
        made.append(bytes(batch(log.log_end, count, value_bytes)))
        log.append(CheckedBatch.of(made[-1]))
    return made


def read_all(log: PartitionLog, bytes_max: int = 1 << 20) -> list[bytes]:
    """All batches from the log start, read as a consumer does."""
    found, offset = [], log.log_start
    while data := log.read(offset, bytes_max, log.log_end):
        for header, view in iter_batches(data):
            found.append(bytes(view))
            offset = header.last_offset + 1
    assert offset == log.log_end
    return found
