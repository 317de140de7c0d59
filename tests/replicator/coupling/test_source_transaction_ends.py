"""What ends a transaction of the source, and what is no longer known of one."""

from __future__ import annotations

import pytest

from replicator.coupling.source_transactions import LoggedState, LoggedTransaction, RecordRange, SourceTransactions
from replicator.model.partition import Partition

pytestmark = pytest.mark.tier("default")

S = LoggedState
A, B = Partition("a", 0), Partition("b", 0)
BOTH = {"a": (0,), "b": (0,)}


def logged(state: LoggedState, start_ms: int, at_ms: int) -> LoggedTransaction:
    complete = state in (S.COMPLETE_COMMIT, S.COMPLETE_ABORT)
    return LoggedTransaction("id", 7, 1, state, {} if complete else BOTH, start_ms, at_ms)


def opened() -> SourceTransactions:
    """One that was open at the last look."""
    seen = SourceTransactions(lambda topic: True)
    seen.look({A: 10, B: 10}, [], dict)
    seen.look({A: 10, B: 10}, [logged(S.ONGOING, 5, 5)], dict)
    return seen


@pytest.mark.parametrize("state", [S.PREPARE_COMMIT, S.COMPLETE_COMMIT])
def test_the_commit_of_a_later_one_of_an_id_says_nothing_of_the_one_that_was_open(state: LoggedState) -> None:
    seen, ends = opened(), {A: 20, B: 12}
    seen.look(ends, [logged(state, 100, 101)], lambda: ends)
    assert 5 not in {it.start_ms for it in seen.ended.values()}
    assert not seen.open


def test_one_that_was_dropped_with_a_partition_has_no_first_offset_when_it_is_seen_again() -> None:
    seen, ends = opened(), {A: 50, B: 3}
    seen.look(ends, [], dict)
    seen.look(ends, [logged(S.PREPARE_COMMIT, 5, 9)], lambda: ends)
    (it,) = seen.ended.values()
    assert it.parts == {A: RecordRange(None, 50), B: RecordRange(None, 3)}
