"""Which offsets a repair's reader reads without a new assignment, and which of the records it takes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from replicator.model.partition import Span
from replicator.model.reading_over import BYTES_MAX, OFFSETS_MAX
from replicator.planes.records.record_reader import POLL_RECORDS_MAX, SpansLeft


@dataclass(frozen=True)
class ReadBack:
    """A record of so many bytes."""

    at: int
    size: int

    def offset(self) -> int:
        return self.at

    def key(self) -> bytes | None:
        return b"k"

    def value(self) -> bytes | None:
        return b"v"

    def timestamp(self) -> tuple[int, int]:
        return 1, 0

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return None

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return 0

    def leader_epoch(self) -> int | None:
        return None

    def __len__(self) -> int:
        return self.size


def read(spans: Sequence[Span], record_bytes: int, log: Sequence[int]) -> tuple[list[int], list[list[int]]]:
    """Offsets that were taken, and those that each assignment read, of a log with these offsets."""
    left, taken, assignments = SpansLeft(spans), list[int](), list[list[int]]()
    while left:
        reached = left.first
        assignments.append([])
        while wanted := left.together(reached):
            assert wanted <= POLL_RECORDS_MAX
            some = [ReadBack(offset, record_bytes) for offset in log if offset >= reached][:wanted]
            assignments[-1] += [record.at for record in some]
            reached = some[-1].at + 1 if some else left.end
            taken += [one.offset() for one in left.take(some, reached)]
    return taken, assignments


@pytest.mark.parametrize(
    ("record_bytes", "assignments"),
    [
        (100, [(0, 10)]),
        (BYTES_MAX // 5, [(0, 10)]),
        (BYTES_MAX // 4, [(0, 4), (9, 10)]),
        (BYTES_MAX // 2, [(0, 4), (9, 10)]),
        (10 * BYTES_MAX, [(0, 1), (3, 4), (9, 10)]),
    ],
)
def test_how_far_it_reads_on_goes_by_the_size_of_what_it_has_read(record_bytes: int, assignments: list[Span]) -> None:
    spans = [(0, 1), (3, 4), (4, 4), (9, 10)]
    taken, found = read(spans, record_bytes, range(50))
    assert taken == [0, 3, 9]
    assert found == [[*range(*span)] for span in assignments]


def test_small_records_are_read_over_up_to_a_number() -> None:
    for distance, assignments in ((OFFSETS_MAX, 1), (OFFSETS_MAX + 1, 2)):
        taken, found = read([(0, 1), (1 + distance, 2 + distance)], 1, range(3 * OFFSETS_MAX))
        assert (taken, len(found)) == ([0, 1 + distance], assignments)


@pytest.mark.tier("default")
def test_all_that_is_wanted_is_taken_once_from_logs_with_gaps() -> None:
    for seed in range(80):
        drawn = random.Random(seed)
        log = sorted(drawn.sample(range(9_000), 2_000))
        ends = sorted(drawn.sample(range(9_000), 2 * drawn.randrange(1, 40)))
        spans = [*zip(ends[::2], ends[1::2], strict=True)]
        taken, _ = read(spans, int(10 ** drawn.uniform(0, 8)), log)
        assert taken == [offset for offset in log if any(first <= offset < end for first, end in spans)]
