"""Sequences are aligned by content: in order, and a gap moves nothing behind it."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from replicator.spark import sequences
from replicator.spark.sequences import matched, rising

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


def test_too_many_repeats_are_compared_by_position() -> None:
    rows = 1100
    left, right = [1, 2] * (rows // 2), [2, 2] * (rows // 2)
    assert rows * rows > sequences.CELLS_MAX
    assert len(matched([3, *left, 1], [4, *right, 2])) > rows // 3
