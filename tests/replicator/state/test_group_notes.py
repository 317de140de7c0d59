"""Notes of groups as records: what was written is read, and only what changed is written."""

from __future__ import annotations

import json

import pytest

from replicator.groups.ownership import METADATA_MAX, UNANSWERED_MAX, GroupOffset, OwnershipNote, UnansweredCommit
from replicator.state.envelope import NewerFormat, NotOurs
from replicator.state.group_notes import PARTITIONS_MAX, RECORD_BYTES_MAX, GroupNotes

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
        GroupNotes().read([(b'["g", "t", 0]', WRITTEN.replace(b'"v":1', b'"v":3'))])


def many(metadata: str) -> dict[int, OwnershipNote]:
    """All partitions of a record, after as many commits as may have no answer."""
    note = OwnershipNote().with_committed(GroupOffset(1, metadata))
    for number in range(UNANSWERED_MAX):
        found = note.before_commit(GroupOffset(2**60 + number, metadata), 2**42)
        assert found is not None
        note = found
    return dict.fromkeys(range(PARTITIONS_MAX), note)


@pytest.mark.parametrize("metadata", ["m" * 4096, "é" * 2048, "\0" * METADATA_MAX, "\U0001f600" * METADATA_MAX, ""])
def test_no_record_is_larger_than_brokers_take_whatever_metadata_is_in_it(metadata: str) -> None:
    notes, read, expected = GroupNotes(), GroupNotes(), many(metadata)
    records = list(notes.take("g", "t", expected, expected))
    assert max(len(value) for _, value in records) <= RECORD_BYTES_MAX
    read.read(records)
    assert read.of("g", "t") == notes.of("g", "t") == expected


def test_records_that_are_not_needed_any_more_say_nothing_more() -> None:
    notes, read, expected = GroupNotes(), GroupNotes(), many("\U0001f600" * METADATA_MAX)
    records = list(notes.take("g", "t", expected, expected))
    assert len(records) > 2
    after = dict.fromkeys(range(PARTITIONS_MAX), OwnershipNote(GroupOffset(9))) | {PARTITIONS_MAX: OwnershipNote()}
    records += list(notes.take("g", "t", after, after))
    last = dict(records)
    read.read(last.items())
    assert read.of("g", "t") == notes.of("g", "t") == after
    assert [json.loads(key) for key, value in last.items() if b"[9," in value] == [["g", "t", 0]]


def test_long_metadata_of_the_first_version_is_compared_as_it_was() -> None:
    """Whoever wrote it had no digests; a version that knows none must not read them."""
    notes, there = GroupNotes(), GroupOffset(5, "m" * 100)
    before = WRITTEN.replace(b'[5,""]', b'[5,"%s"]' % there.metadata.encode())
    notes.read([(b'["g", "t", 0]', before)])
    found = notes.of("g", "t")
    assert found[0].owns(there)
    assert not found[0].owns(GroupOffset(5, "m" * 99 + "n"))
    ((_, value),) = notes.take("g", "t", found, [0])
    assert json.loads(value)["v"] == 2
    assert b"mmm" not in value
    digest = json.loads(value)["partitions"]["0"][0][1]
    again = GroupNotes()
    again.read([(b'["g", "t", 0]', value)])
    assert again.of("g", "t")[0].owns(there)
    assert not again.of("g", "t")[0].owns(GroupOffset(5, digest))  # metadata that looks like one
