"""Verifies that a transactional batch belongs to a transaction that the coordinator knows (KIP-890).

Used by the handler of Produce, and by `append_validation`. Up to Produce 11 the client has added the partition to the
transaction beforehand, and that is verified (part 1); from version 12 on the first batch in a partition adds it (part
2). Without either, a delayed batch could open a transaction that is never ended: a hanging transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from kio.schema.errors import ErrorCode

from kafka_records.batch import BatchHeader, CorruptBatch, UnsupportedMagic, read_header

if TYPE_CHECKING:
    from embedded_broker.metadata.topics import Topics
    from embedded_broker.storage.partition import Partition

Verify = Callable[["Partition", BatchHeader], ErrorCode]

ABORTABLE_SINCE = 11
IMPLICIT_SINCE = 12


class Transactions(Protocol):
    """The transaction coordinator, which knows what belongs to a transaction."""

    async def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Collection[tuple[str, int]],
        *,
        client_version: int,
    ) -> ErrorCode:
        """Make partitions part of a transaction. Raises NoSpace, or another OSError."""
        ...

    def verify(
        self, transactional_id: str | None, producer_id: int, epoch: int, partition: tuple[str, int]
    ) -> ErrorCode:
        """Whether a partition is part of the producer's transaction."""
        ...


class Host(Protocol):
    """The broker around it."""

    @property
    def topics(self) -> Topics: ...
    @property
    def transactions(self) -> Transactions: ...
    @property
    def has_disk_space(self) -> bool: ...


async def verifier(host: Host, request: Any, version: int) -> Verify:
    """A function for one Produce request: whether a batch may open a transaction in a partition."""
    if version < IMPLICIT_SINCE or request.transactional_id is None:
        return lambda partition, header: _verified(host, request.transactional_id, version, partition, header)
    unopened = list(_unopened(host, request, version))
    added = ErrorCode.none
    if unopened and not host.has_disk_space:
        added = ErrorCode.kafka_storage_error  # there is no disk space for the batch, either
    elif unopened:
        header = unopened[0][1]
        names = [(partition.topic, partition.index) for partition, _ in unopened]
        found = await host.transactions.add_partitions(
            request.transactional_id, header.producer_id, header.producer_epoch, names, client_version=2
        )
        added = verification_error(found, abortable=True)

    def verify(partition: Partition, header: BatchHeader) -> ErrorCode:
        if added is not ErrorCode.none:
            return added
        if header.base_sequence != 0 and not partition.producers.knows(header.producer_id):
            # In this version sequences begin at 0 in every transaction, so something before this batch is missing.
            return ErrorCode.out_of_order_sequence_number
        return _verified(host, request.transactional_id, version, partition, header)

    return verify


def _verified(
    host: Host, transactional_id: str | None, version: int, partition: Partition, header: BatchHeader
) -> ErrorCode:
    name = partition.topic, partition.index
    found = host.transactions.verify(transactional_id, header.producer_id, header.producer_epoch, name)
    if found is ErrorCode.concurrent_transactions and version < IMPLICIT_SINCE:
        # Producers of these versions retry this one, and do so without fetching metadata first.
        return ErrorCode.not_enough_replicas
    return verification_error(found, abortable=version >= ABORTABLE_SINCE)


def _unopened(host: Host, request: Any, version: int) -> Iterator[tuple[Partition, BatchHeader]]:
    """Partitions in which a batch of the request would open the transaction."""
    for named in request.topic_data:
        topic = host.topics.by_id(named.topic_id) if version >= 13 else host.topics.get(named.name)
        for data in named.partition_data:
            partition = None if topic is None or topic.is_internal else topic.partition(data.index)
            if partition is None:
                continue
            try:
                header = read_header(data.records or b"")
            except (CorruptBatch, UnsupportedMagic):
                continue  # refused when it is its turn
            opened = partition.producers.has_open(header.producer_id, header.producer_epoch)
            if header.is_transactional and not opened:
                yield partition, header


def verification_error(error_code: ErrorCode, *, abortable: bool) -> ErrorCode:
    """What a client is told when a batch could not be verified.

    Args:
        error_code: from `TransactionCoordinator.verify`.
        abortable: whether the request's version knows TRANSACTION_ABORTABLE (Produce 11, TxnOffsetCommit 4).

    Source: `AddPartitionsToTxnManager`.
    """
    if error_code is ErrorCode.producer_fenced:
        return ErrorCode.invalid_producer_epoch
    if error_code is ErrorCode.transaction_abortable and not abortable:
        return ErrorCode.invalid_txn_state
    return error_code
