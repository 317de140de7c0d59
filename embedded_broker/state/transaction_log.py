"""Records of `__transaction_state`, in Kafka's own format so that its tools can dump them.

Key version 0 is a transactional id, with a `TransactionLogValue` version 1 or a tombstone as value. Key version 100
is our own: the first producer id that has not been handed out (Kafka keeps that in its metadata log). Readers of Kafka
skip unknown key versions and unknown tagged fields.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from dataclasses import dataclass

from embedded_broker.state.codec import (
    FieldReader,
    Truncated,
    put_compact_string,
    put_string,
    put_tags,
    put_uvarint,
)
from embedded_broker.state.transactions import TopicPartition, Transaction, TxnState

TRANSACTION_KEY = 0
PRODUCER_IDS_KEY = 100
VALUE_VERSION = 1
_HEAD = struct.Struct(">hqhib")
"""Version, producer id, epoch, timeout, state."""
_TIMES = struct.Struct(">qq")
"""Of the last update, and of the start."""

TAG_PREVIOUS_PRODUCER_ID = 0
TAG_NEXT_PRODUCER_ID = 1
TAG_CLIENT_VERSION = 2
# Ours: Kafka forgets the last epoch when the coordinator moves, and then fences the retry of a bump. No need to.
TAG_LAST_EPOCH = 10_000
# Not in Kafka's format: see `coordinators.single_partition_commit`.
TAG_BEGUN_AT = 10_001


@dataclass(frozen=True, slots=True)
class TransactionRecord:
    """What became of a transactional id; None: it was forgotten."""

    transactional_id: str
    transaction: Transaction | None


@dataclass(frozen=True, slots=True)
class ProducerIdsRecord:
    """No producer id from this one on has been handed out."""

    next_producer_id: int


LogRecord = TransactionRecord | ProducerIdsRecord


def encode_key(transactional_id: str) -> bytes:
    """Return the key of a transactional id's records."""
    return struct.pack(">h", TRANSACTION_KEY) + put_string(transactional_id)


def encode_transaction(transaction: Transaction) -> bytes:
    """Return the value of a transactional id's record."""
    by_topic: dict[str, list[int]] = defaultdict(list)
    for topic, partition in sorted(transaction.partitions):
        by_topic[topic].append(partition)
    parts = [
        _HEAD.pack(
            VALUE_VERSION,
            transaction.producer_id,
            transaction.epoch,
            transaction.timeout_ms,
            transaction.state,
        ),
        put_uvarint(len(by_topic) + 1),
    ]
    for topic, indexes in by_topic.items():
        parts += [put_compact_string(topic), put_uvarint(len(indexes) + 1), struct.pack(f">{len(indexes)}i", *indexes)]
        parts.append(put_tags({}))
    parts.append(_TIMES.pack(transaction.update_ms, transaction.start_ms))
    parts.append(
        put_tags(
            {
                TAG_PREVIOUS_PRODUCER_ID: struct.pack(">q", transaction.previous_producer_id),
                TAG_NEXT_PRODUCER_ID: struct.pack(">q", transaction.next_producer_id),
                TAG_CLIENT_VERSION: struct.pack(">h", transaction.client_version),
                TAG_LAST_EPOCH: struct.pack(">h", transaction.last_epoch),
                TAG_BEGUN_AT: struct.pack(">q", transaction.begun_at),
            }
        )
    )
    return b"".join(parts)


def encode_producer_ids(next_producer_id: int) -> tuple[bytes, bytes]:
    """Return key and value of the record that reserves all producer ids below `next_producer_id`."""
    return struct.pack(">h", PRODUCER_IDS_KEY), struct.pack(">hq", 0, next_producer_id)


def decode(key: bytes, value: bytes | None) -> LogRecord | None:
    """Read a record; None for a kind that this version doesn't know.

    Raises:
        Truncated: the record is not whole, or its version is unknown.
    """
    reader = FieldReader(key)
    kind = reader.number("h")
    if kind == TRANSACTION_KEY:
        transactional_id = reader.string()
        return TransactionRecord(transactional_id, None if value is None else _decode_value(transactional_id, value))
    if kind == PRODUCER_IDS_KEY and value is not None:
        fields = FieldReader(value)
        fields.number("h")
        return ProducerIdsRecord(fields.number("q"))
    return None


def _decode_value(transactional_id: str, value: bytes) -> Transaction:
    reader = FieldReader(value)
    version, producer_id, epoch, timeout_ms, state = reader.numbers(_HEAD)
    if version != VALUE_VERSION:
        raise Truncated(f"transaction log value of version {version}")
    partitions: set[TopicPartition] = set()
    for _ in range(reader.uvarint() - 1):
        topic = reader.compact_string()
        partitions |= {(topic, reader.number("i")) for _ in range(reader.uvarint() - 1)}
        reader.tags()
    update_ms, start_ms = reader.numbers(_TIMES)
    tags = {tag: int.from_bytes(raw, "big", signed=True) for tag, raw in reader.tags().items()}
    return Transaction(
        transactional_id=transactional_id,
        producer_id=producer_id,
        epoch=epoch,
        timeout_ms=timeout_ms,
        state=TxnState(state),
        last_epoch=tags.get(TAG_LAST_EPOCH, -1),
        previous_producer_id=tags.get(TAG_PREVIOUS_PRODUCER_ID, -1),
        next_producer_id=tags.get(TAG_NEXT_PRODUCER_ID, -1),
        partitions=frozenset(partitions),
        start_ms=start_ms,
        update_ms=update_ms,
        client_version=tags.get(TAG_CLIENT_VERSION, 0),
        begun_at=tags.get(TAG_BEGUN_AT, -1),
    )
