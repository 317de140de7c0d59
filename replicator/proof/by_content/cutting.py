"""Cuts a partition's records into chunks where the records themselves say so, and digests each chunk. Pure.

As rsync and borg cut files: whether a chunk begins at a record depends on that record's own digest, so both sides are
cut alike wherever they hold the same records, whatever is missing, added or read by another task before. Runs in
Spark's Python workers on columns of numbers; nothing here knows Spark or Kafka.

The digest of a chunk is a polynomial over the digests of its records, modulo a prime: the digest of two ranges, one
behind the other, follows from theirs (`joined`). So a partition may be read by several tasks, each of which begins and
ends anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from replicator.proof.arrays import OffsetArray, WordArray

PRIME = (1 << 31) - 1
BASES = (0x2545F491, 0x3C6EF372)
"""One for either half of a record's digest."""
MEAN_MIN = 512
MIN_PART, MAX_TIMES = 8, 16
"""A chunk has at least an eighth, at most sixteen times as many records as chunks have on the average, where the task
that reads it knows its beginning."""
_LOW_BITS = 16
_LOW = (1 << _LOW_BITS) - 1
_WORD = (1 << 64) - 1


class Piece(NamedTuple):
    """A chunk, or the part of it that one task has read.

    `begins`: the digest of its first record; `alone`: it is that of all its records. `complete`: the next record begins
    another chunk. `first_ms` and `last_ms` are the smallest and the largest timestamp, `size` the bytes of all keys and
    values. `hashes`: two for each digest that a record has.
    """

    first_offset: int
    last_offset: int
    records: int
    first_ms: int
    last_ms: int
    size: int
    hashes: tuple[int, ...]
    begins: int
    alone: bool
    complete: bool


def joined(left: Piece, right: Piece) -> Piece:
    """Join two ranges of one chunk as one; `right` begins directly behind `left`."""
    moved = [pow(base, left.records, PRIME) for base in BASES]
    hashes = (
        (before + moved[index % len(moved)] * behind) % PRIME
        for index, (before, behind) in enumerate(zip(left.hashes, right.hashes, strict=True))
    )
    return Piece(
        left.first_offset,
        right.last_offset,
        left.records + right.records,
        min(left.first_ms, right.first_ms),
        max(left.last_ms, right.last_ms),
        left.size + right.size,
        tuple(hashes),
        left.begins,
        left.alone and right.alone and left.begins == right.begins,
        right.complete,
    )


def begins_chunk(digest: int, mean: int) -> bool:
    """Return whether a record with this digest begins a chunk, unless the chunk before would be too short."""
    return not int(_mixed(np.array([digest & _WORD], dtype=np.uint64))[0]) & (mean - 1)


class Cutter:
    """Takes the records of one task in the order of their offsets; gives the pieces that are complete, then the rest.

    Raises ValueError when offsets don't rise: what is read would not be a range of one partition.
    """

    def __init__(self, mean: int) -> None:
        """`mean`: how many records a chunk has on the average; a power of two."""
        self._mask = np.uint64(mean - 1)
        self._min, self._max = max(1, mean // MIN_PART), mean * MAX_TIMES
        self._powers = [(_powers(base, 1), _powers(pow(base, _LOW + 1, PRIME), 1)) for base in BASES]
        self._open: Piece | None = None
        self._begun = (
            False  # whether the beginning of a chunk was seen: before it, how long the open one is isn't known
        )
        self._last_digest: int | None = None
        self._last_offset = -1

    def feed(
        self, offsets: OffsetArray, times_ms: OffsetArray, sizes: OffsetArray, *columns: WordArray
    ) -> Iterator[Piece]:
        """Yield the pieces that are complete with these records.

        Args:
            sizes: how many bytes their keys and values have.
            columns: their digests; the first says where to cut.
        """
        digests = columns[0]
        if not len(offsets):
            return
        if int(offsets[0]) <= self._last_offset or bool((np.diff(offsets) <= 0).any()):
            raise ValueError(f"offsets don't rise behind {self._last_offset}: {offsets[0]} to {offsets[-1]}")
        changes = np.empty(len(digests), dtype=bool)
        changes[0] = self._last_digest is None or int(digests[0]) != self._last_digest
        np.not_equal(digests[1:], digests[:-1], out=changes[1:])
        starts = self._starts(np.flatnonzero(((_mixed(digests) & self._mask) == 0) & changes), len(digests))
        yield from self._pieces(starts, offsets, times_ms, sizes, columns, changes)
        self._last_digest, self._last_offset = int(digests[-1]), int(offsets[-1])

    def finish(self) -> Iterator[Piece]:
        """Yield what is left when the task's records are at their end."""
        if self._open is not None:
            yield self._open
            self._open = None

    def _starts(self, wanted: NDArray[np.intp], count: int) -> list[int]:
        """Say where pieces of these records begin; the first of them continues the open one, unless 0 is in the
        list.
        """
        starts: list[int] = []
        begun = -(self._open.records if self._open is not None else 0)
        for at in [*wanted.tolist(), count]:
            while at - begun > self._max:
                begun = begun + self._max
                starts.append(begun)
            if at < count and (at - begun >= self._min or not self._begun):
                begun, self._begun = at, True
                starts.append(at)
        return starts

    def _pieces(
        self,
        starts: Sequence[int],
        offsets: OffsetArray,
        times_ms: OffsetArray,
        sizes: OffsetArray,
        columns: Sequence[WordArray],
        changes: NDArray[np.bool_],
    ) -> Iterator[Piece]:
        if starts and starts[0] == 0:
            if self._open is not None:
                yield self._open._replace(complete=True)
            self._open, edges = None, list(starts)
        else:
            edges = [0, *starts]
        bounds, digests = np.array([*edges, len(offsets)]), columns[0]
        sums = [sums for column in columns for sums in self._sums(column, bounds)]
        smallest, largest = np.minimum.reduceat(times_ms, edges), np.maximum.reduceat(times_ms, edges)
        together = np.add.reduceat(sizes, edges, dtype=np.int64)
        changed = np.cumsum(changes)
        for index, first in enumerate(edges):
            behind = int(bounds[index + 1])
            piece = Piece(
                int(offsets[first]),
                int(offsets[behind - 1]),
                behind - first,
                int(smallest[index]),
                int(largest[index]),
                int(together[index]),
                tuple(int(each[index]) for each in sums),
                begins=int(digests[first]),
                alone=bool(changed[behind - 1] == changed[first]),
                complete=False,
            )
            if index == 0 and self._open is not None:
                piece = joined(self._open, piece)
            if index + 1 < len(edges):
                yield piece._replace(complete=True)
            else:
                self._open = piece

    def _sums(self, digests: WordArray, bounds: NDArray[np.intp]) -> list[WordArray]:
        """Compute each piece's polynomial over its own records, the first of them having the power 0."""
        edges, lengths = bounds[:-1], np.diff(bounds)
        places = np.arange(len(digests)) - np.repeat(edges, lengths)
        halves = digests & np.uint64(0xFFFFFFFF), digests >> np.uint64(32)
        found = []
        for half, (low, high) in zip(halves, self._powers, strict=True):
            power = low[places & _LOW] * high[places >> _LOW_BITS] % np.uint64(PRIME)
            terms = half % np.uint64(PRIME) * power % np.uint64(PRIME)
            found.append(np.add.reduceat(terms, edges) % np.uint64(PRIME))
        return found


def _mixed(digests: WordArray) -> WordArray:
    """Make all bits of a digest depend on all others: low ones alone decide where a chunk begins."""
    mixed = digests ^ (digests >> np.uint64(33))
    mixed = mixed * np.uint64(0xFF51AFD7ED558CCD)
    found: WordArray = mixed ^ (mixed >> np.uint64(29))
    return found


def _powers(base: int, first: int) -> WordArray:
    """Compute base^0, base^1, ... modulo PRIME, as many as `_LOW_BITS` bits count."""
    powers = np.empty(_LOW + 1, dtype=np.uint64)
    powers[0] = first
    known = 1
    while known < len(powers):
        step = np.uint64(pow(base, known, PRIME))
        powers[known : 2 * known] = powers[:known] * step % np.uint64(PRIME)
        known *= 2
    return powers
