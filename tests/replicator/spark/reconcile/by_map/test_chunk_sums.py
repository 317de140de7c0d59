"""Sums of both sides cancel out where, and only where, each record stands at its place."""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest

from replicator.offset_map.mapped import OffsetRanges
from replicator.proof.row_places import RowPlaces
from replicator.spark.reconcile.by_map.chunk_sums import SumKind, TaskSums, mixed
from tests.replicator.spark.reconcile.by_map.drawn_maps import END, PAIR, drawn_map

BITS = 3
Rows = dict[int, int]
"""Digests by offset."""


def sides(seed: int) -> tuple[RowPlaces, Rows, Rows]:
    """A map that covers all, and both sides as it says."""
    mapped = replace(
        drawn_map(random.Random(seed)), begin=0, begin_target=0, passed=END, next_target=2 * END, unmapped=()
    )
    mapped = replace(mapped, others=OffsetRanges(), ahead=OffsetRanges())
    source = {offset: offset * 7919 + 1 for run in mapped.by_source for offset in range(run.first, run.end)}
    target = {mapped.by_source.place(offset) or 0: digest for offset, digest in source.items()}
    return RowPlaces(PAIR, mapped, ()), source, dict(sorted(target.items()))


def summed(rows: RowPlaces, source: Rows, target: Rows, draw: random.Random) -> dict[tuple[SumKind, int], list[int]]:
    """XOR, signed count, and records behind, by kind and number, of both sides read by several tasks in batches."""
    found: dict[tuple[SumKind, int], list[int]] = defaultdict(lambda: [0, 0, 0])
    for of_source, side in ((True, source), (False, target)):
        offsets = sorted(side)
        cuts = sorted({0, len(offsets), *(draw.randrange(len(offsets)) for _ in range(4))})
        for first, end in itertools.pairwise(cuts):
            task = TaskSums(rows, 0, BITS)
            middle = (first + end) // 2
            for batch in (offsets[first:middle], offsets[middle:end]):
                columns = np.array(batch, dtype=np.int64), np.array([side[at] for at in batch], dtype=np.uint64)
                (task.source if of_source else task.target)(columns[0], columns[0], [columns[1]])
            for key, one in task.found.items():
                found[key][0] ^= one.one
                found[key][1] += one.records
                found[key][2] += one.behind
    return found


def differing(found: dict[tuple[SumKind, int], list[int]]) -> set[int]:
    return {number for (kind, number), (xor, count, _) in found.items() if kind is SumKind.CHUNK and (xor or count)}


@pytest.mark.tier("default")
def test_only_chunks_with_what_was_done_to_a_side_differ() -> None:
    for seed in range(30):
        draw = random.Random(seed)
        rows, source, target = sides(seed)
        clean = summed(rows, source, target, draw)
        assert not differing(clean)
        assert not any(kind is SumKind.UNPLACED for kind, _ in clean)
        assert clean[SumKind.PLACED, 0][1] == clean[SumKind.SOURCE, 0][1] == clean[SumKind.TARGET, 0][1] == len(source)
        behind = rows.source(np.array(sorted(source), dtype=np.int64)).behind.sum()
        assert sum(one[2] for (kind, _), one in clean.items() if kind is SumKind.CHUNK) == behind
        places = list(target)
        at, other = draw.sample(places, 2)
        lost = {place: digest for place, digest in target.items() if place != at}
        assert differing(summed(rows, source, lost, draw)) == {at >> BITS}
        assert differing(summed(rows, source, target | {at: 5}, draw)) == {at >> BITS}
        swapped = target | {at: target[other], other: target[at]}
        assert differing(summed(rows, source, swapped, draw)) == {at >> BITS, other >> BITS}
        foreign = max(places) + 9
        assert differing(summed(rows, source, target | {foreign: 5}, draw)) == {foreign >> BITS}


def test_a_record_without_a_place_is_counted_apart() -> None:
    rows, source, target = sides(3)
    found = summed(rows, source | {END - 1: 4}, target, random.Random(3))
    assert not differing(found)
    assert found[SumKind.UNPLACED, (END - 1) >> BITS][1] == 1


def test_a_hash_holds_the_place_and_the_digest() -> None:
    digests, places = np.arange(1_000, dtype=np.uint64), np.arange(1_000, dtype=np.int64)
    found = [mixed(digests, places + shift) for shift in range(5)]
    assert len({int(word) for words in found for word in words}) == 5_000
    low = np.concatenate(found) & np.uint64(0xFF)
    assert len(set(low.tolist())) == 256
