"""What the checker makes of a group's commits, and what it doesn't take for wrong."""

from __future__ import annotations

from embedded_broker.simulation.group_history import GroupHistory, Ownership
from embedded_broker.simulation.history import History, ViolationKind

P, Q = ("t", 0), ("t", 1)


def kinds(history: History) -> list[ViolationKind]:
    return [violation.kind for violation in history.violations]


def opened() -> tuple[History, GroupHistory]:
    history = History()
    return history, GroupHistory(history, "g", [P, Q])


def commit(group_history: GroupHistory, ownership: Ownership, offset: int, epoch: int = 1) -> None:
    group_history.accepted(group_history.sent(ownership, epoch, offset))


def fetch(group_history: GroupHistory, offset: int) -> None:
    group_history.check_fetched(P, offset, group_history.tick())


def test_owners_one_after_the_other_are_right() -> None:
    history, group_history = opened()
    (first,) = group_history.assigned(1, "a", "a", [P])
    commit(group_history, first, 5)
    (second,) = group_history.assigned(2, "b", "b", [P])
    fetch(group_history, 5)
    commit(group_history, second, 9)
    group_history.audit({P: 9}, {P: {}})
    assert kinds(history) == []


def test_one_generation_gives_a_partition_to_one_member() -> None:
    history, group_history = opened()
    group_history.assigned(1, "a", "a", [P])
    group_history.assigned(1, "b", "b", [P, Q])
    assert kinds(history) == [ViolationKind.TWO_OWNERS]


def test_a_member_that_joins_again_and_a_static_one_under_a_new_id_keep_their_generation() -> None:
    history, group_history = opened()
    assert group_history.assigned(1, "a", "a", [P]) == group_history.assigned(1, "a", "a", [P])
    (before,) = group_history.assigned(1, "static", "s1", [Q])
    group_history.assigned(1, "static", "s2", [Q])
    assert kinds(history) == []
    commit(group_history, before, 3)
    assert kinds(history) == [ViolationKind.STALE_COMMIT]


def test_a_commit_of_a_former_generation_is_stale_once_a_later_one_is_known() -> None:
    history, group_history = opened()
    (first,) = group_history.assigned(1, "a", "a", [P])
    under_way = group_history.sent(first, 1, 5)
    group_history.assigned(2, "b", "b", [P])
    group_history.accepted(under_way)  # the broker may have taken it before
    assert kinds(history) == []
    commit(group_history, first, 6)
    assert kinds(history) == [ViolationKind.STALE_COMMIT]


def test_what_only_an_error_has_said_may_be_taken_back_by_a_crash() -> None:
    history, group_history = opened()
    first, second = Ownership("a", P), Ownership("b", Q)
    group_history.end(first, error_after=history.crashes)
    group_history.end(second)
    history.crashes += 1
    commit(group_history, first, 5)
    assert kinds(history) == []
    commit(group_history, second, 5)
    assert kinds(history) == [ViolationKind.STALE_COMMIT]
    group_history.end(third := Ownership("c", P), error_after=history.crashes)
    commit(group_history, third, 6)
    assert kinds(history) == [ViolationKind.STALE_COMMIT] * 2
    group_history.end(fourth := Ownership("d", P), error_after=history.crashes - 1)  # under way during the crash
    commit(group_history, fourth, 7)
    assert kinds(history) == [ViolationKind.STALE_COMMIT] * 2


def test_commits_of_two_members_that_alternate_show_two_owners() -> None:
    history, group_history = opened()
    first, second = Ownership("a", P), Ownership("b", P)
    commit(group_history, first, 1)
    commit(group_history, second, 2)
    group_history.audit({P: 2}, {P: {}})
    assert kinds(history) == []
    commit(group_history, first, 3)
    group_history.audit({P: 3}, {P: {}})
    assert kinds(history) == [ViolationKind.TWO_OWNERS]


def test_a_commit_of_a_member_whose_partition_was_given_on_shows_two_owners() -> None:
    history, group_history = opened()
    (first,) = group_history.given("a", [P], group_history.tick())
    under_way = group_history.sent(first, 1, 5)
    group_history.given("b", [P], group_history.tick())
    group_history.accepted(under_way)  # the broker may have taken it before
    assert kinds(history) == []
    commit(group_history, first, 6)
    assert kinds(history) == [ViolationKind.TWO_OWNERS]


def test_a_late_answer_about_a_partition_that_has_moved_on_is_no_second_owner() -> None:
    history, group_history = opened()
    sent = group_history.tick()
    (second,) = group_history.given("b", [P], group_history.tick())
    group_history.given("a", [P], sent)  # it had the partition before the other one did, and is a member no more
    commit(group_history, second, 6)
    assert kinds(history) == []


def test_an_offset_that_goes_back_or_that_nobody_has_committed() -> None:
    history, group_history = opened()
    ownership = Ownership("a", P)
    commit(group_history, ownership, 5)
    commit(group_history, ownership, 8)
    fetch(group_history, 5)
    assert kinds(history) == [ViolationKind.NON_MONOTONIC]
    fetch(group_history, 9)
    assert kinds(history)[1:] == [ViolationKind.WRONG_GROUP_OFFSET]


def test_a_commit_without_an_answer_may_come_late_while_its_member_holds_the_partition() -> None:
    history, group_history = opened()
    first, second = Ownership("a", P), Ownership("b", P)
    group_history.sent(first, 1, 5)
    commit(group_history, first, 8)
    fetch(group_history, 8)
    fetch(group_history, 5)
    assert kinds(history) == []
    commit(group_history, second, 8)
    commit(group_history, second, 9)
    fetch(group_history, 5)
    assert kinds(history) == [ViolationKind.NON_MONOTONIC]


def test_an_offset_that_was_read_once_does_not_go_back_either() -> None:
    history, group_history = opened()
    first = Ownership("a", P)
    commit(group_history, first, 5)
    group_history.sent(first, 1, 8)
    fetch(group_history, 8)
    fetch(group_history, 5)
    assert kinds(history) == [ViolationKind.NON_MONOTONIC]


def test_a_record_below_the_offset_that_nobody_has_processed() -> None:
    history, group_history = opened()
    commit(group_history, Ownership("a", P), 3)
    group_history.processed[P] = {0: b"x", 2: b"z"}
    group_history.audit({P: 3}, {P: {0: b"x", 2: b"z", 3: b"not yet"}})
    assert kinds(history) == []
    group_history.audit({P: 3}, {P: {0: b"x", 1: b"y", 2: b"z"}})
    assert kinds(history) == [ViolationKind.SKIPPED_RECORD]
