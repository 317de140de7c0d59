"""Ranges of a partition are read in few reads: near ones together, and those that are far apart each alone."""

from __future__ import annotations

import itertools
import random

import pytest

from replicator.spark.reconcile.kafka import READ_OVER, Offsets, put_together


@pytest.mark.parametrize(
    ("wanted", "ranges"),
    [
        ([], []),
        ([(5, 5)], []),
        ([(5, 9)], [(5, 9)]),
        ([(0, 10), (10 + READ_OVER, 20 + READ_OVER)], [(0, 20 + READ_OVER)]),
        ([(0, 10), (11 + READ_OVER, 20 + READ_OVER)], [(0, 10), (11 + READ_OVER, 20 + READ_OVER)]),
        (
            [(0, 1), (10_000, 10_001), (30_000, 30_001), (50_001, 50_002)],
            [(0, 10_001), (30_000, 30_001), (50_001, 50_002)],
        ),
    ],
)
def test_what_is_near_is_read_together(wanted: list[Offsets], ranges: list[Offsets]) -> None:
    assert put_together(wanted, 3) == ranges


def test_the_reads_hold_all_ranges_and_are_no_more_than_asked() -> None:
    for seed in range(500):
        drawn = random.Random(seed)
        at, wanted = 0, list[Offsets]()
        for _ in range(drawn.randrange(40)):
            at += int(10 ** (drawn.random() * 6))
            wanted.append((at, at := at + drawn.choice((0, 1, 100))))
        most = drawn.randrange(1, 9)
        found = put_together(wanted, most)
        assert len(found) <= most
        assert all(any(one <= first and end <= last for one, last in found) for first, end in wanted if first < end)
        apart = [after[0] - before[1] for before, after in itertools.pairwise(found)]
        assert all(distance > READ_OVER for distance in apart)
