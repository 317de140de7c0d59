"""Whose a committed offset is, by what the flow has noted of its commits."""

from __future__ import annotations

from replicator.groups.ownership import GroupOffset, OwnershipNote, UnansweredCommit

ONE, TWO, THREE = GroupOffset(1), GroupOffset(2), GroupOffset(3)


def test_an_answered_commit_takes_the_place_of_what_stood_there() -> None:
    note = OwnershipNote(ONE).before_commit(TWO, 100)
    assert note is not None
    assert note.owns(ONE)
    assert note.owns(TWO)
    note = note.with_committed(TWO)
    assert note == OwnershipNote(TWO)
    assert not note.owns(ONE)  # yesterday's


def test_a_refused_commit_leaves_what_stood_there() -> None:
    note = OwnershipNote(ONE).before_commit(TWO, 100)
    assert note is not None
    assert note.refused(TWO) == OwnershipNote(ONE)


def test_a_commit_without_an_answer_may_arrive_until_its_time_has_passed() -> None:
    note = OwnershipNote(ONE, (UnansweredCommit(TWO, 100),))
    assert note.observed(ONE, 99) == note
    assert note.observed(ONE, 100) == OwnershipNote(ONE)
    assert note.observed(TWO, 1_000) == OwnershipNote(TWO)  # nobody looked before


def test_it_may_arrive_behind_a_later_one() -> None:
    note = OwnershipNote(ONE, (UnansweredCommit(TWO, 100), UnansweredCommit(THREE, 105))).with_committed(THREE)
    assert note == OwnershipNote(THREE, (UnansweredCommit(TWO, 100),))
    assert note.observed(TWO, 50).owns(TWO)


def test_of_two_commits_of_one_value_an_answer_is_the_later_ones() -> None:
    twice = OwnershipNote(ONE, (UnansweredCommit(TWO, 100), UnansweredCommit(TWO, 105)))
    assert twice.with_committed(TWO).unanswered == (UnansweredCommit(TWO, 100),)


def test_metadata_tells_offsets_apart() -> None:
    assert not OwnershipNote(GroupOffset(1, "by the flow")).owns(GroupOffset(1))


def test_long_metadata_is_compared_by_its_digest() -> None:
    one, two = GroupOffset(1, "m" * 4096), GroupOffset(1, "m" * 4095 + "n")
    note = OwnershipNote().before_commit(one, 100)
    assert note is not None
    assert len(note.unanswered[0].value.metadata) < 100
    for owned in (note, note.with_committed(one), note.observed(one, 1_000), note.with_committed(one).observed(one, 0)):
        assert owned.owns(one)
        assert not owned.owns(two)
    assert note.refused(one) == OwnershipNote()
    assert note.with_committed(one).unanswered == ()
