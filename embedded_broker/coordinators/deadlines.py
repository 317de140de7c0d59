"""Aborts open transactions at their deadlines, for `TransactionCoordinator`.

Source: Kafka `TransactionCoordinator.abortTimedOutTransactions`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from embedded_broker.coordinators.background import NO_SPACE_RETRY_MS, Background
from embedded_broker.coordinators.ports import CoordinatorHost
from embedded_broker.coordinators.transaction_entry import TransactionEntry
from embedded_broker.state import transactions
from embedded_broker.state.transactions import Decision, Transaction
from embedded_broker.storage.disk_space import NoSpace

RETRY_DELAY_MS = 100


class Deadlines:
    """One timer for each open transaction."""

    def __init__(
        self,
        host: CoordinatorHost,
        background: Background,
        make: Callable[[TransactionEntry, Decision], Awaitable[Transaction]],
    ) -> None:
        """
        Args:
            host: says what time it is.
            background: runs the timers.
            make: makes a step of a transaction durable and carries it out. Raises NoSpace, the step not made.
        """
        self._host, self._background, self._make = host, background, make

    def watch(self, entry: TransactionEntry) -> None:
        """Schedule the abort of an open transaction at its deadline, or cancel it if none is open."""
        deadline_ms = transactions.deadline_ms(entry.transaction)
        if deadline_ms is None:
            self._background.cancel(("deadline", entry.transaction.transactional_id))
        else:
            self._schedule(entry, deadline_ms - self._host.clock.now_ms())

    def _schedule(self, entry: TransactionEntry, delay_ms: int) -> None:
        key = ("deadline", entry.transaction.transactional_id)
        self._background.schedule(key, delay_ms, lambda: self._time_out(entry))

    def _time_out(self, entry: TransactionEntry) -> None:
        self._background.spawn(f"timeout {entry.transaction.transactional_id}", self._abort_if_due(entry))

    async def _abort_if_due(self, entry: TransactionEntry) -> None:
        """Decide and begin the abort in one step: before this task ran, a request may have ended the transaction."""
        now_ms = self._host.clock.now_ms()
        deadline_ms = transactions.deadline_ms(entry.transaction)
        if deadline_ms is None:
            return
        if entry.pending is not None or now_ms < deadline_ms:
            self._schedule(entry, max(deadline_ms - now_ms, RETRY_DELAY_MS))
            return
        try:
            await self._make(entry, transactions.fence(entry.transaction, now_ms))
        except NoSpace:
            self._schedule(entry, NO_SPACE_RETRY_MS)
