"""The state machine of a transactional id, as pure functions over an immutable value; run by `TransactionCoordinator`.

Every function takes the durable `Transaction` and returns a `Decision`; a `Step` carries the next value, which the
coordinator makes durable before it answers or acts on it. Source: Kafka `TransactionMetadata`,
`TransactionCoordinator`; KIP-98 (transactions), KIP-360 (epoch bump with a given id and epoch), KIP-890 part 2
(transaction version 2).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

from kio.schema.errors import ErrorCode

from embedded_broker.state.producer_epochs import EPOCH_MAX, bumped, is_exhausted, is_nobodys
from embedded_broker.state.producers import NO_EPOCH, NO_PRODUCER_ID

TopicPartition = tuple[str, int]

NO_TIMESTAMP_MS = -1
NO_OFFSET = -1


class TxnState(IntEnum):
    """The numbers are those of the transaction log."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6

    @property
    def label(self) -> str:
        """The name that DescribeTransactions and ListTransactions use."""
        return self.name.title().replace("_", "")


# From → to. Prepare is the decision: once it is durable, the only way is on to its completion, over any number of
# crashes. The steps from Empty and Complete to PrepareAbort abort nothing (transaction version 2 only).
TRANSITIONS: Mapping[TxnState, frozenset[TxnState]] = {
    TxnState.EMPTY: frozenset({TxnState.EMPTY, TxnState.ONGOING, TxnState.PREPARE_ABORT, TxnState.DEAD}),
    TxnState.ONGOING: frozenset({TxnState.ONGOING, TxnState.PREPARE_COMMIT, TxnState.PREPARE_ABORT}),
    TxnState.PREPARE_COMMIT: frozenset({TxnState.COMPLETE_COMMIT}),
    TxnState.PREPARE_ABORT: frozenset({TxnState.COMPLETE_ABORT}),
    TxnState.COMPLETE_COMMIT: frozenset({TxnState.EMPTY, TxnState.ONGOING, TxnState.PREPARE_ABORT, TxnState.DEAD}),
    TxnState.COMPLETE_ABORT: frozenset({TxnState.EMPTY, TxnState.ONGOING, TxnState.PREPARE_ABORT, TxnState.DEAD}),
    TxnState.DEAD: frozenset(),
}
PREPARED = frozenset({TxnState.PREPARE_COMMIT, TxnState.PREPARE_ABORT})
COMPLETED = frozenset({TxnState.COMPLETE_COMMIT, TxnState.COMPLETE_ABORT})
IDLE = COMPLETED | {TxnState.EMPTY}


class IllegalTransactionStep(Exception):
    """A step that the table doesn't have, or a second one at a time: a bug of the broker, never a client's fault."""


@dataclass(frozen=True, slots=True)
class Transaction:
    """What the transaction log holds of one transactional id."""

    transactional_id: str
    producer_id: int
    # -1 only before the first InitProducerId has been answered. The greatest value is never handed out, so that the
    # coordinator can always fence with one more.
    epoch: int
    timeout_ms: int
    state: TxnState = TxnState.EMPTY
    # The epoch before the last bump, if its holder may come back: it named id and epoch itself, or the coordinator
    # aborted its transaction. -1 once another producer was initialised, so that a fenced one can't pass as a retry.
    last_epoch: int = NO_EPOCH
    previous_producer_id: int = NO_PRODUCER_ID
    # The id that replaces producer_id at completion, when the bump at the end of a transaction used up its epochs.
    next_producer_id: int = NO_PRODUCER_ID
    # Non-empty in ONGOING and the prepared states; a marker goes to each.
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = NO_TIMESTAMP_MS
    update_ms: int = NO_TIMESTAMP_MS
    # The transaction version in which the transaction was opened, or last ended. 2 means that its end bumps the epoch,
    # so that an EndTxn with the epoch before is a retry.
    client_version: int = 0
    # High watermark of the only partition when the transaction was opened with one, else -1: a marker of its producer
    # there, at or behind this offset, is its own.
    begun_at: int = NO_OFFSET


@dataclass(frozen=True, slots=True)
class RefuseRequest:
    """Answer with this error; nothing changes."""

    error_code: ErrorCode


@dataclass(frozen=True, slots=True)
class Answer:
    """What was asked for has been done before (a retry): answer with success; nothing changes."""

    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Step:
    """Make `next` durable, then answer."""

    next: Transaction


Decision = RefuseRequest | Answer | Step


def step(transaction: Transaction, state: TxnState, **changes: Any) -> Step:
    """Return the transaction in its next state.

    Raises:
        IllegalTransactionStep: the table has no such step, or there is no such epoch.
    """
    after = replace(transaction, state=state, **changes)
    if state not in TRANSITIONS[transaction.state] or not NO_EPOCH <= after.epoch <= EPOCH_MAX:
        step = f"{transaction.state.label} to {state.label}, epoch {transaction.epoch} to {after.epoch}"
        raise IllegalTransactionStep(f"{transaction.transactional_id}: {step}")
    return Step(after)


def init_producer_id(
    transaction: Transaction,
    expected: tuple[int, int] | None,
    timeout_ms: int,
    now_ms: int,
    allocate: Callable[[], int],
) -> Decision:
    """Decide over a producer that introduces itself.

    Args:
        transaction: with epoch -1 if it has just been made.
        expected: id and epoch that the producer believes to have (KIP-360), or None.
        timeout_ms: the producer's transaction timeout.
        now_ms: the broker's clock.
        allocate: gives a producer id never used before; called at most once.

    Returns:
        A step to PREPARE_ABORT means: end the predecessor's transaction and answer CONCURRENT_TRANSACTIONS.
    """
    if expected is not None and not _knows_itself(transaction, expected):
        return RefuseRequest(ErrorCode.producer_fenced)
    if transaction.state in PREPARED:
        return RefuseRequest(ErrorCode.concurrent_transactions)
    if transaction.state is TxnState.ONGOING:
        return fence(transaction, now_ms)
    fresh: dict[str, Any] = {
        "partitions": frozenset(),
        "start_ms": NO_TIMESTAMP_MS,
        "timeout_ms": timeout_ms,
        "update_ms": now_ms,
    }
    if _needs_new_id(transaction, expected):
        return step(
            transaction,
            TxnState.EMPTY,
            producer_id=allocate(),
            previous_producer_id=transaction.producer_id,
            epoch=0,
            last_epoch=NO_EPOCH if expected is None else expected[1],
            **fresh,
        )
    fresh["previous_producer_id"] = transaction.producer_id
    if expected is None:
        return step(transaction, TxnState.EMPTY, epoch=bumped(transaction.epoch), last_epoch=NO_EPOCH, **fresh)
    if transaction.epoch in (NO_EPOCH, expected[1]):
        epoch = transaction.epoch
        return step(transaction, TxnState.EMPTY, epoch=bumped(epoch), last_epoch=epoch, **fresh)
    if expected[1] == transaction.last_epoch:
        # The answer to this very request was lost. The previous id stays: the retry may come once more.
        fresh["previous_producer_id"] = transaction.previous_producer_id
        return step(transaction, TxnState.EMPTY, **fresh)
    return RefuseRequest(ErrorCode.producer_fenced)


def _needs_new_id(transaction: Transaction, expected: tuple[int, int] | None) -> bool:
    if expected is None or expected[1] == transaction.epoch:
        return is_exhausted(transaction.epoch)
    # Its holder was fenced in the last epoch that a client may hold: the one made for that can't be handed out.
    return transaction.epoch == EPOCH_MAX and expected[1] == transaction.last_epoch


def _knows_itself(transaction: Transaction, expected: tuple[int, int]) -> bool:
    producer_id, epoch = expected
    return (
        transaction.epoch == NO_EPOCH
        or producer_id == transaction.producer_id
        or (producer_id == transaction.previous_producer_id and is_exhausted(epoch))
    )


def fence(transaction: Transaction, now_ms: int) -> Decision:
    """Abort an ongoing transaction against its producer's will: the markers carry the next epoch.

    No producer gets that epoch. InitProducerId bumps once more, unless the aborted producer itself calls it first, by
    naming its id and epoch or by an abort of its own in version 2: it may have the new one (as in Kafka 4). A
    transaction that is open in the last epoch is nobody's, and is aborted in it.
    """
    if transaction.state is not TxnState.ONGOING:
        return RefuseRequest(ErrorCode.invalid_txn_state)
    return step(
        transaction,
        TxnState.PREPARE_ABORT,
        epoch=bumped(transaction.epoch),
        last_epoch=transaction.epoch,
        update_ms=now_ms,
        client_version=2,
    )


def _check_owner(transaction: Transaction, producer_id: int, epoch: int) -> ErrorCode:
    """Check whether this is who may go on with the transactional id, and whether there is an end to wait for."""
    if transaction.state in PREPARED and identity_after_end(transaction) == (producer_id, epoch):
        return ErrorCode.concurrent_transactions
    if transaction.producer_id != producer_id:
        return ErrorCode.invalid_producer_id_mapping
    if transaction.epoch != epoch or is_nobodys(epoch):
        return ErrorCode.producer_fenced
    return ErrorCode.none


def add_partitions(
    transaction: Transaction,
    producer_id: int,
    epoch: int,
    partitions: frozenset[TopicPartition],
    now_ms: int,
    client_version: int = 0,
    begun_at: int = NO_OFFSET,
) -> Decision:
    """Add partitions that get a marker when the transaction ends.

    Up to version 1 a client says so (AddPartitionsToTxn, AddOffsetsToTxn); in version 2 its first batch or offset does.
    `begun_at` is what `Transaction.begun_at` will be if this opens it.
    """
    if error_code := _check_owner(transaction, producer_id, epoch):
        return RefuseRequest(error_code)
    ongoing = transaction.state is TxnState.ONGOING
    if ongoing and partitions <= transaction.partitions:
        return Answer(producer_id, epoch)
    known = transaction.partitions if ongoing else frozenset()
    return step(
        transaction,
        TxnState.ONGOING,
        partitions=known | partitions,
        start_ms=transaction.start_ms if ongoing else now_ms,
        update_ms=now_ms,
        client_version=client_version,
        begun_at=transaction.begun_at if ongoing else begun_at,
    )


def verify(transaction: Transaction, producer_id: int, epoch: int, partition: TopicPartition) -> ErrorCode:
    """Check whether a partition's first batch belongs to the open transaction (KIP-890 part 1)."""
    if error_code := _check_owner(transaction, producer_id, epoch):
        return error_code
    if transaction.state is TxnState.ONGOING and partition in transaction.partitions:
        return ErrorCode.none
    return ErrorCode.transaction_abortable


def end(transaction: Transaction, producer_id: int, epoch: int, commit: bool, now_ms: int) -> Decision:
    """Decide over EndTxn up to version 4: the epoch stays.

    A repeated EndTxn is answered with success once the transaction is complete, with CONCURRENT_TRANSACTIONS before.
    The hole that KIP-890 closes is here: a late EndTxn of the same epoch can end the transaction that came after.
    """
    if transaction.producer_id != producer_id:
        return RefuseRequest(ErrorCode.invalid_producer_id_mapping)
    if transaction.epoch != epoch or is_nobodys(epoch):
        return RefuseRequest(ErrorCode.producer_fenced)
    if transaction.state is TxnState.ONGOING:
        prepared = TxnState.PREPARE_COMMIT if commit else TxnState.PREPARE_ABORT
        return step(transaction, prepared, update_ms=now_ms, client_version=0)
    return _repeated_end(transaction, commit)


def _repeated_end(transaction: Transaction, commit: bool) -> Decision:
    prepared, completed = (
        (TxnState.PREPARE_COMMIT, TxnState.COMPLETE_COMMIT)
        if commit
        else (TxnState.PREPARE_ABORT, TxnState.COMPLETE_ABORT)
    )
    if transaction.state is prepared:
        return RefuseRequest(ErrorCode.concurrent_transactions)
    if transaction.state is not completed:
        return RefuseRequest(ErrorCode.invalid_txn_state)
    return Answer(transaction.producer_id, transaction.epoch)


def end_v2(
    transaction: Transaction,
    producer_id: int,
    epoch: int,
    commit: bool,
    now_ms: int,
    allocate: Callable[[], int],
) -> Decision:
    """Decide over EndTxn from version 5 (transaction version 2): every end bumps the epoch, so that a late request is
    recognised.

    Args:
        transaction: the transaction to end.
        producer_id: as in the request.
        epoch: as in the request: that of the transaction to end, or one less for a retry.
        commit: commit or abort.
        now_ms: the broker's clock.
        allocate: gives a new producer id; called at most once, if the epochs are used up.
    """
    # The owner, who has the answer to its last EndTxn already, while markers are being written. In Kafka, where that
    # takes a millisecond, it is fenced.
    if transaction.state in PREPARED and identity_after_end(transaction) == (producer_id, epoch):
        return RefuseRequest(ErrorCode.concurrent_transactions)
    has_bumped = transaction.client_version >= 2
    retried_overflow = (
        has_bumped
        and transaction.previous_producer_id == producer_id
        and epoch == EPOCH_MAX - 1
        and transaction.epoch == 0
        and transaction.state in COMPLETED
    )
    retried_bump = has_bumped and transaction.epoch == epoch + 1 and transaction.state in PREPARED | COMPLETED
    retried = retried_bump or retried_overflow
    if transaction.producer_id != producer_id and not retried_overflow:
        return RefuseRequest(ErrorCode.invalid_producer_id_mapping)
    if not retried and (transaction.epoch != epoch or is_nobodys(epoch) or transaction.state in PREPARED):
        return RefuseRequest(ErrorCode.producer_fenced)
    # Aborted by the coordinator in the last epoch: that one can't be handed out, so an abort begins a new id.
    used_up = transaction.epoch == EPOCH_MAX and transaction.state in COMPLETED
    if retried and not used_up:
        return _repeated_end(transaction, commit)
    if commit and transaction.state is not TxnState.ONGOING:
        return RefuseRequest(ErrorCode.invalid_txn_state)
    return step(
        transaction,
        TxnState.PREPARE_COMMIT if commit else TxnState.PREPARE_ABORT,
        epoch=bumped(epoch),
        last_epoch=epoch,
        next_producer_id=allocate() if is_exhausted(epoch) else NO_PRODUCER_ID,
        partitions=transaction.partitions if transaction.state is TxnState.ONGOING else frozenset(),
        start_ms=transaction.start_ms if transaction.state is TxnState.ONGOING else now_ms,
        update_ms=now_ms,
        client_version=2,
    )


def identity_after_end(prepared: Transaction) -> tuple[int, int]:
    """Return the producer id and epoch that the client must use after the end of this transaction."""
    if prepared.next_producer_id != NO_PRODUCER_ID:
        return prepared.next_producer_id, 0
    return prepared.producer_id, prepared.epoch


def complete(prepared: Transaction, now_ms: int) -> Transaction:
    """Complete the transaction: every marker is durable.

    Raises:
        IllegalTransactionStep: the transaction is not prepared.
    """
    changes: dict[str, Any] = {"partitions": frozenset(), "update_ms": now_ms, "next_producer_id": NO_PRODUCER_ID}
    if prepared.next_producer_id != NO_PRODUCER_ID:
        changes |= {
            "previous_producer_id": prepared.producer_id,
            "producer_id": prepared.next_producer_id,
            "epoch": 0,
            "last_epoch": prepared.last_epoch,
        }
    commit = prepared.state is TxnState.PREPARE_COMMIT
    return step(prepared, TxnState.COMPLETE_COMMIT if commit else TxnState.COMPLETE_ABORT, **changes).next


def deadline_ms(transaction: Transaction) -> int | None:
    """Return when an ongoing transaction times out, on the broker's clock; None if none is ongoing."""
    if transaction.state is not TxnState.ONGOING:
        return None
    return transaction.start_ms + transaction.timeout_ms


def is_forgettable(transaction: Transaction, now_ms: int, idle_ms_max: int) -> bool:
    """Return whether the id has been idle so long that it is forgotten (`transactional.id.expiration.ms`)."""
    return transaction.state in IDLE and now_ms - transaction.update_ms >= idle_ms_max
