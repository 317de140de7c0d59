"""A transactional id in memory: what is on disk of it, and what is on its way there."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from embedded_broker.state import transactions
from embedded_broker.state.transactions import Transaction


@dataclass(slots=True)
class Slot:
    """A transactional id in memory."""

    # Invariant: a value that is on disk (but for epoch -1, which nobody has seen yet).
    transaction: Transaction
    # The step that is on its way to the disk; meanwhile everybody else is told to come back.
    pending: Transaction | None = None
    # Set while neither a step is pending nor markers are: the next step can be made.
    settled: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.settle()

    def reach(self, made: Transaction) -> None:
        """`made` is what it is now."""
        self.transaction, self.pending = made, None
        self.settle()

    def settle(self) -> None:
        """Let those go on who wait, if the next step can be made."""
        if self.pending is None and self.transaction.state not in transactions.PREPARED:
            self.settled.set()
