"""Transactions that have written to one partition, among records: there the marker alone decides a commit.

Offsets of a group are shown before their marker is on disk, so a transaction with offsets is never one of these.
"""

from __future__ import annotations

from embedded_broker.coordinators.ports import OFFSETS_PARTITION, Partition, Topics, find_partition
from embedded_broker.state import transactions
from embedded_broker.state.transactions import NO_OFFSET, Step, TopicPartition, Transaction, TxnState


def _only(topics: Topics, partitions: frozenset[TopicPartition]) -> Partition | None:
    if len(partitions) != 1 or OFFSETS_PARTITION in partitions:
        return None
    (name,) = partitions
    return find_partition(topics, *name)


def begins_at(topics: Topics, partitions: frozenset[TopicPartition]) -> int:
    """What a transaction that is opened with `partitions` keeps as `Transaction.begun_at`.

    Markers of transactions before it are below, because they are on disk by now; its own won't be.
    """
    partition = _only(topics, partitions)
    return NO_OFFSET if partition is None else partition.high_watermark


def is_open(topics: Topics, ending: Transaction) -> bool:
    """Whether one marker ends it."""
    partition = _only(topics, ending.partitions)
    return partition is not None and partition.producers.has_open(ending.producer_id, ending.epoch)


def completed(topics: Topics, found: Transaction, now_ms: int) -> Transaction | None:
    """What a transaction, found ongoing after a crash, is if its marker had decided it before; else None."""
    partition = _only(topics, found.partitions)
    if found.state is not TxnState.ONGOING or found.begun_at == NO_OFFSET or partition is None:
        return None
    if not partition.producers.has_committed(found.producer_id, found.epoch, found.begun_at):
        return None
    prepared = transactions.end(found, found.producer_id, found.epoch, True, now_ms)
    assert isinstance(prepared, Step), prepared
    return transactions.complete(prepared.next, now_ms)
