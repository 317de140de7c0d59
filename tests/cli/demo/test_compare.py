"""The comparison: each fault by itself and many at once, counted and named exactly."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.demo.compare import Comparison, ReadRecord, compare_records, longest_rising
from cli.demo.records import name_of


def record(number: int) -> ReadRecord:
    return ReadRecord(b"#%09d" % number, b"k%d" % number, b"v%d" % number, (("h", b"1"), ("h", b"2")), 1000 + number)


def records(*numbers: int) -> list[ReadRecord]:
    return [record(number) for number in numbers]


def names(*numbers: int) -> tuple[bytes, ...]:
    return tuple(b"#%09d" % number for number in numbers)


def nameless(text: bytes = b"?") -> ReadRecord:
    return ReadRecord(name_of(text, None, ()), text, None, (), 1)


SOURCE = records(1, 2, 3, 4, 5)


def test_an_exact_copy_has_no_fault() -> None:
    verdict = compare_records(SOURCE, records(1, 2, 3, 4, 5))
    assert verdict == Comparison(5, 5)
    assert verdict.exact


def test_nothing_copied_from_nothing_is_exact() -> None:
    assert compare_records([], []) == Comparison()


@pytest.mark.parametrize(
    ("target", "verdict"),
    [
        pytest.param(records(1, 2, 4, 5), Comparison(5, 4, lost=names(3)), id="one in the middle lost"),
        pytest.param(records(2, 3, 4, 5), Comparison(5, 4, lost=names(1)), id="the first lost"),
        pytest.param(records(1, 2, 3, 4), Comparison(5, 4, lost=names(5)), id="the last lost"),
        pytest.param([], Comparison(5, 0, lost=names(1, 2, 3, 4, 5)), id="all lost"),
        pytest.param(records(1, 2, 2, 3, 4, 5), Comparison(5, 6, doubled=names(2)), id="one doubled in place"),
        pytest.param(records(1, 2, 2, 2, 3, 4, 5), Comparison(5, 7, doubled=names(2, 2)), id="one tripled"),
        pytest.param(records(1, 2, 3, 2, 3, 4, 5), Comparison(5, 7, doubled=names(2, 3)), id="two copied again"),
        pytest.param(records(1, 2, 3, 4, 5, 1), Comparison(5, 6, doubled=names(1)), id="a late second copy"),
        pytest.param(records(1, 3, 2, 3, 4, 5), Comparison(5, 6, doubled=names(3)), id="an early second copy"),
        pytest.param(records(1, 3, 2, 4, 5), Comparison(5, 5, reordered=names(3)), id="neighbours swapped"),
        pytest.param(records(5, 1, 2, 3, 4), Comparison(5, 5, reordered=names(5)), id="the last came first"),
        pytest.param(records(2, 3, 4, 5, 1), Comparison(5, 5, reordered=names(1)), id="the first came last"),
        pytest.param(records(5, 4, 3, 2, 1), Comparison(5, 5, reordered=names(2, 3, 4, 5)), id="turned round"),
        pytest.param(records(1, 4, 3, 3, 5), Comparison(5, 5, names(2), names(3), names(4)), id="lost, doubled, moved"),
    ],
)
def test_lost_doubled_and_reordered_are_named(target: list[ReadRecord], verdict: Comparison) -> None:
    assert compare_records(SOURCE, target) == verdict
    assert not verdict.exact


@pytest.mark.parametrize(
    "changed",
    [
        record(3)._replace(key=None),
        record(3)._replace(key=b""),
        record(3)._replace(value=None),
        record(3)._replace(value=b"other"),
        record(3)._replace(headers=()),
        record(3)._replace(headers=(("h", b"2"), ("h", b"1"))),
        record(3)._replace(headers=(("h", b"1"),)),
        record(3)._replace(headers=(("h", b"1"), ("h", None))),
        record(3)._replace(headers=(("H", b"1"), ("h", b"2"))),
        record(3)._replace(timestamp_ms=1),
    ],
)
def test_any_change_of_content_is_an_alteration_and_nothing_else(changed: ReadRecord) -> None:
    assert compare_records(SOURCE, [*records(1, 2), changed, *records(4, 5)]) == Comparison(5, 5, altered=names(3))


def test_a_record_whose_name_was_destroyed_is_altered_and_not_lost() -> None:
    assert compare_records(SOURCE, [*records(1, 2), nameless(), *records(4, 5)]) == Comparison(5, 5, altered=names(3))
    assert compare_records(SOURCE, [nameless(), *records(2, 3, 4, 5)]) == Comparison(5, 5, altered=names(1))
    assert compare_records(SOURCE, [*records(1, 2, 3, 4), nameless()]) == Comparison(5, 5, altered=names(5))


def test_a_record_that_the_source_never_held_explains_no_loss_elsewhere() -> None:
    stranger = nameless()
    assert compare_records(SOURCE, [*SOURCE, stranger]) == Comparison(5, 6, altered=(stranger.name,))
    assert compare_records(SOURCE, [stranger, *records(1, 2, 4, 5)]) == Comparison(
        5, 5, lost=names(3), altered=(stranger.name,)
    )


def test_more_strangers_than_losses_in_a_gap() -> None:
    first, second = nameless(b"?1"), nameless(b"?2")
    verdict = compare_records(SOURCE, [*records(1, 2), first, second, *records(4, 5)])
    assert verdict == Comparison(5, 6, altered=(*names(3), second.name))
    verdict = compare_records(SOURCE, [*records(1), first, *records(5)])
    assert verdict == Comparison(5, 3, lost=names(3, 4), altered=names(2))


def test_a_second_copy_with_other_content_is_doubled_and_altered() -> None:
    changed = record(3)._replace(value=b"other")
    verdict = compare_records(SOURCE, [*records(1, 2), changed, *records(3, 4, 5)])
    assert verdict == Comparison(5, 6, doubled=names(3), altered=names(3))


def test_one_altered_record_that_has_moved_is_both() -> None:
    changed = record(1)._replace(value=b"other")
    verdict = compare_records(SOURCE, [*records(2, 3, 4, 5), changed])
    assert verdict == Comparison(5, 5, reordered=names(1), altered=names(1))


def test_a_source_that_doubles_itself_may_be_copied_as_it_is() -> None:
    twice = records(1, 2, 1, 3)
    assert compare_records(twice, records(1, 2, 1, 3)).exact
    assert compare_records(twice, records(1, 2, 3)) == Comparison(4, 3, lost=names(1))
    assert compare_records(twice, records(1, 2, 1, 1, 3)) == Comparison(4, 5, doubled=names(1))


def test_all_faults_at_once() -> None:
    source = records(*range(1, 101))
    target = [at for at in source if at.name not in names(10, 20, 30)]  # three lost
    target.insert(40, target[39])  # one doubled
    target.append(target.pop(60))  # one moved to the end
    target[70] = target[70]._replace(timestamp_ms=0)  # one altered
    verdict = compare_records(source, target)
    assert verdict.lost == names(10, 20, 30)
    assert [len(fault) for fault in (verdict.doubled, verdict.reordered, verdict.altered)] == [1, 1, 1]


def test_verdicts_add_up() -> None:
    total = Comparison(2, 1, lost=names(1)) + Comparison(3, 4, doubled=names(2))
    assert total == Comparison(5, 5, lost=names(1), doubled=names(2))
    assert not total.exact


@pytest.mark.tier("default")
@given(st.data())
def test_disjoint_faults_are_all_named(data: st.DataObject) -> None:
    """Lose, double, alter and destroy different records; put copies anywhere later: each is named, no other is."""
    size = data.draw(st.integers(1, 40))
    fates = data.draw(st.lists(st.sampled_from("kkkkldan"), min_size=size, max_size=size))
    target: list[ReadRecord] = []
    for number, fate in enumerate(fates):
        if fate == "a":
            target.append(record(number)._replace(value=b"other"))
        elif fate == "n":
            target.append(nameless(b"?%d" % number))
        elif fate != "l":
            target.append(record(number))
    for number, fate in enumerate(fates):
        if fate == "d":
            here = target.index(record(number))
            target.insert(data.draw(st.integers(here + 1, len(target))), record(number))
    verdict = compare_records(records(*range(size)), target)
    doubled = names(*(number for number, fate in enumerate(fates) if fate == "d"))
    destroyed = fates.count("n")
    assert Counter(verdict.doubled) == Counter(doubled)
    assert verdict.reordered == ()
    assert len(verdict.lost) == fates.count("l")
    assert len(verdict.altered) == fates.count("a") + destroyed
    if not destroyed:  # else a destroyed record and its lost neighbour can't be told apart
        assert verdict.lost == names(*(number for number, fate in enumerate(fates) if fate == "l"))
        assert verdict.altered == names(*(number for number, fate in enumerate(fates) if fate == "a"))


@given(st.lists(st.integers(0, 9), unique=True))
def test_reordered_is_the_fewest_moves(order: list[int]) -> None:
    verdict = compare_records(records(*sorted(order)), records(*order))
    assert len(verdict.reordered) == len(order) - _longest_by_trying(order)
    kept = [number for number in order if b"#%09d" % number not in verdict.reordered]
    assert kept == sorted(kept)


def _longest_by_trying(order: list[int]) -> int:
    longest: list[int] = []
    for at, number in enumerate(order):
        longest.append(1 + max((longest[i] for i in range(at) if order[i] < number), default=0))
    return max(longest, default=0)


def test_longest_rising_takes_each_number_once_and_skips_gaps() -> None:
    assert longest_rising([]) == []
    assert longest_rising([None, None]) == []
    assert longest_rising([1, 1, 1]) == [0]
    assert longest_rising([3, None, 1, 2, None, 5, 4]) == [2, 3, 6]
