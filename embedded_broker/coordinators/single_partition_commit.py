"""Single-partition commit: the marker in a transaction's only partition is the decision; no prepared record is needed.

Used by `TransactionCoordinator`. Not for transactions with offsets of a group, because committed offsets become
visible before their marker is on disk.
"""

from __future__ import annotations

from embedded_broker.coordinators.ports import Partition, Topics, find_partition
from embedded_broker.metadata.topic_names import OFFSETS_PARTITION
from embedded_broker.state import transactions
from embedded_broker.state.transactions import NO_OFFSET, Step, TopicPartition, Transaction, TxnState


def _only_partition(topics: Topics, partitions: frozenset[TopicPartition]) -> Partition | None:
    if len(partitions) != 1 or OFFSETS_PARTITION in partitions:
        return None
    (name,) = partitions
    return find_partition(topics, *name)


def begin_offset(topics: Topics, partitions: frozenset[TopicPartition]) -> int:
    """Return the value of `Transaction.begun_at` for a transaction that begins with `partitions`: the high watermark.

    Markers of earlier transactions of the producer are below it, because they are on disk by now; its own will be
    above. NO_OFFSET if it begins in several partitions, or with offsets of a group.
    """
    partition = _only_partition(topics, partitions)
    return NO_OFFSET if partition is None else partition.high_watermark


def applies_to(topics: Topics, ending: Transaction) -> bool:
    """Return whether one marker ends a transaction: it is open in its only partition."""
    partition = _only_partition(topics, ending.partitions)
    return partition is not None and partition.producers.has_open(ending.producer_id, ending.epoch)


def completed_after_crash(topics: Topics, found: Transaction, now_ms: int) -> Transaction | None:
    """Return the completed state of a transaction that recovery found ongoing, if its marker had committed it; else
    None.
    """
    partition = _only_partition(topics, found.partitions)
    if found.state is not TxnState.ONGOING or found.begun_at == NO_OFFSET or partition is None:
        return None
    if not partition.producers.has_committed(found.producer_id, found.epoch, found.begun_at):
        return None
    prepared = transactions.end(found, found.producer_id, found.epoch, True, now_ms)
    assert isinstance(prepared, Step), prepared
    return transactions.complete(prepared.next, now_ms)
