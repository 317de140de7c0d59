"""Verifies that a transactional batch belongs to a transaction that the coordinator knows (KIP-890).

Used by the handler of Produce for requests with a transactional id. Up to Produce 11 the client has added the partition
to the transaction beforehand, and that is verified (part 1); from version 12 on the first batch in a partition adds it
(part 2). Without either, a delayed batch could open a transaction that is never ended: a hanging transaction.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Protocol

from kio.schema.errors import ErrorCode

from embedded_broker.produce.append_validation import Verify
from embedded_broker.state.owners import Owner
from kafka_records.batch import BatchHeader

if TYPE_CHECKING:
    from embedded_broker.storage.partition import Partition

ABORTABLE_SINCE = 11
IMPLICIT_SINCE = 12


class VerifyingCoordinator(Protocol):
    """The transaction coordinator, which knows what belongs to a transaction."""

    async def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Collection[tuple[str, int]],
        *,
        client_version: int,
        owner: Owner,
    ) -> ErrorCode:
        """Make partitions part of a transaction. Raises NoSpace, or another OSError."""
        ...

    def verify(
        self, transactional_id: str | None, producer_id: int, epoch: int, partition: tuple[str, int]
    ) -> ErrorCode:
        """Check whether a partition is part of the producer's transaction."""
        ...


class VerificationHost(Protocol):
    """The broker around it."""

    @property
    def transactions(self) -> VerifyingCoordinator: ...
    @property
    def has_disk_space(self) -> bool: ...


class ProducedBatch(Protocol):
    """One partition's batch in a request."""

    @property
    def partition(self) -> Partition: ...
    @property
    def header(self) -> BatchHeader: ...


async def verifier(
    host: VerificationHost, transactional_id: str, version: int, batches: Sequence[ProducedBatch], owner: Owner
) -> Verify:
    """Return a function for one Produce request that says whether a batch may open a transaction in a partition.

    Args:
        host: the broker.
        transactional_id: of the request.
        version: of the request.
        batches: those that the request has for partitions that exist.
        owner: the client's connection.
    """
    if version < IMPLICIT_SINCE:
        return lambda partition, header: _verified(host, transactional_id, version, partition, header)
    unopened = [each for each in batches if _would_open(each)]
    added = ErrorCode.none
    if unopened and not host.has_disk_space:
        added = ErrorCode.kafka_storage_error  # there is no disk space for the batch, either
    elif unopened:
        header = unopened[0].header
        names = [(each.partition.topic, each.partition.index) for each in unopened]
        found = await host.transactions.add_partitions(
            transactional_id, header.producer_id, header.producer_epoch, names, client_version=2, owner=owner
        )
        added = verification_error(found, abortable=True)

    def verify(partition: Partition, header: BatchHeader) -> ErrorCode:
        if added is not ErrorCode.none:
            return added
        if header.base_sequence != 0 and not partition.producers.knows(header.producer_id):
            # In this version sequences begin at 0 in every transaction, so something before this batch is missing.
            return ErrorCode.out_of_order_sequence_number
        return _verified(host, transactional_id, version, partition, header)

    return verify


def _would_open(batch: ProducedBatch) -> bool:
    """Return whether the batch would open a transaction in its partition."""
    header = batch.header
    return header.is_transactional and not batch.partition.producers.has_open(header.producer_id, header.producer_epoch)


def _verified(
    host: VerificationHost, transactional_id: str, version: int, partition: Partition, header: BatchHeader
) -> ErrorCode:
    name = partition.topic, partition.index
    found = host.transactions.verify(transactional_id, header.producer_id, header.producer_epoch, name)
    if found is ErrorCode.concurrent_transactions and version < IMPLICIT_SINCE:
        # Producers of these versions retry this one, and do so without fetching metadata first.
        return ErrorCode.not_enough_replicas
    return verification_error(found, abortable=version >= ABORTABLE_SINCE)


def verification_error(error_code: ErrorCode, *, abortable: bool) -> ErrorCode:
    """Return what a client is told when a batch could not be verified.

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
