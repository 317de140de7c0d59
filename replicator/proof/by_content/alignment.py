"""How the chunks of both sides of a partition correspond, and which ranges have to be opened. Pure.

Chunks with equal digests are matched in order (`sequences.matched`). What lies between two matches is a *gap*: records
of either side, or of both, that have to be looked at one by one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import NamedTuple

from replicator.proof.by_content.cutting import MEAN_MIN, Piece, begins_chunk, joined
from replicator.proof.by_content.sequences import matched, once

CHUNKS_MAX = 1 << 18
"""About as many chunks as the driver holds for all partitions of one side."""
OPENED_MAX = 250_000
"""Records of both sides that are compared with one another in one task; a gap that has more is divided."""


def mean_size(records: int) -> int:
    """Decide how many records a chunk has on the average, when there are so many of one side: a power of two."""
    mean = MEAN_MIN
    while mean * CHUNKS_MAX < records:
        mean *= 2
    return mean


def chunks(pieces: Iterable[Piece]) -> list[Piece]:
    """Make whole chunks from what the tasks that read one side of a partition gave, in any order.

    Runs of one and the same record are one chunk however long they are: so they are compared by their number.
    """
    found: list[Piece] = []
    for piece in sorted(pieces):
        before = found[-1] if found else None
        if before is not None and (not before.complete or _same_run(before, piece)):
            found[-1] = joined(before, piece)
        else:
            found.append(piece)
    return found


def _same_run(before: Piece, piece: Piece) -> bool:
    return before.alone and piece.alone and before.begins == piece.begins


class Side(NamedTuple):
    """The chunks of one side of a partition, and how many records stand before each; at the end, how many there are."""

    chunks: Sequence[Piece]
    ranks: Sequence[int]

    @property
    def records(self) -> int:
        """All records of this side."""
        return self.ranks[-1]

    def holding(self, rank: int) -> int:
        """Return the number of the chunk with the record of this rank; behind the last, how many there are."""
        return min(bisect_right(self.ranks, rank) - 1, len(self.chunks))

    def size(self, first: int, end: int) -> int:
        """Say about how many bytes its keys and values have at offsets [first, end): of a chunk that lies there in
        part, the same share."""
        found = 0
        begin = max(0, bisect_right(self.chunks, first, key=lambda chunk: chunk.first_offset) - 1)
        for number in range(begin, len(self.chunks)):
            chunk = self.chunks[number]
            if chunk.first_offset >= end:
                break
            inside = min(end, chunk.last_offset + 1) - max(first, chunk.first_offset)
            found += chunk.size * max(0, inside) // (chunk.last_offset + 1 - chunk.first_offset)
        return found


def side(pieces: Iterable[Piece]) -> Side:
    """Make the chunks and the ranks from the pieces of one side."""
    whole = chunks(pieces)
    return Side(whole, [0, *accumulate(chunk.records for chunk in whole)])


class Gap(NamedTuple):
    """Chunks [first, end) of either side, between two matches or before the first or behind the last.

    `divided`: a part of a gap that was too large; where the parts correspond is a guess.
    """

    source: tuple[int, int]
    target: tuple[int, int]
    divided: bool = False


@dataclass(frozen=True, slots=True)
class Aligned:
    """Both sides of a partition, and the gaps in order."""

    source: Side
    target: Side
    gaps: Sequence[Gap]

    @property
    def matched_records(self) -> int:
        """Records in chunks that both sides have alike."""
        return self.source.records - sum(
            self.source.ranks[gap.source[1]] - self.source.ranks[gap.source[0]] for gap in self.gaps
        )

    @property
    def prefix_end(self) -> tuple[int, int]:
        """The first chunks that both sides have alike, or the numbers of all chunks: what stands before is the
        prefix."""
        at = (0, 0)
        for gap in self.gaps:
            if (gap.source[0], gap.target[0]) != at:
                break
            at = gap.source[1], gap.target[1]
        return at


def align(source: Side, target: Side, mean: int) -> Aligned:
    """Match the chunks of both sides, then, in what is left, chunks that begin with the same record.

    Args:
        mean: how many records a chunk has on the average, as they were cut.
    """
    pairs = matched([_identity(chunk) for chunk in source.chunks], [_identity(chunk) for chunk in target.chunks])
    ends = [(-1, -1), *pairs, (len(source.chunks), len(target.chunks))]
    gaps = [
        part
        for (here, there), (next_here, next_there) in pairwise(ends)
        if next_here - here > 1 or next_there - there > 1
        for part in _parts(Gap((here + 1, next_here), (there + 1, next_there)), source, target, mean)
    ]
    return Aligned(source, target, gaps)


def _parts(gap: Gap, source: Side, target: Side, mean: int) -> list[Gap]:
    """Divide a gap into parts: where one record begins a chunk of either side they correspond, whatever follows in
    them.

    Only a record that cuts by itself, and once: a chunk that was cut for its length begins anywhere.
    """
    (first, end), (target_first, target_end) = gap.source, gap.target
    here, there = (
        [(number, chunk.begins) for number, chunk in enumerate(chunks, start) if begins_chunk(chunk.begins, mean)]
        for chunks, start in (
            (source.chunks[first:end], first),
            (target.chunks[target_first:target_end], target_first),
        )
    )
    pairs = once([begins for _, begins in here], [begins for _, begins in there])
    cuts = [(first, target_first), *((here[left][0], there[right][0]) for left, right in pairs), (end, target_end)]
    return [
        part
        for (here, there), (next_here, next_there) in pairwise(cuts)
        if next_here > here or next_there > there
        for part in divided(Gap((here, next_here), (there, next_there)), source, target)
    ]


def divided(gap: Gap, source: Side, target: Side) -> list[Gap]:
    """Divide a gap into parts of at most about OPENED_MAX records of both sides, each with the same share of either."""
    (first, end), (target_first, target_end) = gap.source, gap.target
    here, there = source.ranks[end] - source.ranks[first], target.ranks[target_end] - target.ranks[target_first]
    parts = -(-(here + there) // OPENED_MAX)
    if parts <= 1:
        return [gap]
    cuts = [_shared(source, gap.source, parts), _shared(target, gap.target, parts)]
    found = [
        Gap(own, other, divided=True)
        for own, other in zip(pairwise(cuts[0]), pairwise(cuts[1]), strict=True)
        if own[0] < own[1] or other[0] < other[1]
    ]
    return found


def _shared(of: Side, chunks: tuple[int, int], parts: int) -> list[int]:
    """Return the chunk numbers at which a range is divided into so many parts of about as many records."""
    first, end = chunks
    begun, records = of.ranks[first], of.ranks[end] - of.ranks[first]
    inner = [bisect_left(of.ranks, begun + records * part // parts, first, end) for part in range(1, parts)]
    return [first, *inner, end]


def _identity(chunk: Piece) -> int:
    """Return a number that is equal for equal chunks, and otherwise as good as never."""
    found = chunk.records
    for part in chunk.hashes:
        found = found << 32 | part
    return found
