"""What a repair copies in which transaction, what it leaves out, and what it misses."""

from __future__ import annotations

import random

import pytest

from replicator.jobs.repair_spans import Missing, Tally, batches, left, outside, runs_of, windows
from replicator.model.partition import Partition, Span
from replicator.model.reading_over import BYTES_MAX, OFFSETS_MAX
from replicator.state.claims import Repair

AT = Partition("t", 0)


def repair(*runs: tuple[int, int]) -> Repair:
    return Repair(AT, AT, runs, 0, 1, 0)


@pytest.mark.parametrize(
    ("done", "expected"),
    [
        ((), [Missing(10, 20, 8), Missing(30, 31, 1)]),
        ((repair((10, 12)),), [Missing(12, 20, 6), Missing(30, 31, 1)]),
        ((repair((17, 20)),), [Missing(10, 17, 5), Missing(30, 31, 1)]),
        ((repair((12, 14), (30, 31)),), [Missing(10, 12, 0), Missing(14, 20, 6)]),
        (
            (repair((12, 14)), repair((15, 16))),
            [Missing(10, 12, 0), Missing(14, 15, 0), Missing(16, 20, 5), Missing(30, 31, 1)],
        ),
        ((repair((10, 14), (16, 20)), repair((30, 31))), []),
        ((repair((0, 100)), repair((0, 100))), []),
    ],
)
def test_records_of_other_repairs_are_left_out(done: tuple[Repair, ...], expected: list[Missing]) -> None:
    assert left([Missing(10, 20, 8), Missing(30, 31, 1)], done) == expected


@pytest.mark.parametrize(
    ("left_out", "expected"),
    [
        ([], [Missing(10, 20, 8, 5), Missing(30, 31, 1)]),
        ([(12, 14)], [Missing(10, 12, 0, 5), Missing(14, 20, 8, 5), Missing(30, 31, 1)]),
        ([(12, 14), (13, 16), (18, 20)], [Missing(10, 12, 0, 5), Missing(16, 18, 8, 5), Missing(30, 31, 1)]),
        ([(0, 12), (19, 30)], [Missing(12, 19, 8, 5), Missing(30, 31, 1)]),
        ([(0, 100)], []),
    ],
)
def test_what_is_left_out_on_purpose_is_in_no_span(left_out: list[Span], expected: list[Missing]) -> None:
    assert outside([Missing(10, 20, 8, 5), Missing(30, 31, 1)], left_out) == expected


@pytest.mark.parametrize("seed", range(200))
def test_whatever_others_have_copied_the_rest_is_all_there_and_nothing_is_called_gone(seed: int) -> None:
    """Offsets are sparse, repairs of several generations overlap, and what is left of one list is asked for again."""
    draw = random.Random(seed)
    spans, offsets, end = list[Missing](), set[int](), 0
    for _ in range(draw.randint(1, 6)):
        first = end + draw.randint(0, 5)
        end = first + draw.randint(1, 20)
        records = set(draw.sample(range(first, end), draw.randint(1, end - first)))
        spans.append(Missing(first, end, len(records)))
        offsets |= records
    missing = spans
    for _ in range(draw.randint(1, 3)):
        done = [copied for copied in runs_of(sorted(offsets)) if draw.random() < 0.5]
        done = [(low, draw.randint(low + 1, high)) for low, high in done]
        missing = left(missing, [repair(run) for run in draw.choices(done, k=2 * len(done))] if done else [])
        taken = {offset for run in done for offset in range(*run)}
        chosen = {offset for offset in offsets if not any(one.first <= offset < one.end for one in missing)}
        assert chosen <= taken
        offsets -= chosen
        assert sum(one.records for one in missing) == len(offsets)
        tally = Tally(missing)
        for offset in sorted(offsets):
            tally.add([(offset, offset + 1)])
            assert tally.lacking(offset) is None
        assert tally.lacking(end) is None


def test_transactions_are_bounded_and_far_records_get_their_own() -> None:
    far = 25 + OFFSETS_MAX + 1
    spans = [Missing(0, 7, 7), Missing(9, 10, 1), Missing(24, 25, 1), Missing(far, far + 2, 2)]
    assert batches(spans, 5) == [[(0, 5)], [(5, 7), (9, 10), (24, 25)], [(far, far + 2)]]
    assert batches([]) == []


def test_large_records_between_two_spans_are_not_read_for_nothing() -> None:
    spans = [Missing(0, 1, 1), Missing(9, 10, 1), Missing(1_000, 1_001, 1)]
    together = [span[:2] for span in spans]
    assert batches(spans, record_bytes=BYTES_MAX // 1_000) == [together]
    assert batches(spans, record_bytes=BYTES_MAX // 900) == [together[:2], together[2:]]
    assert batches(spans, record_bytes=BYTES_MAX) == [[span] for span in together]


def test_a_record_that_has_gone_is_noticed_at_its_spans_end() -> None:
    tally = Tally([Missing(0, 10, 6), Missing(20, 25, 5)])
    tally.add([(0, 3)])
    assert tally.lacking(5) is None
    tally.add([(5, 8), (20, 24)])
    assert tally.lacking(22) is None
    assert tally.lacking(25) == (20, 25, 1)


def test_parts_of_a_span_are_counted_together() -> None:
    tally = Tally(left([Missing(0, 10, 6)], [repair((4, 5))]))
    tally.add([(0, 2)])
    assert tally.lacking(4) is None
    tally.add([(6, 8)])
    assert tally.lacking(10) == (5, 10, 1)


def test_windows_cut_spans_and_count_their_records_at_the_end() -> None:
    spans = [Missing(0, 10, 7, after=4), Missing(20, 24, 4)]
    assert windows(spans, 6) == [
        [Missing(0, 6, 0, after=4)],
        [Missing(6, 10, 7, after=4), Missing(20, 22, 0)],
        [Missing(22, 24, 4)],
    ]
    assert windows(spans, 100) == [spans]
    assert windows([], 6) == []
