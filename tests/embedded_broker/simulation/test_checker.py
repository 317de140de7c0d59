"""What must be left of topics that forget."""

from __future__ import annotations

import pytest

from embedded_broker.simulation.checker import Log, check, check_keys
from embedded_broker.simulation.history import History, Outcome, PartitionReads, RunTopic, ViolationKind

P, R = ("compacted", 0), ("retained", 0)
COMPACTED = RunTopic("compacted", 1, {"cleanup.policy": "compact"})
RETAINED = RunTopic("retained", 1, {"retention.ms": "100"})


def opened() -> History:
    return History(topics={topic.name: topic for topic in (COMPACTED, RETAINED)})


def kinds(history: History) -> list[ViolationKind]:
    return [violation.kind for violation in history.violations]


@pytest.mark.parametrize(
    ("log", "wrong"),
    [({3: b"2"}, False), ({0: b"1", 3: b"2"}, False), ({0: b"1"}, True), ({}, True), ({3: b""}, True)],
)
def test_the_latest_value_of_a_key_is_there(log: Log, wrong: bool) -> None:
    history = opened()
    history.sent(P, [(b"k", b"1"), (b"k", b"2")], 0)
    check_keys(history, P, log, dict.fromkeys(log, b"k"))
    assert kinds(history) == [ViolationKind.LOST_WRITE] * wrong


@pytest.mark.parametrize(
    ("outcome", "allowed"),
    [(Outcome.NOT_COMMITTED, {b"1"}), (Outcome.UNKNOWN, {b"1", b"2"}), (Outcome.COMMITTED, {b"2"})],
)
def test_a_transaction_counts_as_far_as_its_end_is_known(outcome: Outcome, allowed: set[bytes]) -> None:
    for value in (b"1", b"2"):
        history = opened()
        transaction = history.begin("tx")
        transaction.outcome = outcome
        history.sent(P, [(b"k", b"1")], 0)
        history.sent(P, [(b"k", b"2")], 0, transaction)
        check_keys(history, P, {5: value}, {5: b"k"})
        assert (kinds(history) == []) == (value in allowed)


@pytest.mark.parametrize(("value", "wrong"), [(b"0", True), (b"1", False), (b"2", False), (b"3", False)])
def test_what_a_producer_has_given_up_may_be_there_or_not(value: bytes, wrong: bool) -> None:
    history = opened()
    history.sent(P, [(b"k", b"0"), (b"k", b"1"), (b"k", b"2"), (b"k", b"3")], 0)
    history.unsure(P, [(b"k", b"2"), (b"k", b"3")])
    check_keys(history, P, {5: value}, {5: b"k"})
    assert kinds(history) == [ViolationKind.LOST_WRITE] * wrong


@pytest.mark.parametrize("log", [{}, {1: b""}])
def test_a_tombstone_may_stay_or_go(log: Log) -> None:
    history = opened()
    history.sent(P, [(b"k", b"1"), (b"k", None)], 0)
    check_keys(history, P, log, dict.fromkeys(log, b"k"))
    assert kinds(history) == []


@pytest.mark.parametrize(("told_ms", "wrong"), [(1_100, False), (1_099, True)])
def test_retention_takes_what_has_had_its_time_only(told_ms: int, wrong: bool) -> None:
    history = opened()
    history.sent(R, [(b"k", b"1")], 1_000)
    history.acked[b"1"] = R, 0
    history.log_starts[R] = {0: 1_000, 4: told_ms}
    check(history, {R: {}}, {R: {}})
    assert kinds(history) == [ViolationKind.LOST_WRITE] * wrong


def test_what_retention_has_not_taken_is_there() -> None:
    history = opened()
    history.sent(R, [(b"k", b"1")], 1_000)
    history.acked[b"1"] = R, 4
    history.log_starts[R] = {4: 9_000}
    check(history, {R: {}}, {R: {}})
    assert kinds(history) == [ViolationKind.LOST_WRITE]


def test_compaction_never_moves_the_log_start() -> None:
    history = opened()
    history.sent(P, [(b"k", b"1")], 1_000)
    history.acked[b"1"] = P, 0
    history.log_starts[P] = {1: 99_000}
    check(history, {P: {}}, {P: {}})
    assert kinds(history) == [ViolationKind.LOST_WRITE]


def test_a_record_that_was_read_twice_is_a_duplicate_even_if_the_first_has_gone() -> None:
    history = opened()
    history.reads.append(PartitionReads("r", R, False, {0: b"1", 7: b"1"}, end=8))
    history.log_starts[R] = {7: 9_000}
    check(history, {R: {7: b"1"}}, {R: {7: b"1"}})
    assert kinds(history) == [ViolationKind.DUPLICATE]
