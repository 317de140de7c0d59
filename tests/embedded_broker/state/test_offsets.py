"""Committed and pending offsets."""

from __future__ import annotations

import pytest

from embedded_broker.state import group_log, offsets
from embedded_broker.state.codec import Truncated
from embedded_broker.state.offsets import CommittedOffset, OffsetRecord, Offsets

P0, P1 = ("t", 0), ("t", 1)
PID = 9


def record(offset: int | None, at: int, partition: tuple[str, int] = P0, group_id: str = "g") -> OffsetRecord:
    committed = None if offset is None else CommittedOffset(offset, -1, "m", 100, at)
    return OffsetRecord(group_id, partition, committed, at)


def offset_of(state: Offsets, partition: tuple[str, int] = P0, group_id: str = "g") -> int | None:
    found = state.committed(group_id).get(partition)
    return None if found is None else found.offset


def test_a_pending_offset_is_invisible_and_makes_its_partition_unstable() -> None:
    state = Offsets()
    state.apply(record(5, 0))
    state.apply(record(6, 1), PID)
    assert offset_of(state) == 5
    assert state.unstable("g") == {P0}
    assert state.unstable("h") == set()


def test_a_commit_marker_makes_it_visible_and_an_abort_drops_it() -> None:
    for commit, expected in ((True, 6), (False, 5)):
        state = Offsets()
        state.apply(record(5, 0))
        state.apply(record(6, 1), PID)
        state.end_transaction(PID, commit)
        assert offset_of(state) == expected
        assert state.unstable("g") == set()


def test_transactions_of_other_producers_stay_pending() -> None:
    state = Offsets()
    state.apply(record(6, 1), PID)
    state.end_transaction(PID + 1, True)
    assert state.unstable("g") == {P0}
    assert state.first_pending() == 1
    state.end_transaction(PID, True)
    assert state.first_pending() is None


def test_the_later_record_wins_whichever_becomes_visible_first() -> None:
    state = Offsets()
    state.apply(record(6, 1), PID)
    state.apply(record(30, 2))
    state.end_transaction(PID, True)
    assert offset_of(state) == 30
    state.apply(record(29, 1))
    assert offset_of(state) == 30


def test_a_tombstone_drops_what_is_before_it_only() -> None:
    state = Offsets()
    state.apply(record(1, 0))
    state.apply(record(2, 1), PID)
    state.apply(record(3, 3), PID + 1)
    state.apply(record(None, 2))
    state.end_transaction(PID, True)
    assert offset_of(state) is None
    state.end_transaction(PID + 1, True)
    assert offset_of(state) == 3


def test_a_group_is_known_by_any_offset() -> None:
    state = Offsets()
    state.apply(record(1, 0, P0, "a"))
    state.apply(record(1, 1, P1, "b"), PID)
    assert state.group_ids() == {"a", "b"}
    assert state.known("b") == {P1}
    assert list(state.on_topic("t")) == [("a", P0), ("b", P1)] or set(state.on_topic("t")) == {("a", P0), ("b", P1)}
    state.apply(record(None, 2, P0, "a"))
    assert state.group_ids() == {"b"}


def test_records_come_back_as_they_were() -> None:
    committed = CommittedOffset(2**40, 3, "mé", 1_234, 77)
    key, value = offsets.encode_key("g", P1), offsets.encode_value(committed)
    assert group_log.decode(key, value, 77) == OffsetRecord("g", P1, committed, 77)
    assert group_log.decode(key, None, 78) == OffsetRecord("g", P1, None, 78)


def test_the_format_is_kafkas() -> None:
    """OffsetCommitKey 1 and OffsetCommitValue 3, byte by byte."""
    assert offsets.encode_key("g", ("t", 5)) == bytes.fromhex("0001 000167 000174 00000005")
    value = offsets.encode_value(CommittedOffset(1, 2, "m", 3))
    assert value == bytes.fromhex("0003 0000000000000001 00000002 00016d 0000000000000003")


def test_cut_records_are_refused() -> None:
    key, value = offsets.encode_key("g", P1), offsets.encode_value(CommittedOffset(1, 1, "m", 1))
    for cut in range(len(value)):
        with pytest.raises(Truncated):
            group_log.decode(key, value[:cut], 0)
