"""Sequences are aligned by content: in order, and a gap moves nothing behind it."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicator.proof.by_content import sequences
from replicator.proof.by_content.sequences import matched, rising

pytestmark = pytest.mark.tier("extended")

FEW = st.lists(st.integers(0, 5), max_size=30)


@given(FEW, FEW)
def test_pairs_are_equal_and_rise_on_both_sides(left: list[int], right: list[int]) -> None:
    pairs = matched(left, right)
    assert all(left[here] == right[there] for here, there in pairs)
    for (here, there), (next_here, next_there) in itertools.pairwise(pairs):
        assert here < next_here
        assert there < next_there


@given(st.lists(st.integers(), unique=True, min_size=1, max_size=40), st.data())
def test_what_was_taken_out_is_all_that_has_no_pair(left: list[int], data: st.DataObject) -> None:
    gone = data.draw(st.sets(st.integers(0, len(left) - 1)))
    right = [value for index, value in enumerate(left) if index not in gone]
    kept = [index for index in range(len(left)) if index not in gone]
    assert matched(left, right) == list(zip(kept, range(len(kept)), strict=True))
    assert matched(right, left) == list(zip(range(len(kept)), kept, strict=True))


@pytest.mark.parametrize("values", [2, 50])
def test_with_many_differences_repeated_elements_are_told_apart_by_what_follows(values: int) -> None:
    drawn = random.Random(1)
    left = [drawn.randrange(values) for _ in range(8_000)]
    right = [*left[:1_000], *left[2_050:4_000], *left[5_050:]]
    assert len(left) - len(right) > sequences.EDITS_MAX
    assert len(matched(left, right)) == len(matched(right, left)) == len(right)


def test_what_nothing_tells_apart_is_matched_where_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sequences, "EDITS_MAX", 2)
    left, right = [0, 1] * 9, [1, 1, 0, 0] * 4
    assert matched(left, right) == [(1, 1), (2, 2), (5, 5), (6, 6), (9, 9), (10, 10), (13, 13), (14, 14)]
    assert matched([0, 1] * 9, [1, 0] * 7) == []


@given(st.permutations(range(9)))
def test_the_chain_is_the_longest_that_rises(order: list[int]) -> None:
    chain = rising(enumerate(order))
    best = [1] * len(order)
    for at in range(len(order)):
        best[at] += max((best[i] for i in range(at) if order[i] < order[at]), default=0)
    assert len(chain) == max(best)
    assert chain == sorted(chain, key=lambda pair: pair[1])


def test_repeated_elements_are_aligned_too() -> None:
    assert len(matched([1, 1, 2, 1], [1, 2, 1, 1])) == 3
    assert matched([7] * 5, [7] * 4) == [(0, 0), (1, 1), (2, 2), (3, 3)]


@given(FEW, FEW)
def test_repeats_keep_the_longest_common_subsequence(left: list[int], right: list[int]) -> None:
    found = sequences._shortest_edit(left, right)
    assert found is not None
    assert all(left[here] == right[there] for here, there in found)
    assert found == rising(found)
    best = [[0] * (len(right) + 1) for _ in range(len(left) + 1)]
    for row, column in itertools.product(range(len(left)), range(len(right))):
        step = best[row][column] + 1 if left[row] == right[column] else 0
        best[row + 1][column + 1] = max(step, best[row][column + 1], best[row + 1][column])
    assert len(found) == best[-1][-1]


def test_a_long_range_of_few_different_elements_is_aligned() -> None:
    chance = random.Random(5)
    left = [chance.randrange(50) for _ in range(100_000)]
    right = [*left[:3], *left[4:40_000], 99, *left[40_000:90_000], *left[90_200:]]
    assert len(matched(left, right)) == 100_000 - 201


def test_too_many_differences_are_compared_by_position(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sequences, "EDITS_MAX", 10)
    assert sequences._shortest_edit([1, 2] * 100, [2, 2] * 100) is None
    assert len(matched([3, *([1, 2] * 100), 1], [4, *([2, 2] * 100), 2])) == 100
