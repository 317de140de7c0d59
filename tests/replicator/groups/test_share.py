"""What is done with a partition of a share group, by what stands at the target and what was acknowledged there."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicator.groups.decision import GroupVerdict, SourceOffset, TargetOffset, decide
from replicator.groups.ownership import GroupOffset, OwnershipNote, UnansweredCommit
from replicator.groups.share import CONSUMED, GROWS, AcknowledgedBehind, unless_consumed
from replicator.offset_map.translate import TranslatedOffset

pytestmark = pytest.mark.tier("default")

NOW_MS = 1_000
OURS, OTHER, NEXT = GroupOffset(10), GroupOffset(11), 20
NOTED = OwnershipNote(OURS)
TO_COMMIT, NOT_OURS, IN_SYNC = GroupVerdict.TO_COMMIT, GroupVerdict.NOT_OURS, GroupVerdict.IN_SYNC
NONE, SOME, UNSURE = AcknowledgedBehind(), AcknowledgedBehind(1, 2), AcknowledgedBehind(0, 2)


@pytest.mark.parametrize(
    ("there", "wanted", "seen", "verdict", "moved", "owned", "why"),
    [
        (OURS, NEXT, NONE, TO_COMMIT, True, True, ""),
        (OURS, NEXT, SOME, NOT_OURS, False, False, CONSUMED),
        (OURS, NEXT, UNSURE, TO_COMMIT, False, True, GROWS),
        (OURS, OURS.offset, NONE, IN_SYNC, False, True, ""),
        (OURS, OURS.offset, SOME, IN_SYNC, False, True, ""),
        (OTHER, NEXT, NONE, NOT_OURS, False, False, ""),
        (OTHER, NEXT, SOME, NOT_OURS, False, False, ""),
        (OTHER, NEXT, UNSURE, NOT_OURS, False, False, ""),
    ],
)
def test_it_is_moved_where_it_is_the_flows_and_untouched(
    there: GroupOffset, wanted: int, seen: AcknowledgedBehind, verdict: GroupVerdict, moved: bool, owned: bool, why: str
) -> None:
    source = SourceOffset(5, "", TranslatedOffset(wanted, 0))
    found = decide(NOTED, source, TargetOffset(False, there), NOW_MS)
    done, said = unless_consumed(found, seen, NOTED.observed(there, NOW_MS))
    assert (done.verdict, done.commit is not None, done.note.owns(there), said) == (verdict, moved, owned, why)
    assert done.note.unanswered == (
        (UnansweredCommit(GroupOffset(wanted), done.note.unanswered[0].until_ms),) if moved else ()
    )


@given(
    there=st.integers(0, 5),
    last=st.none() | st.integers(0, 5),
    unanswered=st.lists(st.integers(0, 5), max_size=3),
    wanted=st.integers(0, 5),
    least=st.integers(0, 2),
    more=st.integers(0, 2),
    members=st.booleans(),
)
def test_only_what_the_flow_has_set_last_or_is_about_to_is_moved(
    there: int, last: int | None, unanswered: list[int], wanted: int, least: int, more: int, members: bool
) -> None:
    """And what is set is noted."""
    note = OwnershipNote(
        None if last is None else GroupOffset(last),
        tuple(UnansweredCommit(GroupOffset(it), NOW_MS + 1) for it in unanswered),
    )
    stands = GroupOffset(there)
    found = decide(note, SourceOffset(3, "", TranslatedOffset(wanted, 0)), TargetOffset(members, stands), NOW_MS)
    done, _ = unless_consumed(found, AcknowledgedBehind(least, least + more), note.observed(stands, NOW_MS))
    if done.commit is None:
        return
    assert there in {last, *unanswered}
    assert not members
    assert (least, more) == (0, 0)
    assert GroupOffset(wanted) in {it.value for it in done.note.unanswered}
