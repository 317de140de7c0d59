"""The entry of one transactional id in `TransactionCoordinator`: its durable state and the step being written."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from embedded_broker.state import transactions
from embedded_broker.state.transactions import Transaction


@dataclass(slots=True)
class TransactionEntry:
    """One transactional id in memory. Source: Kafka `TransactionMetadata`."""

    # Invariant: this state is on disk (except with epoch -1, which no client has got yet).
    transaction: Transaction
    # The state that is being written; meanwhile other requests are answered CONCURRENT_TRANSACTIONS.
    pending: Transaction | None = None
    # Set while neither a step nor markers are being written: the next step can be made.
    settled: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.notify_if_settled()

    def stored(self, made: Transaction) -> None:
        """The state `made` has been written and holds now."""
        self.transaction, self.pending = made, None
        self.notify_if_settled()

    def notify_if_settled(self) -> None:
        """Wake the requests that wait for `settled`, if the next step can be made."""
        if self.pending is None and self.transaction.state not in transactions.PREPARED:
            self.settled.set()
