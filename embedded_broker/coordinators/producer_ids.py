"""Allocates producer ids that are unique over all restarts. Part of `TransactionCoordinator`."""

from __future__ import annotations

import asyncio

from embedded_broker.coordinators.ports import CoordinatorHost
from embedded_broker.metadata.topic_names import TRANSACTION_TOPIC
from embedded_broker.state.transaction_log import ProducerIdsRecord, encode_producer_ids
from kafka_records.records import encode


class NoProducerId(Exception):
    """More ids are asked for at once than are reserved; the next block is on its way to the disk."""


class ProducerIds:
    """Reserves ids in blocks, as Kafka's `ProducerIdManager`; what a crash leaves unused of a block is lost."""

    def __init__(self, host: CoordinatorHost) -> None:
        self._host, self._thresholds = host, host.thresholds
        self._next = 0
        # Invariant: a durable record says that ids below this one may be in use. Only ids below it are handed out.
        self._reserved_end = 0
        # Where the reservation on its way to the disk ends.
        self._pending_end = 0
        self._reserving = asyncio.Lock()

    def replay(self, record: ProducerIdsRecord) -> None:
        """Start behind a record found at recovery."""
        self._next = self._reserved_end = max(self._reserved_end, record.next_producer_id)

    async def ensure(self) -> None:
        """Wait until `allocate` can be expected to succeed."""
        left_min = self._thresholds.producer_ids_left_min
        if self._reserved_end - self._next >= left_min:
            return
        async with self._reserving:
            if self._reserved_end - self._next >= left_min:
                return
            end = self._pending_end = self._reserved_end + self._thresholds.producer_ids_block
            log = self._host.internal_log(TRANSACTION_TOPIC)
            log.append(encode([encode_producer_ids(end)], self._host.clock.now_ms()))
            await self._host.durable(log)
            self._reserved_end = end

    def allocate(self) -> int:
        """Return an id never used before.

        Raises:
            NoProducerId: `ensure` was not awaited, or many producers came in between.
        """
        if self._next >= self._reserved_end:
            raise NoProducerId(f"no producer id below {self._reserved_end} is left")
        self._next += 1
        return self._next - 1

    def snapshot(self) -> tuple[bytes, bytes]:
        """Return the record that keeps this reservation when the log is compacted. It holds for the one on its way to
        the disk, too: the record of that one stands before the snapshot, and goes."""
        return encode_producer_ids(max(self._reserved_end, self._pending_end))
