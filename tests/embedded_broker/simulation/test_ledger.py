"""What the checker makes of a group's commits, and what it doesn't take for wrong."""

from __future__ import annotations

from embedded_broker.simulation.history import History, Kind
from embedded_broker.simulation.ledger import Ledger, Tenure

P, Q = ("t", 0), ("t", 1)


def kinds(history: History) -> list[Kind]:
    return [violation.kind for violation in history.violations]


def opened() -> tuple[History, Ledger]:
    history = History()
    return history, Ledger(history, "g", [P, Q])


def commit(ledger: Ledger, tenure: Tenure, offset: int, epoch: int = 1) -> None:
    ledger.accepted(ledger.sent(tenure, epoch, offset))


def fetch(ledger: Ledger, offset: int) -> None:
    ledger.check_fetched(P, offset, ledger.tick())


def test_owners_one_after_the_other_are_right() -> None:
    history, ledger = opened()
    (first,) = ledger.share(1, "a", "a", [P])
    commit(ledger, first, 5)
    (second,) = ledger.share(2, "b", "b", [P])
    fetch(ledger, 5)
    commit(ledger, second, 9)
    ledger.audit({P: 9}, {P: {}})
    assert kinds(history) == []


def test_one_generation_gives_a_partition_to_one_member() -> None:
    history, ledger = opened()
    ledger.share(1, "a", "a", [P])
    ledger.share(1, "b", "b", [P, Q])
    assert kinds(history) == [Kind.TWO_OWNERS]


def test_a_member_that_joins_again_and_a_static_one_under_a_new_id_keep_their_generation() -> None:
    history, ledger = opened()
    assert ledger.share(1, "a", "a", [P]) == ledger.share(1, "a", "a", [P])
    (before,) = ledger.share(1, "static", "s1", [Q])
    ledger.share(1, "static", "s2", [Q])
    assert kinds(history) == []
    commit(ledger, before, 3)
    assert kinds(history) == [Kind.STALE_COMMIT]


def test_a_commit_of_a_former_generation_is_stale_once_a_later_one_is_known() -> None:
    history, ledger = opened()
    (first,) = ledger.share(1, "a", "a", [P])
    under_way = ledger.sent(first, 1, 5)
    ledger.share(2, "b", "b", [P])
    ledger.accepted(under_way)  # the broker may have taken it before
    assert kinds(history) == []
    commit(ledger, first, 6)
    assert kinds(history) == [Kind.STALE_COMMIT]


def test_commits_of_two_members_that_alternate_show_two_owners() -> None:
    history, ledger = opened()
    first, second = Tenure("a", P), Tenure("b", P)
    commit(ledger, first, 1)
    commit(ledger, second, 2)
    ledger.audit({P: 2}, {P: {}})
    assert kinds(history) == []
    commit(ledger, first, 3)
    ledger.audit({P: 3}, {P: {}})
    assert kinds(history) == [Kind.TWO_OWNERS]


def test_an_offset_that_goes_back_or_that_nobody_has_committed() -> None:
    history, ledger = opened()
    tenure = Tenure("a", P)
    commit(ledger, tenure, 5)
    commit(ledger, tenure, 8)
    fetch(ledger, 5)
    assert kinds(history) == [Kind.NON_MONOTONIC]
    fetch(ledger, 9)
    assert kinds(history)[1:] == [Kind.WRONG_GROUP_OFFSET]


def test_a_commit_without_an_answer_may_come_late_while_its_member_holds_the_partition() -> None:
    history, ledger = opened()
    first, second = Tenure("a", P), Tenure("b", P)
    ledger.sent(first, 1, 5)
    commit(ledger, first, 8)
    fetch(ledger, 8)
    fetch(ledger, 5)
    assert kinds(history) == []
    commit(ledger, second, 8)
    commit(ledger, second, 9)
    fetch(ledger, 5)
    assert kinds(history) == [Kind.NON_MONOTONIC]


def test_an_offset_that_was_read_once_does_not_go_back_either() -> None:
    history, ledger = opened()
    first = Tenure("a", P)
    commit(ledger, first, 5)
    ledger.sent(first, 1, 8)
    fetch(ledger, 8)
    fetch(ledger, 5)
    assert kinds(history) == [Kind.NON_MONOTONIC]


def test_a_record_below_the_offset_that_nobody_has_processed() -> None:
    history, ledger = opened()
    commit(ledger, Tenure("a", P), 3)
    ledger.processed[P] = {0: b"x", 2: b"z"}
    ledger.audit({P: 3}, {P: {0: b"x", 2: b"z", 3: b"not yet"}})
    assert kinds(history) == []
    ledger.audit({P: 3}, {P: {0: b"x", 1: b"y", 2: b"z"}})
    assert kinds(history) == [Kind.SKIPPED_RECORD]
