"""Control batches: the markers that end transactions. Sans-I/O. Source: EndTransactionMarker of Kafka."""

from __future__ import annotations

from struct import Struct

from kafka_records.batch import CONTROL, TRANSACTIONAL, Buffer, CorruptBatch
from kafka_records.records import decode, encode

_CONTROL_KEY = Struct(">hh")
_CONTROL_VALUE = Struct(">hi")
ABORT, COMMIT = 0, 1


def marker(producer_id: int, producer_epoch: int, *, commit: bool, timestamp_ms: int) -> bytearray:
    """Make the control batch that ends a transaction (EndTransactionMarker of Kafka, version 0)."""
    key = _CONTROL_KEY.pack(0, COMMIT if commit else ABORT)
    return encode(
        [(key, _CONTROL_VALUE.pack(0, 0))],
        timestamp_ms,
        attributes=CONTROL | TRANSACTIONAL,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )


def marker_commits(batch: Buffer) -> bool:
    """Return whether a control batch is a commit marker. Raises CorruptBatch when it is no control batch."""
    return marker_kind(batch) == COMMIT


def marker_kind(batch: Buffer) -> int:
    """Return ABORT, COMMIT, or another number of a control batch that ends no transaction. Raises CorruptBatch as
    `marker_commits`."""
    records = decode(batch)
    key = records[0].key if records else None
    if key is None or len(key) < _CONTROL_KEY.size:
        raise CorruptBatch("control record without its key")
    return int(_CONTROL_KEY.unpack_from(key)[1])
