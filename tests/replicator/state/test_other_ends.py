"""Ends that the ends' group doesn't have, as records."""

from __future__ import annotations

import pytest

from replicator.model.partition import Partition
from replicator.state.envelope import NewerFormat, wrap
from replicator.state.group_notes import GroupNotes
from replicator.state.other_ends import OTHER_ENDS, OtherEnds
from replicator.state.transaction_notes import TransactionNotes

pytestmark = pytest.mark.tier("default")

A, B, OTHER = Partition("a", 0), Partition("a", 11), Partition("o", 0)


def test_they_are_read_back_and_only_what_changes_is_written() -> None:
    notes, records = OtherEnds(), dict[bytes | None, bytes | None]()
    records |= dict(notes.write({B: None, A: 2**40, OTHER: 0}))
    assert OtherEnds.read(records).ends() == {A: 2**40, B: None, OTHER: 0}
    notes = OtherEnds.read(records)
    assert list(notes.write({A: 2**40, B: None, OTHER: 0})) == []
    assert [key for key, _ in notes.write({A: 2**40, B: 3, OTHER: 0})] == [b"ends/a"]
    assert list(notes.write({A: 2**40, B: 3})) == [(b"ends/o", None)]
    assert notes.ends() == {A: 2**40, B: 3}
    records |= dict(notes.write_seen(2**41))
    assert (OtherEnds.read(records).seen_ms, OtherEnds.read({}).seen_ms) == (2**41, 0)


def test_others_pass_over_them_and_they_over_others() -> None:
    records = dict[bytes | None, bytes | None]([*OtherEnds().write({A: 1}), *OtherEnds().write_seen(5)])
    groups = GroupNotes()
    groups.read(records.items())
    assert list(groups) == []
    assert TransactionNotes.read(records).ended == {}
    others: dict[bytes | None, bytes | None] = {
        None: b"{}", b'["g","a",0]': b"{}", b"ends/a": None, b"ends/b": b"no", b"ends/c": wrap(OTHER_ENDS, {}),
        b"ends/d": wrap("of another kind", {}, must_understand=False), b"ends_seen": b"no",
    }  # fmt: skip
    assert (OtherEnds.read(others).ends(), OtherEnds.read(others).seen_ms) == ({}, 0)
    with pytest.raises(NewerFormat):
        OtherEnds.read({b"ends/a": wrap(OTHER_ENDS, {}, version=2)})
