"""Runs of source offsets, against the plainest way to find them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replicator.offset_map.runs import add_runs, runs_of

OFFSETS = st.lists(st.integers(0, 60), unique=True).map(sorted)


def one_by_one(offsets: list[int]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for offset in offsets:
        if found and found[-1][1] == offset:
            found[-1] = found[-1][0], offset + 1
        else:
            found.append((offset, offset + 1))
    return found


@given(OFFSETS, st.lists(st.integers(0, 60), max_size=4))
@settings(max_examples=150, deadline=None)
def test_offsets_in_whatever_portions_become_the_same_runs(offsets: list[int], cuts: list[int]) -> None:
    runs: list[tuple[int, int]] = []
    at = 0
    for cut in [*sorted(cut for cut in cuts if cut <= len(offsets)), len(offsets)]:
        add_runs(runs, runs_of(offsets[at:cut]))
        at = cut
    assert runs == runs_of(offsets) == one_by_one(offsets)


@pytest.mark.parametrize("offsets", [[9], [3, 30]])
def test_offsets_that_go_back_are_refused(offsets: list[int]) -> None:
    with pytest.raises(ValueError, match="source offset"):
        add_runs([(5, 10)], runs_of(offsets))
