"""Carries out decisions for `TransactionCoordinator`: writes the markers of prepared transactions, then their completed
records.

A decision is never dropped. A stopped partition can't take its marker, so the transaction stays prepared, and
producers of its transactional id get CONCURRENT_TRANSACTIONS: until the topic is deleted, or a start finds the
partition sound and writes the marker. If the id went on, the records in that partition would be left without an
outcome, and its next marker there would decide over them, too.

Source: Kafka `TransactionMarkerChannelManager`, which retries a marker until the partition has taken it or is deleted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from embedded_broker.coordinators.background import Background
from embedded_broker.coordinators.markers import MarkerWriter
from embedded_broker.coordinators.transaction_entry import TransactionEntry
from embedded_broker.runtime.clock import Clock
from embedded_broker.state import transactions
from embedded_broker.state.transactions import TopicPartition, Transaction

log = logging.getLogger("embedded_broker")


class Completion:
    """Completes prepared transactions, and knows those that stopped partitions hold up."""

    def __init__(
        self, clock: Clock, markers: MarkerWriter, background: Background, append: Callable[[Transaction], object]
    ) -> None:
        """
        Args:
            clock: says what time it is.
            markers: writes them.
            background: runs what nobody waits for.
            append: appends the record of a state to the transaction log. Raises NoSpace with nothing changed.
        """
        self._clock, self._markers, self._background, self._append = clock, markers, background, append
        self._held_up: dict[str, tuple[TransactionEntry, frozenset[TopicPartition]]] = {}
        """By transactional id: the stopped partitions that have not got their marker."""

    async def carry_out(self, entry: TransactionEntry, prepared: Transaction) -> None:
        """Write the markers of a prepared transaction, then its completed record; also after a restart."""
        if unwritten := await self._markers.write(prepared):
            _report(prepared, unwritten)
            self._held_up[prepared.transactional_id] = entry, unwritten
        else:
            await self._complete(entry)

    def on_topic_deleted(self, name: str) -> None:
        """Complete the transactions that no other topic holds up. Call it once the topic is not known any more."""
        for transactional_id, (entry, unwritten) in list(self._held_up.items()):
            left = frozenset(partition for partition in unwritten if partition[0] != name)
            self._held_up[transactional_id] = entry, left
            if not left:
                del self._held_up[transactional_id]
                self._background.retry_until_done(f"markers {transactional_id}", partial(self._complete, entry))

    async def _complete(self, entry: TransactionEntry) -> None:
        completed = transactions.complete(entry.transaction, self._clock.now_ms())
        self._append(completed)
        entry.stored(completed)


def _report(prepared: Transaction, unwritten: frozenset[TopicPartition]) -> None:
    """Log once what holds up a transactional id, and what ends that."""
    log.error(
        "transactional id %s is in state %s until each of these partitions has its marker: %s. They are stopped. "
        "Its producers get CONCURRENT_TRANSACTIONS until a start finds the files sound, or the topic is deleted",
        prepared.transactional_id,
        prepared.state.label,
        ", ".join(f"{name}-{index}" for name, index in sorted(unwritten)),
    )
