"""Requests of a transactional producer to its coordinators, and what their answers hold; over kio's codecs. Sans-I/O.

InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, TxnOffsetCommit and EndTxn. Which version is spoken is decided by
whoever speaks: the two transaction protocols go by it (KIP-890).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, NamedTuple

from replicator.model.partition import Committed, Partition
from replicator.wire import protocol
from replicator.wire.protocol import Exchange, made

METADATA_END = "\0"
"""Behind the metadata of a committed offset: confluent-kafka (2.16) commits it so, and reads up to it. Without it, what
is read goes on with whatever stands behind in memory."""


class TransactionOf(NamedTuple):
    """Whose transaction it is: -1 for the producer id and epoch before they are given."""

    transactional_id: str
    producer_id: int = -1
    epoch: int = -1


class Coordinated(NamedTuple):
    """A coordinator's answer. `by_partition`: codes of partitions, where the API has them. `producer_id` and `epoch`:
    as given by InitProducerId, and by EndTxn in the second protocol; else -1."""

    code: int
    by_partition: Mapping[Partition, int]
    producer_id: int
    epoch: int
    throttled_s: float


def init_producer_id(client_id: str, version: int, of: TransactionOf, timeout_ms: int) -> bytes:
    """Fence the predecessor, and end its transaction; a new one that is open for `timeout_ms` is aborted. All requests
    here are as `Connection.send` takes them."""
    timeout = timedelta(milliseconds=timeout_ms)
    return _written("init_producer_id", version, client_id, of, {"transaction_timeout": timeout})


def add_partitions(client_id: str, version: int, of: TransactionOf, partitions: Iterable[Partition]) -> bytes:
    """Say that these are part of the transaction, before they are written; in the first protocol."""
    exchange = protocol.exchange("add_partitions_to_txn", version)
    topics = tuple(
        made(exchange.types.AddPartitionsToTxnTopic, name=topic, partitions=tuple(at.partition for at in of_topic))
        for topic, of_topic in _by_topic(partitions).items()
    )
    whose = {"transactional_id": of.transactional_id, "producer_id": of.producer_id, "producer_epoch": of.epoch}
    fields = {f"v3_and_below_{name}": value for name, value in {**whose, "topics": topics}.items()}
    return exchange.write(0, client_id, fields)


def add_offsets(client_id: str, version: int, of: TransactionOf, group: str) -> bytes:
    """Say that the group's offsets are part of the transaction; in the first protocol."""
    return _written("add_offsets_to_txn", version, client_id, of, {"group_id": group})


def commit_offsets(
    client_id: str, version: int, of: TransactionOf, group: str, offsets: Mapping[Partition, Committed]
) -> bytes:
    """Commit these offsets in the transaction, of a group without members."""
    exchange = protocol.exchange("txn_offset_commit", version)
    topics = tuple(
        made(
            exchange.types.TxnOffsetCommitRequestTopic,
            name=topic,
            partitions=tuple(_offset(exchange, at, offsets[at]) for at in of_topic),
        )
        for topic, of_topic in _by_topic(offsets).items()
    )
    return _written("txn_offset_commit", version, client_id, of, {"group_id": group, "topics": topics})


def _offset(exchange: Exchange, at: Partition, committed: Committed) -> Any:
    return made(
        exchange.types.TxnOffsetCommitRequestPartition,
        partition_index=at.partition,
        committed_offset=committed.offset,
        committed_metadata=committed.metadata + METADATA_END,
    )


def end_transaction(client_id: str, version: int, of: TransactionOf, *, commit: bool) -> bytes:
    """Commit or abort the transaction."""
    return _written("end_txn", version, client_id, of, {"committed": commit})


def read(api: str, version: int, data: bytes) -> Coordinated:
    """Read a response of one of these APIs, behind its correlation id. Raises BadResponse."""
    _, answer = protocol.exchange(api, version).read(bytes(4) + data)
    by_partition: dict[Partition, int] = {}
    for topic in getattr(answer, "topics", ()):
        by_partition |= {Partition(topic.name, each.partition_index): int(each.error_code) for each in topic.partitions}
    for topic in getattr(answer, "results_by_topic_v3_and_below", ()):
        for each in topic.results_by_partition:
            by_partition[Partition(topic.name, each.partition_index)] = int(each.partition_error_code)
    return Coordinated(
        int(getattr(answer, "error_code", 0)),
        by_partition,
        int(getattr(answer, "producer_id", -1)),
        int(getattr(answer, "producer_epoch", -1)),
        answer.throttle_time.total_seconds(),
    )


def _written(api: str, version: int, client_id: str, of: TransactionOf, fields: Mapping[str, Any]) -> bytes:
    whose = {"transactional_id": of.transactional_id, "producer_id": of.producer_id, "producer_epoch": of.epoch}
    return protocol.exchange(api, version).write(0, client_id, {**whose, **fields})


def _by_topic(partitions: Iterable[Partition]) -> dict[str, list[Partition]]:
    topics: dict[str, list[Partition]] = {}
    for at in partitions:
        topics.setdefault(at.topic, []).append(at)
    return topics
