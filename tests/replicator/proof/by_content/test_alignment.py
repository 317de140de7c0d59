"""Which ranges of both sides have to be opened: as little as there is to see."""

from __future__ import annotations

import random

import pytest

from replicator.proof.by_content import alignment
from replicator.proof.by_content.alignment import Aligned, align, mean_size, side
from tests.replicator.proof.by_content.test_cutting import MEAN, SIZE, cut, some

RECORDS = 20_000


def aligned(source: list[int], target: list[int]) -> Aligned:
    return align(side(cut(source)), side(cut(target)), MEAN)


def opened(found: Aligned) -> tuple[int, int]:
    """Records in gaps, of the source and of the target."""
    return (
        sum(found.source.ranks[gap.source[1]] - found.source.ranks[gap.source[0]] for gap in found.gaps),
        sum(found.target.ranks[gap.target[1]] - found.target.ranks[gap.target[0]] for gap in found.gaps),
    )


def test_equal_sides_have_no_gap() -> None:
    found = aligned(some(RECORDS), some(RECORDS))
    assert found.gaps == []
    assert found.matched_records == RECORDS
    assert aligned([], []).gaps == []


def test_only_what_is_near_a_difference_is_opened() -> None:
    digests = some(RECORDS)
    found = aligned(digests, [*digests[:7_000], *digests[7_001:12_000], 5, *digests[12_000:]])
    assert len(found.gaps) == 2
    here, there = opened(found)
    assert here == there <= 2_000
    assert found.matched_records == RECORDS - here


def test_the_size_of_a_range_is_that_of_its_chunks() -> None:
    found = side(cut(some(RECORDS), first=1_000))
    (one, other), end = found.chunks[7:9], 1_000 + RECORDS
    assert found.size(one.first_offset, other.first_offset) == SIZE * one.records
    assert found.size(0, end + 5) == SIZE * RECORDS
    assert found.size(one.last_offset, other.first_offset + 3) == SIZE * 4
    assert [found.size(0, 1_000), found.size(end, end + 9), found.size(1_005, 1_005), side([]).size(0, 9)] == [0] * 4


@pytest.mark.parametrize(("source", "target"), [(some(500), []), ([], some(500))])
def test_one_side_alone_is_a_gap(source: list[int], target: list[int]) -> None:
    found = aligned(source, target)
    assert opened(found) == (len(source), len(target))
    assert found.prefix_end == (len(found.source.chunks), len(found.target.chunks))


def test_most_of_one_side_gone_is_cut_where_chunks_begin_alike() -> None:
    """Whole chunks are alike nowhere, and still no gap is large."""
    digests = some(RECORDS)
    drawn = random.Random(3)
    found = aligned(digests, [digest for digest in digests if drawn.random() < 0.3])
    largest = max(found.source.ranks[gap.source[1]] - found.source.ranks[gap.source[0]] for gap in found.gaps)
    assert largest < RECORDS / 10
    assert not any(gap.divided for gap in found.gaps)


def test_gaps_hold_all_records_that_are_not_matched_in_order() -> None:
    drawn = random.Random(4)
    digests = some(RECORDS)
    target = [digest for digest in digests if drawn.random() < 0.97]
    found = aligned(digests, target)
    assert [gap.source for gap in found.gaps] == sorted(gap.source for gap in found.gaps)
    here, there = opened(found)
    assert found.matched_records == RECORDS - here == len(target) - there


def test_a_gap_without_anything_in_common_is_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alignment, "OPENED_MAX", 1_000)
    found = aligned(some(3_000), some(6_000, seed=2))
    assert opened(found) == (3_000, 6_000)
    assert all(gap.divided for gap in found.gaps)
    assert len(found.gaps) == 9


def test_the_head_ends_at_the_first_chunk_that_both_have() -> None:
    digests = some(RECORDS)
    found = aligned(digests, digests[5_000:])
    here, there = found.prefix_end
    assert 5_000 <= found.source.ranks[here] < 6_000
    assert found.source.ranks[here] - found.target.ranks[there] == 5_000
    assert aligned(digests, digests).prefix_end == (0, 0)


def test_runs_of_one_record_are_compared_by_their_number() -> None:
    before, after = some(2_000), some(2_000, seed=2)
    found = aligned([*before, *[7] * 9_000, *after], [*before, *[7] * 8_999, *after])
    assert opened(found)[0] - opened(found)[1] == 1
    assert found.matched_records >= 3_000


def test_a_chunk_is_found_by_a_rank_in_it() -> None:
    whole = side(cut(some(RECORDS)))
    assert [whole.holding(rank) for rank in (0, RECORDS - 1, RECORDS, RECORDS + 5)] == [
        0,
        len(whole.chunks) - 1,
        len(whole.chunks),
        len(whole.chunks),
    ]
    assert side([]).holding(0) == 0


def test_the_number_of_chunks_is_bounded() -> None:
    assert [mean_size(records) for records in (0, 4_000_000, 10**10)] == [512, 512, 65_536]


def test_chunks_that_were_cut_for_their_length_correspond_nowhere() -> None:
    """A few records again and again, one of them gone: what a chunk happens to begin with says nothing."""
    drawn = random.Random(5)
    kinds = [digest for digest in some(100) if len(cut([1, digest, 2])) == 1][:3]
    digests = [drawn.choice(kinds) for _ in range(RECORDS)]
    found = aligned(digests, [*digests[:7], *digests[8:]])
    assert len(found.gaps) == 1
    assert opened(found) == (RECORDS, RECORDS - 1)
