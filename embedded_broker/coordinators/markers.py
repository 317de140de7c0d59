"""Writes the markers that end a transaction in each of its partitions, for `TransactionCoordinator` and operators."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kio.schema.errors import ErrorCode

from embedded_broker.coordinators.ports import CoordinatorHost, find_partition
from embedded_broker.metadata.topic_names import OFFSETS_PARTITION
from embedded_broker.state.transactions import TopicPartition, Transaction, TxnState
from embedded_broker.storage.failures import is_disk_failure
from kafka_records.control import marker


class MarkerWriter:
    """Appends markers; tells the group coordinator when a transaction with offsets ends."""

    def __init__(self, host: CoordinatorHost, on_offsets_ended: Callable[[int, bool], None]) -> None:
        """
        Args:
            host: the broker.
            on_offsets_ended: called with producer id and outcome once the marker is in `__consumer_offsets`.
        """
        self._host = host
        self._on_offsets_ended = on_offsets_ended

    async def write(self, prepared: Transaction) -> frozenset[TopicPartition]:
        """Write all markers of a prepared transaction. Must not return before each is on disk.

        Returns:
            The stopped partitions, which have not got theirs. A partition that has been deleted needs none.
        """
        commit = prepared.state is TxnState.PREPARE_COMMIT
        partitions = sorted(prepared.partitions)
        written = await asyncio.gather(
            *(self.write_one(partition, prepared.producer_id, prepared.epoch, commit) for partition in partitions)
        )
        return frozenset(
            name
            for name, error_code in zip(partitions, written, strict=True)
            if error_code is ErrorCode.kafka_storage_error and self._is_stopped(name)  # not if deleted meanwhile
        )

    def _is_stopped(self, name: TopicPartition) -> bool:
        partition = find_partition(self._host.topics, *name)
        return partition is not None and partition.stopped is not None

    async def write_one(
        self, name: TopicPartition, producer_id: int, epoch: int, commit: bool, *, bumped: bool = False
    ) -> ErrorCode:
        """Write one marker and wait for the disk.

        Args:
            name: where.
            producer_id: whose transaction ends.
            epoch: the marker's.
            commit: commit or abort.
            bumped: see `PartitionProducers.check_marker`.

        Returns:
            UNKNOWN_TOPIC_OR_PARTITION if the partition is gone; KAFKA_STORAGE_ERROR if it is stopped, so that the
            marker may be missing after the next start; INVALID_PRODUCER_EPOCH if a later epoch has written there, so
            that its transaction is over already.
        """
        partition = find_partition(self._host.topics, *name)
        if partition is None:
            return ErrorCode.unknown_topic_or_partition
        if partition.stopped is not None:
            return ErrorCode.kafka_storage_error
        if error_code := partition.producers.check_marker(producer_id, epoch, bumped=bumped):
            return error_code
        now_ms = self._host.clock.now_ms()
        try:
            partition.append(marker(producer_id, epoch, commit=commit, timestamp_ms=now_ms))
        except OSError:
            if partition.stopped is None:
                raise
            return ErrorCode.kafka_storage_error  # that was found just now
        if name == OFFSETS_PARTITION:
            # The outcome is on disk in the transaction log, so it may be seen before this marker is on disk.
            self._on_offsets_ended(producer_id, commit)
        try:
            await self._host.durable(partition)
        except Exception as error:
            if partition.stopped is None or is_disk_failure(error):
                raise
            return ErrorCode.kafka_storage_error  # the flush has stopped it
        return ErrorCode.none
