"""Ranges of a partition are read in few reads: near ones together, and those that are far apart each alone."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

import pytest

from replicator.model.partition import Span
from replicator.model.reading_over import BYTES_MAX, OFFSETS_MAX
from replicator.spark.reconcile.kafka import put_together


def of_bytes(record: int) -> Callable[[int, int], int]:
    """Sizes where a record has so many bytes, and each offset one."""
    return lambda first, end: record * (end - first)


@pytest.mark.parametrize(
    ("wanted", "ranges"),
    [
        ([], []),
        ([(5, 5)], []),
        ([(5, 9)], [(5, 9)]),
        ([(0, 10), (10 + OFFSETS_MAX, 20 + OFFSETS_MAX)], [(0, 20 + OFFSETS_MAX)]),
        ([(0, 10), (11 + OFFSETS_MAX, 20 + OFFSETS_MAX)], [(0, 10), (11 + OFFSETS_MAX, 20 + OFFSETS_MAX)]),
        (
            [(0, 1), (10_000, 10_001), (30_000, 30_001), (50_001, 50_002)],
            [(0, 10_001), (30_000, 30_001), (50_001, 50_002)],
        ),
    ],
)
def test_what_is_near_is_read_together(wanted: list[Span], ranges: list[Span]) -> None:
    assert put_together(wanted, 3, of_bytes(100)) == ranges


@pytest.mark.parametrize(
    ("record_bytes", "ranges"),
    [
        (BYTES_MAX // 1_000, [(0, 1_200)]),
        (BYTES_MAX // 999, [(0, 101), (1_101, 1_200)]),
        (BYTES_MAX // 90, [(0, 1), (100, 101), (1_101, 1_200)]),
    ],
)
def test_large_records_are_not_read_for_nothing(record_bytes: int, ranges: list[Span]) -> None:
    wanted = [(0, 1), (100, 101), (1_101, 1_200)]
    assert put_together(wanted, 3, of_bytes(record_bytes)) == ranges


def test_those_with_the_fewest_bytes_between_them_are_read_together() -> None:
    """Large records are at the beginning."""
    wanted = [(0, 1), (5_000, 5_001), (20_000, 20_001)]
    found = put_together(
        wanted, 2, lambda first, end: sum(1 << 20 if offset < 5_000 else 1 for offset in range(first, end))
    )
    assert found == [(0, 1), (5_000, 20_001)]


def test_the_reads_hold_all_ranges_and_are_no_more_than_asked() -> None:
    for seed in range(500):
        drawn = random.Random(seed)
        at, wanted = 0, list[Span]()
        for _ in range(drawn.randrange(40)):
            at += int(10 ** (drawn.random() * 6))
            wanted.append((at, at := at + drawn.choice((0, 1, 100))))
        most = drawn.randrange(1, 9)
        found = put_together(wanted, most, of_bytes(1))
        assert len(found) <= most
        assert all(any(one <= first and end <= last for one, last in found) for first, end in wanted if first < end)
        apart = [after[0] - before[1] for before, after in itertools.pairwise(found)]
        assert all(distance > OFFSETS_MAX for distance in apart)
