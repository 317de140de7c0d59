"""One transactional id: every event in every state, and what must never happen."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import pytest
from kio.schema.errors import ErrorCode

from embedded_broker.state import transactions
from embedded_broker.state.producer_epochs import EPOCH_MAX
from embedded_broker.state.transactions import (
    COMPLETED,
    IDLE,
    PREPARED,
    TRANSITIONS,
    Answer,
    Decision,
    IllegalTransactionStep,
    RefuseRequest,
    Step,
    Transaction,
    TxnState,
)

PID, NOW = 40, 10_000
P0, P1 = ("t", 0), ("t", 1)
ids = itertools.count(1_000)


def allocate() -> int:
    return next(ids)


def never() -> int:
    raise AssertionError("no new producer id is needed")


def made(state: TxnState = TxnState.EMPTY, **changes: object) -> Transaction:
    active = state not in IDLE
    transaction = Transaction(
        "id",
        PID,
        3,
        60_000,
        state,
        partitions=frozenset({P0}) if active else frozenset(),
        start_ms=5_000 if active else -1,
    )
    return replace(transaction, **changes)  # type: ignore[arg-type]


def init(
    transaction: Transaction, expected: tuple[int, int] | None = None, give: Callable[[], int] = never
) -> Decision:
    return transactions.init_producer_id(transaction, expected, 60_000, NOW, give)


def stepped(decision: Decision) -> Transaction:
    assert isinstance(decision, Step), decision
    return decision.next


def test_every_step_of_the_table_can_be_made_and_no_other() -> None:
    for before, after in itertools.product(TxnState, TxnState):
        if after in TRANSITIONS[before]:
            assert stepped(transactions.step(made(before), after)).state is after
        else:
            with pytest.raises(IllegalTransactionStep):
                transactions.step(made(before), after)


def test_a_prepared_transaction_has_one_way_only() -> None:
    assert TRANSITIONS[TxnState.PREPARE_COMMIT] == {TxnState.COMPLETE_COMMIT}
    assert TRANSITIONS[TxnState.PREPARE_ABORT] == {TxnState.COMPLETE_ABORT}


def test_the_first_init_gives_epoch_zero() -> None:
    assert stepped(init(made(epoch=-1))).epoch == 0
    assert stepped(init(made(epoch=-1), (5, 9))).epoch == 0


@pytest.mark.parametrize("state", sorted(IDLE))
def test_init_bumps_the_epoch_and_forgets_the_last_transaction(state: TxnState) -> None:
    after = stepped(init(made(state)))
    assert (after.state, after.epoch, after.last_epoch, after.producer_id) == (TxnState.EMPTY, 4, -1, PID)
    assert (after.partitions, after.start_ms) == (frozenset(), -1)


@pytest.mark.parametrize("state", sorted(PREPARED))
def test_init_waits_for_a_prepared_transaction(state: TxnState) -> None:
    assert init(made(state)) == RefuseRequest(ErrorCode.concurrent_transactions)


def test_init_aborts_the_predecessors_transaction_with_a_higher_epoch() -> None:
    after = stepped(init(made(TxnState.ONGOING)))
    assert (after.state, after.epoch, after.partitions) == (TxnState.PREPARE_ABORT, 4, frozenset({P0}))
    complete = transactions.complete(after, NOW)
    assert stepped(init(complete)).epoch == 5


def test_a_given_epoch_must_be_the_current_one() -> None:
    after = stepped(init(made(), (PID, 3)))
    assert (after.epoch, after.last_epoch) == (4, 3)
    for expected in ((PID, 2), (PID, 4), (PID + 1, 3)):
        assert init(made(), expected) == RefuseRequest(ErrorCode.producer_fenced)


def test_the_retry_of_a_bump_gets_the_same_epoch() -> None:
    after = stepped(init(made(), (PID, 3)))
    assert stepped(init(after, (PID, 3))).epoch == 4


def test_after_another_producers_init_the_old_one_cannot_pass_as_a_retry() -> None:
    bumped = stepped(init(made(), (PID, 3)))
    assert init(stepped(init(bumped)), (PID, 3)) == RefuseRequest(ErrorCode.producer_fenced)


def test_a_timed_out_producer_may_come_back_before_others() -> None:
    timed_out = transactions.complete(stepped(transactions.fence(made(TxnState.ONGOING), NOW)), NOW)
    assert stepped(init(timed_out, (PID, 3))).epoch == 4
    assert init(stepped(init(timed_out)), (PID, 3)) == RefuseRequest(ErrorCode.producer_fenced)


def test_used_up_epochs_give_a_new_producer_id() -> None:
    last = EPOCH_MAX - 1
    rotated = stepped(init(made(epoch=last), give=lambda: 77))
    assert (rotated.producer_id, rotated.epoch, rotated.previous_producer_id) == (77, 0, PID)
    given = stepped(init(made(epoch=last), (PID, last), give=lambda: 78))
    assert (given.producer_id, given.epoch, given.last_epoch) == (78, 0, last)
    assert stepped(init(given, (PID, last))).producer_id == 78


def test_the_last_epoch_can_still_be_fenced() -> None:
    fenced = stepped(transactions.fence(made(TxnState.ONGOING, epoch=EPOCH_MAX - 1), NOW))
    assert fenced.epoch == EPOCH_MAX
    assert stepped(init(transactions.complete(fenced, NOW), give=lambda: 77)).producer_id == 77


def test_the_last_epoch_is_nobodys() -> None:
    """It fences the one before, so a client that names it was never given it."""
    who = PID, EPOCH_MAX
    for state in TxnState:
        transaction = made(state, epoch=EPOCH_MAX, next_producer_id=77 if state in PREPARED else -1)
        fenced = RefuseRequest(ErrorCode.producer_fenced)
        assert transactions.add_partitions(transaction, *who, frozenset({P1}), NOW) == fenced
        assert transactions.verify(transaction, *who, P0) is ErrorCode.producer_fenced
        for commit in (False, True):
            assert transactions.end(transaction, *who, commit, NOW) == fenced
            assert transactions.end_v2(transaction, *who, commit, NOW, never) == fenced


def test_a_transaction_that_is_open_in_the_last_epoch_is_aborted_in_it() -> None:
    """Earlier versions let clients open one; its deadline must not end the broker."""
    aborting = stepped(transactions.fence(made(TxnState.ONGOING, epoch=EPOCH_MAX), NOW))
    assert (aborting.state, aborting.epoch) == (TxnState.PREPARE_ABORT, EPOCH_MAX)
    assert stepped(init(transactions.complete(aborting, NOW), give=lambda: 77)).producer_id == 77


def test_no_step_passes_the_last_epoch() -> None:
    for epoch in (EPOCH_MAX + 1, -2):
        with pytest.raises(IllegalTransactionStep):
            transactions.step(made(), TxnState.ONGOING, epoch=epoch)


@pytest.mark.parametrize("epoch", [3, EPOCH_MAX - 1])
@pytest.mark.parametrize("commit", [False, True])
def test_the_owner_waits_for_the_markers_of_its_last_transaction(epoch: int, commit: bool) -> None:
    """It has the answer to its EndTxn, and with it what it is called from then on; real Kafka fences it meanwhile."""
    ended = stepped(transactions.end_v2(made(TxnState.ONGOING, epoch=epoch), PID, epoch, True, NOW, lambda: 77))
    who, busy = transactions.identity_after_end(ended), RefuseRequest(ErrorCode.concurrent_transactions)
    assert transactions.end_v2(ended, *who, commit, NOW, never) == busy
    assert transactions.add_partitions(ended, *who, frozenset({P0}), NOW, 2) == busy
    assert transactions.verify(ended, *who, P0) is ErrorCode.concurrent_transactions
    done = transactions.complete(ended, NOW)
    assert stepped(transactions.end_v2(done, *who, False, NOW, never)).state is TxnState.PREPARE_ABORT


@pytest.mark.parametrize(
    ("pid", "epoch", "error_code"),
    [
        (PID + 1, 3, ErrorCode.invalid_producer_id_mapping),
        (PID, 2, ErrorCode.producer_fenced),
        (PID, 4, ErrorCode.producer_fenced),
    ],
)
def test_only_the_owner_may_act(pid: int, epoch: int, error_code: ErrorCode) -> None:
    for state in TxnState:
        transaction = made(state)
        assert transactions.add_partitions(transaction, pid, epoch, frozenset({P1}), NOW) == RefuseRequest(error_code)
        assert transactions.end(transaction, pid, epoch, True, NOW) == RefuseRequest(error_code)
        assert transactions.verify(transaction, pid, epoch, P0) is error_code


@pytest.mark.parametrize("state", sorted(IDLE))
def test_adding_opens_a_transaction(state: TxnState) -> None:
    opened = stepped(transactions.add_partitions(made(state), PID, 3, frozenset({P0}), NOW))
    assert (opened.state, opened.partitions, opened.start_ms) == (TxnState.ONGOING, frozenset({P0}), NOW)


def test_adding_more_keeps_the_start_and_known_partitions_cost_nothing() -> None:
    ongoing = made(TxnState.ONGOING)
    more = stepped(transactions.add_partitions(ongoing, PID, 3, frozenset({P1}), NOW))
    assert (more.partitions, more.start_ms) == (frozenset({P0, P1}), 5_000)
    assert transactions.add_partitions(more, PID, 3, frozenset({P1}), NOW) == Answer(PID, 3)


def test_adding_waits_for_a_prepared_transaction() -> None:
    for state in PREPARED:
        refused = RefuseRequest(ErrorCode.concurrent_transactions)
        assert transactions.add_partitions(made(state), PID, 3, frozenset({P0}), NOW) == refused


END_REPEATED = {
    (TxnState.EMPTY, True): ErrorCode.invalid_txn_state,
    (TxnState.EMPTY, False): ErrorCode.invalid_txn_state,
    (TxnState.PREPARE_COMMIT, True): ErrorCode.concurrent_transactions,
    (TxnState.PREPARE_COMMIT, False): ErrorCode.invalid_txn_state,
    (TxnState.PREPARE_ABORT, True): ErrorCode.invalid_txn_state,
    (TxnState.PREPARE_ABORT, False): ErrorCode.concurrent_transactions,
    (TxnState.COMPLETE_COMMIT, True): ErrorCode.none,
    (TxnState.COMPLETE_COMMIT, False): ErrorCode.invalid_txn_state,
    (TxnState.COMPLETE_ABORT, True): ErrorCode.invalid_txn_state,
    (TxnState.COMPLETE_ABORT, False): ErrorCode.none,
}


@pytest.mark.parametrize(("case", "error_code"), END_REPEATED.items())
def test_a_repeated_end_is_answered_alike(case: tuple[TxnState, bool], error_code: ErrorCode) -> None:
    state, commit = case
    expected = Answer(PID, 3) if error_code is ErrorCode.none else RefuseRequest(error_code)
    assert transactions.end(made(state), PID, 3, commit, NOW) == expected


def test_an_end_is_prepared_then_completed() -> None:
    for commit, prepared, completed in (
        (True, TxnState.PREPARE_COMMIT, TxnState.COMPLETE_COMMIT),
        (False, TxnState.PREPARE_ABORT, TxnState.COMPLETE_ABORT),
    ):
        decided = stepped(transactions.end(made(TxnState.ONGOING), PID, 3, commit, NOW))
        assert (decided.state, decided.partitions, decided.epoch) == (prepared, frozenset({P0}), 3)
        done = transactions.complete(decided, NOW)
        assert (done.state, done.partitions) == (completed, frozenset())


def test_a_partition_is_verified_only_inside_its_transaction() -> None:
    ongoing = made(TxnState.ONGOING)
    assert transactions.verify(ongoing, PID, 3, P0) is ErrorCode.none
    assert transactions.verify(ongoing, PID, 3, P1) is ErrorCode.transaction_abortable
    assert transactions.verify(made(), PID, 3, P0) is ErrorCode.transaction_abortable
    prepared = made(TxnState.PREPARE_COMMIT)
    assert transactions.verify(prepared, PID, 3, P0) is ErrorCode.concurrent_transactions


def test_version_two_bumps_the_epoch_at_every_end() -> None:
    decided = stepped(transactions.end_v2(made(TxnState.ONGOING), PID, 3, True, NOW, never))
    assert (decided.epoch, decided.last_epoch, transactions.identity_after_end(decided)) == (4, 3, (PID, 4))
    done = transactions.complete(decided, NOW)
    assert transactions.end_v2(done, PID, 3, True, NOW, never) == Answer(PID, 4)
    assert transactions.end_v2(done, PID, 3, False, NOW, never) == RefuseRequest(ErrorCode.invalid_txn_state)
    waiting = RefuseRequest(ErrorCode.concurrent_transactions)
    assert transactions.end_v2(decided, PID, 3, True, NOW, never) == waiting


def test_version_two_recognises_a_late_end_in_the_next_transaction() -> None:
    done = transactions.complete(stepped(transactions.end_v2(made(TxnState.ONGOING), PID, 3, True, NOW, never)), NOW)
    following = stepped(transactions.add_partitions(done, PID, 4, frozenset({P1}), NOW))
    assert transactions.end_v2(following, PID, 3, True, NOW, never) == RefuseRequest(ErrorCode.producer_fenced)


def test_up_to_version_one_a_late_end_ends_the_next_transaction() -> None:
    """The hole that KIP-890 closes; a client of this version must not send an EndTxn whose outcome it gave up on."""
    done = transactions.complete(stepped(transactions.end(made(TxnState.ONGOING), PID, 3, True, NOW)), NOW)
    following = stepped(transactions.add_partitions(done, PID, 3, frozenset({P1}), NOW))
    assert stepped(transactions.end(following, PID, 3, True, NOW)).partitions == {P1}


def test_version_two_aborts_a_transaction_without_partitions() -> None:
    for state in IDLE:
        decided = stepped(transactions.end_v2(made(state), PID, 3, False, NOW, never))
        assert (decided.state, decided.partitions, decided.epoch) == (TxnState.PREPARE_ABORT, frozenset(), 4)
        refused = RefuseRequest(ErrorCode.invalid_txn_state)
        assert transactions.end_v2(made(state), PID, 3, True, NOW, never) == refused


def test_version_two_takes_a_new_producer_id_when_epochs_are_used_up() -> None:
    last = EPOCH_MAX - 1
    decided = stepped(transactions.end_v2(made(TxnState.ONGOING, epoch=last), PID, last, True, NOW, lambda: 77))
    assert (decided.producer_id, decided.epoch, transactions.identity_after_end(decided)) == (PID, EPOCH_MAX, (77, 0))
    done = transactions.complete(decided, NOW)
    assert (done.producer_id, done.epoch, done.previous_producer_id) == (77, 0, PID)
    assert transactions.end_v2(done, PID, last, True, NOW, never) == Answer(77, 0)
    named = stepped(init(done, (PID, last)))  # its answer was lost, and it introduces itself as it knows itself
    assert (named.producer_id, named.epoch) == (77, 0)


def test_an_owner_fenced_in_its_last_epoch_gets_a_new_producer_id() -> None:
    """By introducing itself, or by an abort of its own; its commit is refused. As real Kafka answered."""
    last = EPOCH_MAX - 1
    fenced = transactions.complete(stepped(transactions.fence(made(TxnState.ONGOING, epoch=last), NOW)), NOW)
    assert transactions.end_v2(fenced, PID, last, True, NOW, never) == RefuseRequest(ErrorCode.invalid_txn_state)
    aborting = stepped(transactions.end_v2(fenced, PID, last, False, NOW, lambda: 79))
    assert (aborting.partitions, transactions.identity_after_end(aborting)) == (frozenset(), (79, 0))
    aborted = transactions.complete(aborting, NOW)
    assert transactions.end_v2(aborted, PID, last, False, NOW, never) == Answer(79, 0)
    assert transactions.end_v2(aborted, PID, last, True, NOW, never) == RefuseRequest(ErrorCode.invalid_txn_state)
    back = stepped(init(fenced, (PID, last), give=lambda: 78))
    assert (back.producer_id, back.epoch, back.last_epoch) == (78, 0, last)
    assert stepped(init(back, (PID, last))) == back


def test_only_an_ongoing_transaction_has_a_deadline() -> None:
    assert transactions.deadline_ms(made(TxnState.ONGOING)) == 65_000
    assert all(transactions.deadline_ms(made(state)) is None for state in TxnState if state is not TxnState.ONGOING)


def test_only_idle_ids_are_forgotten() -> None:
    for state in TxnState:
        transaction = made(state, update_ms=0)
        assert transactions.is_forgettable(transaction, 100, 100) is (state in IDLE)
        assert not transactions.is_forgettable(transaction, 99, 100)


Move = Callable[[Transaction, tuple[int, int]], Decision]

MOVES: dict[str, Move] = {
    "init": lambda t, who: transactions.init_producer_id(t, None, 60_000, NOW, allocate),
    "bump": lambda t, who: transactions.init_producer_id(t, who, 60_000, NOW, allocate),
    "add": lambda t, who: transactions.add_partitions(t, *who, frozenset({P0}), NOW),
    "add2": lambda t, who: transactions.add_partitions(t, *who, frozenset({P0}), NOW, 2),
    "commit": lambda t, who: transactions.end(t, *who, True, NOW),
    "abort": lambda t, who: transactions.end(t, *who, False, NOW),
    "commit2": lambda t, who: transactions.end_v2(t, *who, True, NOW, allocate),
    "abort2": lambda t, who: transactions.end_v2(t, *who, False, NOW, allocate),
    "timeout": lambda t, who: transactions.fence(t, NOW),
    "markers": lambda t, who: (
        Step(transactions.complete(t, NOW)) if t.state in PREPARED else RefuseRequest(ErrorCode.none)
    ),
}


@pytest.mark.parametrize("epoch", [-1, EPOCH_MAX - 4])
def test_all_short_histories_of_two_producers_keep_the_rules(epoch: int) -> None:
    """Every history of seven moves by two producers; each believes in the last identity it was given.

    After each a third one names what the broker itself goes by: it may be refused, but never break a rule.
    """
    start = made(epoch=epoch)
    seen: set[tuple[Transaction, tuple[int, int], tuple[int, int]]] = set()
    frontier = [(start, (PID, epoch), (PID, epoch))]
    for _ in range(7):
        following = []
        for transaction, *beliefs in frontier:
            for name, move in MOVES.items():
                guessed = move(transaction, (transaction.producer_id, transaction.epoch))
                _check_rules(transaction, guessed.next if isinstance(guessed, Step) else transaction)
                for mover in (0, 1):
                    decision = move(transaction, beliefs[mover])
                    after, belief = _outcome(transaction, decision, name, beliefs[mover])
                    _check_rules(transaction, after)
                    assert belief[1] < EPOCH_MAX, "the coordinator could not fence this one any more"
                    held = [belief if mover == 0 else beliefs[0], belief if mover == 1 else beliefs[1]]
                    key = (replace(after, producer_id=0 if after.producer_id == PID else 1), held[0], held[1])
                    if key not in seen:
                        seen.add(key)
                        following.append((after, held[0], held[1]))
        frontier = following
    assert len(seen) > 700


def _outcome(
    before: Transaction, decision: Decision, move: str, belief: tuple[int, int]
) -> tuple[Transaction, tuple[int, int]]:
    if isinstance(decision, RefuseRequest):
        return before, belief
    if isinstance(decision, Answer):
        return before, (decision.producer_id, decision.epoch)
    after = decision.next
    if move in ("init", "bump") and after.state is TxnState.EMPTY:
        belief = (after.producer_id, after.epoch)
    if move in ("commit2", "abort2"):
        belief = transactions.identity_after_end(after)
    return after, belief


def _check_rules(before: Transaction, after: Transaction) -> None:
    if after == before:
        return
    assert after.epoch <= EPOCH_MAX
    assert after.state in TRANSITIONS[before.state]
    if after.producer_id == before.producer_id:
        assert after.epoch >= before.epoch
    else:
        assert after.epoch == 0
    # Only a completion may let go of partitions: each of them needs a marker first.
    if before.state in PREPARED | {TxnState.ONGOING} and after.state not in COMPLETED:
        assert before.partitions <= after.partitions
    assert bool(after.partitions) or after.state in IDLE | {TxnState.PREPARE_ABORT}
