"""Notes of groups as records: what was written is read, and only what changed is written."""

from __future__ import annotations

import pytest

from replicator.groups.ownership import GroupOffset, OwnershipNote, UnansweredCommit
from replicator.state.envelope import NewerFormat, NotOurs
from replicator.state.group_notes import PARTITIONS_MAX, GroupNotes

NOTES = {
    0: OwnershipNote(GroupOffset(5)),
    3: OwnershipNote(None, (UnansweredCommit(GroupOffset(7, "é\0"), 99), UnansweredCommit(GroupOffset(8), 100))),
    PARTITIONS_MAX: OwnershipNote(),
    2 * PARTITIONS_MAX + 1: OwnershipNote(GroupOffset(2**62, "m"), (UnansweredCommit(GroupOffset(1), 5),)),
}
WRITTEN = b'{"v":1,"kind":"group_notes","must_understand":true,"partitions":{"0":[[5,""],[]],"7":[null,[[6,"m",9]]]}}'


def test_notes_are_read_as_they_were_written() -> None:
    notes, read = GroupNotes(), GroupNotes()
    records = list(notes.take("g", "t", NOTES, NOTES))
    assert len(records) == 3
    read.read(records)
    assert read.of("g", "t") == notes.of("g", "t") == NOTES
    assert list(read) == [("g", "t")]
    assert read.of("g", "u") == {}


def test_only_records_with_changes_are_written() -> None:
    notes = GroupNotes()
    list(notes.take("g", "t", NOTES, NOTES))
    after = NOTES | {3: OwnershipNote(GroupOffset(9))}
    ((key, value),) = notes.take("g", "t", after, [3])
    assert key == b'["g", "t", 0]'
    assert b'"0":' in value  # the record has all of its partitions
    assert notes.of("g", "t") == after


def test_records_have_the_form_that_they_had_from_the_first_version_on() -> None:
    notes = GroupNotes()
    notes.read([(b'["g", "t", 0]', WRITTEN)])
    expected = {0: OwnershipNote(GroupOffset(5)), 7: OwnershipNote(None, (UnansweredCommit(GroupOffset(6, "m"), 9),))}
    assert notes.of("g", "t") == expected
    assert list(notes.take("g", "t", expected, [0])) == [(b'["g", "t", 0]', WRITTEN)]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"g", WRITTEN),
        (b'["g", 1, 0]', WRITTEN),
        (None, WRITTEN),
        (b'["g", "t", 0]', None),
        (b'["g", "t", 0]', WRITTEN.replace(b'[5,""]', b'["5",""]')),
        (b'["g", "t", 0]', WRITTEN.replace(b'"7"', b'"x"')),
        (b'["g", "t", 0]', WRITTEN.replace(b',"m",9', b',"m"')),
        (b'["g", "t", 0]', WRITTEN.replace(b'{"0"', b'[{"0"').replace(b"}}", b"}]}")),
    ],
)
def test_what_is_not_ours_is_refused(key: bytes | None, value: bytes | None) -> None:
    notes = GroupNotes()
    with pytest.raises(NotOurs):
        notes.read([(key, value)])
    assert list(notes) == []


def test_a_newer_format_is_refused() -> None:
    with pytest.raises(NewerFormat):
        GroupNotes().read([(b'["g", "t", 0]', WRITTEN.replace(b'"v":1', b'"v":2'))])
