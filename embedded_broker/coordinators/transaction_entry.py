"""The entry of one transactional id in `TransactionCoordinator`: its durable state and the step being written."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from kio.schema.errors import ErrorCode

from embedded_broker.coordinators.memory_quota import MemoryQuota
from embedded_broker.state import transactions
from embedded_broker.state.owners import SOMEBODY, Owner
from embedded_broker.state.transactions import (
    Decision,
    IllegalTransactionStep,
    RefuseRequest,
    TopicPartition,
    Transaction,
)

ID_BYTES, PARTITION_BYTES = 1_200, 250
"""What an id takes in memory beside its text, and each partition of its open transaction."""

NOT_THE_OWNER = frozenset({ErrorCode.invalid_producer_id_mapping, ErrorCode.producer_fenced})


def size_of(transaction: Transaction) -> int:
    """Compute what it takes in memory."""
    return ID_BYTES + 2 * len(transaction.transactional_id) + PARTITION_BYTES * len(transaction.partitions)


def is_not_the_owner(decision: Decision) -> bool:
    """Return whether a request is refused whatever step is being written: these refusals don't depend on the id's
    state.
    """
    return isinstance(decision, RefuseRequest) and decision.error_code in NOT_THE_OWNER


@dataclass(slots=True)
class TransactionEntry:
    """One transactional id in memory. Source: Kafka `TransactionMetadata`."""

    # Invariant: this state is on disk (except with epoch -1, which no client has got yet).
    transaction: Transaction
    # The state that is being written; meanwhile other requests are answered CONCURRENT_TRANSACTIONS.
    pending: Transaction | None = None
    # The same once its record is in the log, on disk or not: it holds at the next start if the disk gets it. Until then
    # the step may yet be refused, for want of space or, in a single-partition commit, before its marker is written.
    appended: Transaction | None = None
    # Set while neither a step nor markers are being written: the next step can be made.
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    # What it takes in memory is counted there.
    quota: MemoryQuota = field(default_factory=lambda: MemoryQuota(0))
    # Who has brought the id, if it was not there at the start.
    owner: Owner = SOMEBODY
    # Who has made partitions part of the open transaction, of those that were not in it at the start.
    added_by: dict[TopicPartition, Owner] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.notify_if_settled()

    def count(self) -> None:
        """Count it again: its state is another one."""
        state = self.pending or self.transaction
        held, left = {self.owner: ID_BYTES + 2 * len(state.transactional_id)}, len(state.partitions)
        for partition, owner in self.added_by.items():
            if partition in state.partitions:
                held[owner] = held.get(owner, 0) + PARTITION_BYTES
                left -= 1
        if left:
            held[SOMEBODY] = held.get(SOMEBODY, 0) + left * PARTITION_BYTES
        self.quota.note(state.transactional_id, held)
        if not state.partitions:
            self.added_by.clear()

    @property
    def logged(self) -> Transaction:
        """What the log says of it, or may say."""
        return self.appended or self.transaction

    def forgotten(self) -> None:
        """Note that it is known no more."""
        self.quota.note(self.transaction.transactional_id, {})

    def begin(self, made: Transaction) -> None:
        """Note that the state `made` is being written.

        Raises:
            IllegalTransactionStep: another one is: only one of them can be true, and clients may have been told so.
        """
        if self.pending is not None:
            steps = f"{self.transaction.state.label} to {made.state.label}"
            pending = f"{self.pending.state.label} is being written"
            raise IllegalTransactionStep(f"{made.transactional_id}: {steps} while {pending}")
        self.pending = made
        self.count()
        self.settled.clear()

    def rolled_back(self) -> None:
        """Note that the state that was being written could not be: the former one holds."""
        self.pending = None
        self.count()
        self.notify_if_settled()

    def stored(self, made: Transaction) -> None:
        """Note that the state `made` has been written and holds now."""
        self.transaction, self.pending, self.appended = made, None, None
        self.count()
        self.notify_if_settled()

    def notify_if_settled(self) -> None:
        """Wake the requests that wait for `settled`, if the next step can be made."""
        if self.pending is None and self.transaction.state not in transactions.PREPARED:
            self.settled.set()
