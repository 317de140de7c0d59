"""Only chunks around a difference are opened, whatever was lost before them; and none that differs is passed over."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache

import pytest

from replicator.spark.reconcile import chunks
from replicator.spark.reconcile.chunks import Chunk, Range, Stretch

BITS = 4
SIZE = 1 << BITS


@cache
def digest(value: int) -> int:
    return random.Random(value).getrandbits(64) - (1 << 63)


def digests(values: Sequence[int], shifts: Sequence[Stretch] = (Stretch(0, 0),)) -> dict[int, Chunk]:
    """What the digest pass says of one side; records stand at every second offset, from 100 on."""
    grouped: dict[int, list[tuple[int, int, int]]] = {}
    for rank, value in enumerate(values):
        shift = [stretch.shift for stretch in shifts if stretch.start <= rank][-1]
        grouped.setdefault((rank + shift) >> BITS, []).append((rank, rank + shift, value))
    found = {}
    for number, rows in grouped.items():
        mixed = 0
        for _, aligned, value in rows:
            mixed ^= hash((value, aligned))
        packed = [(digest(value) & ~chunks.PLACE_MASK) | (rank & (SIZE - 1)) for rank, _, value in rows]
        offsets = [100 + 2 * rank for rank, _, _ in rows]
        found[number] = Chunk(
            number, len(rows), rows[0][0], offsets[0], offsets[-1], 0, 0, mixed, min(packed), max(packed)
        )
    return found


def opened(source: list[int], target: list[int], **cut: bool) -> tuple[list[int], chunks.Differing, list[Stretch]]:
    """Values of the source in opened chunks, after realignment."""
    here, there = digests(source), digests(target)
    shifts = chunks.stretches(chunks.anchors(here.values(), there.values(), BITS))
    if shifts != [Stretch(0, 0)]:
        there = digests(target, shifts)
    result = chunks.differing(here, there, **cut)
    inside = {number for interval in result.intervals for number in interval}
    return [value for rank, value in enumerate(source) if rank >> BITS in inside], result, shifts


def test_equal_sides_open_nothing() -> None:
    values = list(range(1000))
    assert opened(values, list(values)) == ([], chunks.Differing([]), [Stretch(0, 0)])
    assert opened([], []) == ([], chunks.Differing([]), [Stretch(0, 0)])


def test_a_changed_record_opens_its_chunk() -> None:
    values = list(range(1000))
    changed = [*values[:500], -1, *values[501:]]
    inside, _, shifts = opened(values, changed)
    assert inside == list(range(480, 512)), "with the chunk before it"
    assert shifts == [Stretch(0, 0)]


def test_a_swap_inside_a_chunk_is_seen() -> None:
    values = list(range(1000))
    swapped = [*values[:505], 506, 505, *values[507:]]
    assert set(opened(values, swapped)[0]) >= {505, 506}


@pytest.mark.parametrize("lost", [1, 3, SIZE, 5 * SIZE + 1])
def test_a_gap_opens_only_what_is_around_it(lost: int) -> None:
    values = list(range(4000))
    target = values[:2000] + values[2000 + lost :]
    inside, _, shifts = opened(values, target)
    assert set(inside) >= set(values[2000 : 2000 + lost])
    assert len(inside) <= lost + 10 * SIZE
    assert shifts[0] == Stretch(0, 0)
    assert shifts[-1].shift == lost


@pytest.mark.parametrize("doubled", [1, 7, 3 * SIZE])
def test_an_insertion_opens_only_what_is_around_it(doubled: int) -> None:
    values = list(range(4000))
    inside, _, _ = opened(values, values[:2000] + values[2000 - doubled :])
    assert 0 < len(inside) <= 2 * doubled + 10 * SIZE
    assert set(inside) & set(range(2000 - doubled - SIZE, 2000 + SIZE))


def test_no_damage_is_passed_over() -> None:
    chance = random.Random(3)
    for _ in range(60):
        values = list(range(1500))
        at = chance.sample(range(1500), 6)
        target = list(values)
        for place in sorted(at, reverse=True):
            kind = chance.choice(["lose", "double", "swap", "alter"])
            if kind == "lose":
                del target[place]
            elif kind == "double":
                target.insert(place, target[place])
            elif kind == "swap":
                target[place : place + 2] = target[place : place + 2][::-1]
            else:
                target[place] = -place
        inside, result, _ = opened(values, target)
        if target == values:
            continue
        assert result.intervals
        # Outside of what is opened, both sides are the same sequence.
        kept = set(values) - set(inside)
        assert [value for value in target if value in kept] == [value for value in values if value in kept]


def test_a_head_that_expired_is_counted_not_opened() -> None:
    values = list(range(4000))
    inside, result, shifts = opened(values, values[2000:], target_cut=True)
    assert shifts == [Stretch(0, 2000)]
    assert result.expired_target >= 2000 - 8 * SIZE
    assert len(inside) + result.expired_target == 2000
    _, result, shifts = opened(values[2000:], values, source_cut=True)
    assert shifts == [Stretch(0, -2000)]
    assert result.expired_source >= 2000 - 8 * SIZE
    inside, result, _ = opened(values, values[2000:])
    assert (result.expired_target, len(inside)) == (0, 2000), "not cut: these are lost"


def test_without_any_anchor_a_given_shift_is_tried() -> None:
    assert chunks.stretches([], 5) == [Stretch(0, 5)]
    assert chunks.stretches([(3, 1), (9, 7), (12, 8)], 5) == [Stretch(0, 2), Stretch(8, 4)]


def test_near_chunks_are_read_together_and_few_ranges_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    side = digests(list(range(1000)))
    one = side[3]
    assert chunks.ranges([one]) == [Range(100 + 2 * 48, 100 + 2 * 63 + 1, 48)]
    overlapping = side[4]._replace(first_offset=one.first_offset + 2)
    assert chunks.ranges([overlapping, one]) == [Range(one.first_offset, overlapping.last_offset + 1, 48)]
    assert len(chunks.ranges([side[0], side[40]])) == 1
    monkeypatch.setattr(chunks, "NEAR", 0)
    monkeypatch.setattr(chunks, "RANGES_MAX", 2)
    far = chunks.ranges([side[0], side[2], side[40]])
    assert far == [Range(100, side[2].last_offset + 1, 0), Range(side[40].first_offset, side[40].last_offset + 1, 640)]


def test_chunks_grow_with_the_topic() -> None:
    assert chunks.chunk_bits(0) == chunks.chunk_bits(1_000_000) == chunks.BITS_MIN
    assert 1_000_000_000 >> chunks.chunk_bits(1_000_000_000) <= chunks.CHUNKS_AIM
