"""The demo's comparison: each fault by itself and several at once, counted exactly."""

from __future__ import annotations

import random

import pytest

from cli.demo.compare import NOTHING, Seen, Verdict, judge, longest_rising
from cli.demo.reading import name


def records(*numbers: int) -> list[Seen]:
    return [Seen(b"#%09d" % n, b"k%d" % n, b"v%d" % n, (("h", b"1"),), 1000 + n) for n in numbers]


def test_an_exact_copy_has_no_fault() -> None:
    verdict = judge(records(1, 2, 3), records(1, 2, 3))
    assert verdict == Verdict(3, 3, 0, 0, 0, 0)
    assert verdict.exact


@pytest.mark.parametrize(
    ("target", "lost", "doubled", "reordered"),
    [
        (records(1, 2, 4, 5), 1, 0, 0),
        (records(), 5, 0, 0),
        (records(1, 2, 2, 3, 4, 5), 0, 1, 0),
        (records(1, 2, 3, 4, 5, 1, 2, 3, 4, 5), 0, 5, 0),
        (records(1, 3, 2, 4, 5), 0, 0, 1),
        (records(5, 1, 2, 3, 4), 0, 0, 1),
        (records(2, 1, 4, 4, 5), 1, 1, 1),
    ],
)
def test_lost_doubled_and_reordered_are_counted(target: list[Seen], lost: int, doubled: int, reordered: int) -> None:
    verdict = judge(records(1, 2, 3, 4, 5), target)
    assert (verdict.lost, verdict.doubled, verdict.reordered, verdict.altered) == (lost, doubled, reordered, 0)
    assert not verdict.exact


@pytest.mark.parametrize(
    "change",
    [
        {"key": None}, {"key": b""}, {"value": None}, {"value": b"w"}, {"headers": ()}, {"timestamp_ms": 5},
        {"headers": (("h", b"1"), ("h", b"1"))}, {"headers": (("h", None),)},
    ],
)  # fmt: skip
def test_any_other_content_is_altered_and_nothing_else(change: dict[str, object]) -> None:
    target = records(1, 2, 3)
    target[1] = target[1]._replace(**change)  # type: ignore[arg-type]
    assert judge(records(1, 2, 3), target) == Verdict(3, 3, 0, 0, 0, 1)


def test_a_record_that_the_source_never_held_is_altered() -> None:
    assert judge(records(1, 2), records(1, 9, 2)) == Verdict(2, 3, 0, 0, 0, 1)


def test_a_duplicate_in_the_source_is_no_duplicate_of_the_copy() -> None:
    assert judge(records(1, 1, 2), records(1, 1, 2)).exact
    assert judge(records(1, 1, 2), records(1, 2)).lost == 1


def test_one_lost_record_among_many_is_one() -> None:
    here = records(*range(10_000))
    there = [*here[:4000], *here[4001:]]
    assert judge(here, there) == Verdict(10_000, 9_999, 1, 0, 0, 0)


def test_planted_faults_are_found_exactly() -> None:
    chance = random.Random(7)
    numbers = list(range(1000))
    there = records(*numbers)
    gone = set(chance.sample(range(0, 400), 13))
    twice = set(chance.sample(range(400, 700), 7))
    changed = set(chance.sample(range(700, 1000), 5))
    target = [r for n in numbers for r in [there[n]] * (1 + (n in twice)) if n not in gone]
    target = [r._replace(value=b"other") if int(r.name[1:]) in changed else r for r in target]
    assert judge(records(*numbers), target) == Verdict(1000, 994, 13, 7, 0, 5)


def test_verdicts_add_up() -> None:
    assert NOTHING + Verdict(1, 2, 3, 4, 5, 6) + Verdict(1, 1, 1, 1, 1, 1) == Verdict(2, 3, 4, 5, 6, 7)


def test_the_longest_rising_subsequence() -> None:
    assert [longest_rising(n) for n in ([], [1], [1, 2, 3], [3, 2, 1], [2, 5, 3, 4, 1])] == [0, 1, 3, 1, 3]


def test_the_number_is_found_wherever_the_load_put_it() -> None:
    number = b"#000000042"
    assert name(number, b"x", ()) == number
    assert name(None, number + b"noise", ()) == number
    assert name(None, None, (("n", number),)) == number
    assert name(b"", None, ()) not in (number, b"")
