"""Where another replicator's copy ends: by drawn histories of a replicator that is killed and begins again."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from replicator.jobs.mm2.seam import NoSeam, RecordDigest, find_seam


def log(contents: str, first: int = 0, step: int = 1) -> list[RecordDigest]:
    """A record for each letter, from an offset on."""
    return [RecordDigest(first + step * number, letter.encode()) for number, letter in enumerate(contents)]


@pytest.mark.parametrize(
    ("source", "target", "end", "doubled"),
    [
        ("abcdef", "abc", 3, ()),
        ("abcdef", "abcdef", 6, ()),
        ("abcdef", "abcdcdef", 6, ((2, 4),)),
        ("abcdef", "abcdc", 4, ((2, 3),)),  # killed while it copied again: d is there, behind it comes e
        ("abcdef", "abcdabcd", 4, ((0, 4),)),
        ("abcdef", "abcdabab", 4, ((0, 2), (0, 2))),
        ("cdef", "abcd", 2, ()),  # the source has deleted what was copied first
        ("aaab", "aaab", 4, ()),
        ("xabyabz", "xabyab", 6, ()),
        ("uabcabXYZbab", "uabcabab", 6, ((4, 6),)),  # "bab" stands further on, too: a copy doesn't jump there
        ("uaaaz", "uaaaa", 4, ((3, 4),)),
    ],
)
def test_the_end_is_behind_the_furthest_record_that_was_copied(
    source: str, target: str, end: int, doubled: tuple[tuple[int, int], ...]
) -> None:
    found = find_seam(log(source), log(target))
    assert (found.end, found.doubled) == (end, doubled)


@pytest.mark.parametrize(
    ("source", "target", "said"),
    [
        ("aaaa", "aa", "equal records"),
        ("abab", "ab", "before 2 or before 4"),
        ("abcd", "abx", "offset 2, which is the last one"),
        ("abcd", "axc", "offset 1, which stands among copies"),
        ("", "a", "the last one"),
        ("a" * 2_000, "a", "2000 records like that"),
        ("cacca", "cca", "before 2 or before 5"),  # "c" and again "ca", or all of it from the second "c" on
        ("abcdef", "abef", "offset 2 doesn't follow those before it"),
    ],
)
def test_nothing_is_decided_where_the_records_do_not_tell(source: str, target: str, said: str) -> None:
    with pytest.raises(NoSeam, match=said):
        find_seam(log(source), log(target))


@pytest.mark.tier("default")
def test_a_compacted_target_may_lack_copies_in_between() -> None:
    assert find_seam(log("abcdefg"), log("adf"), gaps=True).end == 6
    with pytest.raises(NoSeam, match="before 4 or before 6"):
        find_seam(log("abcdedg"), log("abd"), gaps=True)


@pytest.mark.tier("default")
@given(
    source=st.text("abc", min_size=1, max_size=30),
    restarts=st.lists(st.tuples(st.integers(0, 30), st.integers(1, 30)), min_size=1, max_size=4),
)
def test_where_records_equal_others_none_is_lost_or_copied_without_need(
    source: str, restarts: list[tuple[int, int]]
) -> None:
    """With letters in front that stand once: whatever is decided, each has its copies, and what is copied next isn't
    there yet as often as it is at the source."""
    source = "XY" + source
    target, reached = source[:2], 2
    for back, length in restarts:
        first = max(0, reached - back)
        target += source[first : first + length]
        reached = max(reached, min(len(source), first + length))
    end = find_seam(log(source), log(target)).end
    assert end >= reached, "copied again"
    assert not Counter(source) - Counter(target + source[end:]), "lost"


def test_what_was_copied_twice_is_named_up_to_a_number_of_ranges() -> None:
    assert find_seam(log("abc"), log("abc")).said == ""
    assert (
        "of the last 5 records it had copied source offsets 2 to 2 more than once"
        in find_seam(log("abcdef"), log("abcdc")).said
    )
    many = find_seam(log("abcd"), log("abcd" + "ab" * 22))
    assert many.said.endswith("0 to 1 and 2 more ranges more than once")


def test_records_that_can_not_be_read_equal_none() -> None:
    with pytest.raises(NoSeam, match="the last one"):
        find_seam([RecordDigest(0, b"")], [RecordDigest(0, b"")])


def test_offsets_may_have_gaps_on_both_sides() -> None:
    found = find_seam(log("abcdef", 100, 3), log("abc", 7, 2))
    assert (found.end, found.compared) == (107, 3)


@given(
    records=st.integers(1, 40),
    restarts=st.lists(st.tuples(st.integers(0, 40), st.integers(1, 40)), min_size=1, max_size=6),
    seen=st.integers(1, 60),
)
@example(records=3, restarts=[(0, 2), (2, 1), (0, 1)], seen=2)  # copies 0 and 2: that 1 was copied before isn't seen
def test_whatever_a_replicator_has_copied_again_nothing_is_lost_or_copied_a_third_time(
    records: int, restarts: list[tuple[int, int]], seen: int
) -> None:
    """Each restart begins at or before the furthest record that was copied. `seen`: of the target, so many records from
    its end on are looked at, at least the last restart and the furthest record. Where one of them doesn't follow those
    before it, what stands between was copied before: that looks as if it was left out, and is refused."""
    target: list[int] = []
    reached = furthest_at = 0
    for back, length in restarts:
        first = max(0, reached - back)
        end = min(records, first + length)
        for number in range(first, end):
            target.append(number)
            if number + 1 > reached:
                reached, furthest_at = number + 1, len(target)
    source = [RecordDigest(number * 2, b"%d" % number) for number in range(records)]
    copied = [RecordDigest(at, b"%d" % number) for at, number in enumerate(target)]
    looked_at = copied[-max(seen, len(copied) - furthest_at + 1) :]
    seen_to = target[-len(looked_at)] + 1
    for number in target[-len(looked_at) :]:
        if number > seen_to:
            with pytest.raises(NoSeam, match="some were left out"):
                find_seam(source, looked_at)
            return
        seen_to = max(seen_to, number + 1)
    found = find_seam(source, looked_at)
    assert found.end == 2 * reached - 1, "one past the offset of the furthest one"
    assert found.compared == len(looked_at)
