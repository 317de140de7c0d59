"""What ends a transaction of the source, and what is no longer known of one."""

from __future__ import annotations

import pytest

from replicator.coupling.source_transactions import (
    LoggedState,
    LoggedTransaction,
    RecordRange,
    SourceTransaction,
    SourceTransactions,
)
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


@pytest.mark.parametrize("made_anew", [True, False])
def test_nothing_is_said_of_a_partition_that_isn_t_the_same_any_more_and_the_others_are_as_they_were(
    made_anew: bool,
) -> None:
    c, three = Partition("c", 0), {**BOTH, "c": (0,)}
    seen, kept = SourceTransactions(lambda topic: True), {A: 10, B: 10, c: 10}
    begun = LoggedTransaction("id", 7, 1, S.ONGOING, three, 5, 5)
    seen.look(kept, [], dict, ids={"c": "1"})
    seen.look(kept, [begun], dict, ids={"c": "1"})
    ends, ids = ({A: 50, B: 50, c: 80}, {"c": "2"}) if made_anew else ({A: 50, B: 50, c: 3}, {"c": "1"})
    seen.look(ends, [], dict, ids=ids)
    (opened_then,) = seen.still_open().values()
    seen.go_on(seen.ends, seen.ids, [SourceTransaction.of_json(opened_then.as_json())], {}, 0)
    seen.look(ends, [begun._replace(state=S.PREPARE_COMMIT, updated_ms=9)], lambda: ends, ids=ids)
    (it,) = seen.ended.values()
    assert it.parts == {A: RecordRange(10, 50), B: RecordRange(10, 50)}


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


@pytest.mark.parametrize("looked_at", [10, 20])
def test_an_end_below_one_that_was_seen_before_bounds_nothing(looked_at: int) -> None:
    """An old leader tells it, whose log may end before the transaction's records."""
    seen = opened()
    now = {A: looked_at, B: 12}
    seen.look(now, [logged(S.PREPARE_COMMIT, 5, 6)], lambda: {A: looked_at - 1, B: 12})
    (it,) = seen.ended.values()
    assert it.parts == {A: RecordRange(10, None), B: RecordRange(10, 12)}
    assert seen.drop({A: looked_at - 1, B: 12}) == [], "not all of it is copied for certain"
    seen.look({A: 24, B: 12}, [], dict)
    (it,) = seen.ended.values()
    assert it.parts == {A: RecordRange(10, 24), B: RecordRange(10, 12)}


def test_nothing_is_kept_of_topics_that_are_gone() -> None:
    seen = SourceTransactions(lambda topic: True)
    for number in range(3):
        topic = f"run-{number}"
        seen.look({A: 10, Partition(topic, 0): 1}, [], dict, ids={"a": "1", topic: "2"})
    seen.look({A: 10}, [], dict, ids={"a": "1"})
    assert (seen.ends, seen.ids) == ({A: 10}, {"a": "1"})


def test_where_a_partition_ended_is_kept_while_it_is_there_or_something_may_stand_below() -> None:
    seen = SourceTransactions(lambda topic: True)
    ids = {"a": "1", "b": "2"}
    seen.look({A: 10, B: 10}, [], dict, ids=ids)
    seen.look({A: 11}, [], dict, ids={"a": "1"}, there=[A, B])
    assert (seen.ends, seen.ids) == ({A: 11, B: 10}, ids), "nobody leads it"
    seen.look({A: 12}, [logged(S.ONGOING, 5, 5)], dict, ids={"a": "1"})
    assert (seen.ends, seen.ids) == ({A: 12, B: 10}, ids), "one is open that has written there"
    seen.look({A: 13}, [logged(S.PREPARE_COMMIT, 5, 6)], lambda: {A: 13})
    assert (seen.ends, seen.ids) == ({A: 13, B: 10}, ids), "it isn't copied"
    (it,) = seen.ended.values()
    assert it.parts == {A: RecordRange(11, 13), B: RecordRange(10, None)}
    seen.look({A: 13, B: 9}, [], dict, ids=ids)
    assert seen.lost
    seen.look({A: 13}, [], dict, ids={"a": "1"})
    assert (seen.ends, seen.ids) == ({A: 13}, {"a": "1"})


def test_a_topic_s_id_is_known_while_a_transaction_depends_on_it() -> None:
    """The topic was deleted, and whoever watches begins without the ends of partitions: another topic of its name comes
    to have the transaction's offsets."""
    seen = SourceTransactions(lambda topic: True)
    half = SourceTransaction("id", 7, 1, 5, committed=True, parts={A: RecordRange(10, 20), B: RecordRange(10, 20)})
    seen.go_on({}, {"a": "1", "b": "2"}, (), {0: half}, 0)
    seen.look({A: 30}, [], dict, ids={"a": "1"}, there=[A])
    seen.look({A: 30, B: 3}, [], dict, ids={"a": "1", "b": "another"}, there=[A, B])
    assert seen.lost
    assert not seen.ended
