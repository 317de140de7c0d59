"""Chunks are cut where records say so, and their digests don't depend on who read which part."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest

from replicator.proof.by_content import alignment
from replicator.proof.by_content.cutting import MAX_TIMES, Cutter, Piece

MEAN, SIZE = 64, 100


def cut(digests: Sequence[int], *, first: int = 0, batch: int = 1000, mean: int = MEAN) -> list[Piece]:
    """The pieces of records at offsets from `first` on; their timestamps are their offsets."""
    cutter, found = Cutter(mean), list[Piece]()
    for at in range(0, len(digests), batch):
        some = np.array(digests[at : at + batch], dtype=np.uint64)
        offsets = np.arange(first + at, first + at + len(some), dtype=np.int64)
        found += cutter.feed(offsets, offsets, np.full(len(some), SIZE), some)
    return [*found, *cutter.finish()]


def some(count: int, seed: int = 1) -> list[int]:
    """Digests."""
    drawn = random.Random(seed)
    return [drawn.getrandbits(64) for _ in range(count)]


def contents(pieces: Sequence[Piece]) -> list[tuple[object, ...]]:
    """What doesn't depend on where they stand."""
    return [(piece.records, piece.hashes, piece.begins, piece.alone) for piece in pieces]


@pytest.mark.tier("default")
@pytest.mark.parametrize("batch", [1, 7, 100, 10_000])
def test_in_whatever_batches_records_come(batch: int) -> None:
    digests = some(3_000)
    assert cut(digests, batch=batch) == cut(digests)


def test_pieces_are_all_records_in_order() -> None:
    pieces = cut(some(5_000), first=70)
    assert sum(piece.records for piece in pieces) == 5_000
    assert all(piece.size == SIZE * piece.records for piece in pieces)
    assert (pieces[0].first_offset, pieces[-1].last_offset) == (70, 5_069)
    assert all(one.last_offset + 1 == other.first_offset for one, other in pairwise(pieces))
    assert [(piece.first_ms, piece.last_ms) for piece in pieces] == [
        (piece.first_offset, piece.last_offset) for piece in pieces
    ]
    assert 5_000 / MEAN / 2 < len(pieces) < 5_000 / MEAN * 2
    assert [piece.complete for piece in pieces] == [True] * (len(pieces) - 1) + [False]


def test_behind_what_is_missing_or_added_chunks_are_the_same() -> None:
    digests = some(20_000)
    for changed in ([*digests[:5_000], *digests[5_001:]], [*digests[:5_000], *some(30, seed=2), *digests[5_000:]]):
        before, after = contents(cut(digests)), contents(cut(changed))
        alike = set(before) & set(after)
        assert len(before) - len(alike) <= 3


@pytest.mark.tier("default")
@pytest.mark.parametrize("seed", range(20))
def test_several_tasks_give_the_chunks_that_one_gives(seed: int) -> None:
    """But for chunks shorter than usual, which only a task that knows what stands before can tell."""
    drawn = random.Random(seed)
    digests = some(6_000, seed)
    at = sorted(drawn.sample(range(1, 6_000), 4))
    pieces = [piece for first, end in pairwise([0, *at, 6_000]) for piece in cut(digests[first:end], first=first)]
    whole, parts = alignment.chunks(cut(digests)), alignment.chunks(pieces)
    assert sum(piece.records for piece in parts) == 6_000
    differing = set(contents(whole)) ^ set(contents(parts))
    assert len(differing) <= 3 * len(at)


def test_the_digest_of_a_chunk_knows_each_record_and_the_order() -> None:
    """No boundary is inside: the mean is large."""
    digests = some(100)
    swapped = [*digests[:50], digests[51], digests[50], *digests[52:]]
    changed = [*digests[:50], digests[50] ^ (1 << 63), *digests[51:]]
    low = [*digests[:50], digests[50] ^ 1, *digests[51:]]
    found = {cut(each, mean=1 << 40)[0].hashes for each in (digests, swapped, changed, low, digests[:-1], digests[1:])}
    assert len(found) == 6


def test_joined_pieces_have_the_digest_of_the_whole() -> None:
    digests = some(200)
    (whole,) = cut(digests, mean=1 << 40)
    for at in (1, 99, 199):
        halves = [*cut(digests[:at], mean=1 << 40), *cut(digests[at:], first=at, mean=1 << 40)]
        assert alignment.chunks(halves) == [whole]


def test_a_record_that_is_repeated_begins_no_chunk_and_is_one_however_long() -> None:
    """Its own digest would cut everywhere, or nowhere: neither must make chunks without end."""
    boundary = next(digest for digest in some(10_000) if len(cut([1, digest, 2], mean=2)) > 1)
    for digest in (boundary, 12345):
        pieces = cut([digest] * 50_000, mean=2)
        assert max(piece.records for piece in pieces) <= 2 * MAX_TIMES
        (run,) = alignment.chunks(pieces)
        assert (run.records, run.alone) == (50_000, True)


def test_two_records_that_take_turns_make_no_tiny_chunks() -> None:
    digests = some(10_000)
    cutting = next(digest for digest in digests if len(cut([1, digest, 2])) > 1)
    assert len(cut([cutting, 7] * 10_000)) <= 20_000 // (MEAN // 8)


def test_offsets_that_dont_rise_are_an_error() -> None:
    cutter = Cutter(MEAN)
    digests = np.array([1, 2], dtype=np.uint64)
    list(cutter.feed(np.array([5, 6]), np.array([0, 0]), np.array([0, 0]), digests))
    with pytest.raises(ValueError, match="don't rise"):
        list(cutter.feed(np.array([6, 7]), np.array([0, 0]), np.array([0, 0]), digests))
    with pytest.raises(ValueError, match="don't rise"):
        list(Cutter(MEAN).feed(np.array([8, 7]), np.array([0, 0]), np.array([0, 0]), digests))
