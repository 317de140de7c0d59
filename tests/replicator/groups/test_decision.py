"""What is done with one partition of a consumer group at the target: each verdict, and what is noted and committed."""

from __future__ import annotations

import pytest

from replicator.groups.decision import (
    COMMIT_DEADLINE_MS,
    VERDICTS_SAID,
    GroupVerdict,
    OffsetToCommit,
    SourceOffset,
    TargetOffset,
    decide,
)
from replicator.groups.ownership import LATE_MS, UNANSWERED_MAX, GroupOffset, OwnershipNote, UnansweredCommit
from replicator.offset_map.translate import TranslatedOffset

NOW_MS = 1_700_000_000_000
UNTIL_MS = NOW_MS + COMMIT_DEADLINE_MS + LATE_MS
OLD, NEW = GroupOffset(10, "kept"), GroupOffset(20, "kept")
NOBODY = TargetOffset(False, None)


def source(offset: int | None = NEW.offset, again: int | None = 0, *notes: str) -> SourceOffset:
    """The group's offset at the source, and where it is at the target."""
    return SourceOffset(7, "kept", TranslatedOffset(offset, again, notes))  # type: ignore[arg-type]


def test_a_new_group_is_noted_then_committed() -> None:
    found = decide(OwnershipNote(), source(), NOBODY, NOW_MS)
    assert found.verdict is GroupVerdict.TO_COMMIT
    assert found.note == OwnershipNote(None, (UnansweredCommit(NEW, UNTIL_MS),))
    assert found.commit == OffsetToCommit(20, "kept", leader_epoch=-1)
    assert found.exact


def test_the_flows_own_moves_both_ways() -> None:
    for wanted, there in ((NEW, OLD), (OLD, NEW)):
        found = decide(OwnershipNote(there), source(wanted.offset), TargetOffset(False, there), NOW_MS)
        assert found.verdict is GroupVerdict.TO_COMMIT
        assert found.commit == OffsetToCommit(wanted.offset, "kept")


def test_what_is_equal_is_not_committed_again() -> None:
    found = decide(OwnershipNote(NEW), source(), TargetOffset(False, NEW), NOW_MS)
    assert (found.verdict, found.commit) == (GroupVerdict.IN_SYNC, None)
    assert found.note == OwnershipNote(NEW)


def test_metadata_is_the_applications_and_is_copied_though_the_offset_is_equal() -> None:
    there = GroupOffset(NEW.offset, "older")
    found = decide(OwnershipNote(there), source(), TargetOffset(False, there), NOW_MS)
    assert found.commit == OffsetToCommit(20, "kept")


@pytest.mark.parametrize(
    "note",
    [OwnershipNote(), OwnershipNote(NEW), OwnershipNote(NEW, (UnansweredCommit(GroupOffset(15), UNTIL_MS),))],
    ids=["never the flow's", "the flow's before", "with a commit without an answer"],
)
def test_somebody_elses_is_left_alone_and_nothing_is_the_flows_from_then_on(note: OwnershipNote) -> None:
    found = decide(note, source(), TargetOffset(False, OLD), NOW_MS)
    assert (found.verdict, found.commit) == (GroupVerdict.NOT_OURS, None)
    assert found.note == OwnershipNote()
    assert decide(found.note, source(), TargetOffset(False, NEW), NOW_MS).verdict is GroupVerdict.NOT_OURS
    assert decide(found.note, source(), NOBODY, NOW_MS).verdict is GroupVerdict.TO_COMMIT  # deleted: handed back


@pytest.mark.parametrize("there", [None, OLD, NEW], ids=["no offset", "the flow's", "somebody else's"])
def test_a_group_with_members_is_never_moved(there: GroupOffset | None) -> None:
    found = decide(OwnershipNote(OLD), source(30), TargetOffset(True, there), NOW_MS)
    assert (found.verdict, found.commit) == (GroupVerdict.HAS_MEMBERS, None)
    assert not any(one.value == GroupOffset(30, "kept") for one in found.note.unanswered)


@pytest.mark.parametrize("why", [GroupVerdict.NO_OFFSET, GroupVerdict.UNSTABLE])
def test_without_an_offset_at_the_source_nothing_is_committed(why: GroupVerdict) -> None:
    found = decide(OwnershipNote(OLD), why, TargetOffset(False, OLD), NOW_MS)
    assert (found.verdict, found.commit) == (why, None)


def test_where_the_map_does_not_tell_nothing_is_committed() -> None:
    found = decide(OwnershipNote(OLD), source(None, None, "before_map"), TargetOffset(False, OLD), NOW_MS)
    assert (found.verdict, found.commit, found.exact) == (GroupVerdict.UNTRANSLATED, None, False)


@pytest.mark.parametrize(
    ("again", "notes"),
    [(3, ()), (None, ("ahead",)), (0, ("before_start",)), (0, ("expired",)), (None, ("lost",)), (None, ("unmapped",))],
)
def test_what_skips_nothing_is_committed_and_what_is_read_again_is_said(
    again: int | None, notes: tuple[str, ...]
) -> None:
    found = decide(OwnershipNote(OLD), source(20, again, *notes), TargetOffset(False, OLD), NOW_MS)
    assert found.commit == OffsetToCommit(20, "kept")
    assert (found.again, found.exact) == (again, False)


def test_too_many_commits_without_an_answer_are_waited_for() -> None:
    unanswered = tuple(UnansweredCommit(GroupOffset(n), UNTIL_MS) for n in range(UNANSWERED_MAX))
    note = OwnershipNote(OLD, unanswered)
    there = TargetOffset(False, OLD)
    assert decide(note, source(), there, NOW_MS).verdict is GroupVerdict.UNANSWERED
    assert decide(note, source(), there, UNTIL_MS).verdict is GroupVerdict.TO_COMMIT


def test_each_verdict_is_said() -> None:
    assert VERDICTS_SAID.keys() == set(GroupVerdict)
