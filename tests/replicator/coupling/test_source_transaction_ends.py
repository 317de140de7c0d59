"""What ends a transaction of the source, and what is no longer known of one."""

from __future__ import annotations

import pytest

from replicator.coupling.source_transactions import LoggedState, LoggedTransaction, RecordRange, SourceTransactions
from replicator.model.partition import Partition
from replicator.state.transaction_notes import TransactionNotes

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


def test_where_a_partition_ended_is_known_from_the_next_look_on_and_noted_anew() -> None:
    seen, notes = SourceTransactions(lambda topic: True), TransactionNotes()
    seen.look({A: 10}, [], dict)
    for start_ms in (5, 15):  # one record holds both
        seen.look({A: 10}, [logged(S.PREPARE_COMMIT, start_ms, start_ms + 1)], lambda: {A: 12})
    kept: dict[bytes | None, bytes | None] = dict(notes.write_ended(seen.ended))
    before = set(seen.ended)
    assert len(seen.look({A: 90, B: 40}, [], dict)) == 2
    assert [it.parts[B] for it in seen.ended.values()] == [RecordRange(None, 40)] * 2
    new = {number: it for number, it in seen.ended.items() if number not in before}
    (first, *_) = sorted(before)
    kept |= {**dict(notes.write_ended(new)), **dict(notes.write_gone([first]))}
    found = TransactionNotes.read(kept)
    assert found.ended == seen.ended, "each once"
    assert seen.look({A: 90, B: 50}, [], dict) == []
    assert sorted(seen.drop({A: 12, B: 40})) == sorted(new)
