"""From digests of chunks of both sides to the chunks that must be opened. Pure: runs in the driver.

Both sides of a partition are cut into chunks of equal size by rank. While nothing is lost or doubled, chunk n of one
side equals chunk n of the other. After a gap all ranks are shifted; then *anchors* say by how much: of each chunk, the
records with the smallest and the largest digest are known with their ranks, and most of them are the same records on
both sides, wherever the cuts fall. The target is digested once more with its ranks shifted, and again only the chunks
around a gap differ.

Invariant: equal chunks hold equal records in equal order. A digest mixes in each record's aligned rank; aligned ranks
fall back only where a stretch begins, and there two records get the same one, so the counts or digests differ.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from replicator.spark.reconcile.sequences import Pairs, rising

PLACE_BITS = 24
"""Low bits of a packed anchor: the record's place in its chunk. The bits above are those of its digest."""
PLACE_MASK = (1 << PLACE_BITS) - 1
BITS_MIN, BITS_MAX = 12, PLACE_BITS
CHUNKS_AIM = 1 << 16
"""About as many chunks a side as the driver holds at most; larger topics get larger chunks."""
RANGES_MAX = 8
"""Ranges of one partition that are read apart, so many at most; nearer ones are read with what lies between."""
NEAR = 1 << 17
"""Offsets between two ranges that are read sooner than another task is started."""


class Chunk(NamedTuple):
    """One side's records whose aligned rank falls into chunk `number`. `low` and `high` are packed anchors."""

    number: int
    records: int
    first_rank: int
    first_offset: int
    last_offset: int
    first_ms: int
    last_ms: int
    digest: int
    low: int
    high: int


class Stretch(NamedTuple):
    """Target records from rank `start` on stand where the source's stand at rank + `shift`."""

    start: int
    shift: int


class Range(NamedTuple):
    """Offsets [first, end) of one side; the record at `first` has rank `rank`."""

    first: int
    end: int
    rank: int


@dataclass(frozen=True, slots=True)
class Differing:
    """What to open: lists of chunks that are compared together, and records that need no opening.

    `expired_source` and `expired_target` count records at the head of one side whose other side begins later.
    """

    intervals: list[list[int]]
    expired_source: int = 0
    expired_target: int = 0


def chunk_bits(offsets: int) -> int:
    """Binary logarithm of the chunk size for so many offsets in all compared partitions of one side."""
    bits = BITS_MIN
    while offsets >> bits > CHUNKS_AIM and bits < BITS_MAX:
        bits += 1
    return bits


def anchors(source: Iterable[Chunk], target: Iterable[Chunk], bits: int) -> Pairs:
    """Ranks on the source and on the target of records that both sides have, rising on both."""
    here, there = _ranks(source, bits), _ranks(target, bits)
    return rising((rank, there[content]) for content, rank in here.items() if content in there)


def stretches(anchored: Pairs, shift: int = 0) -> list[Stretch]:
    """How the target's ranks are shifted against the source's. `shift` holds where there is no anchor at all."""
    found: list[Stretch] = []
    for rank, target_rank in anchored:
        if not found or found[-1].shift != rank - target_rank:
            found.append(Stretch(target_rank if found else 0, rank - target_rank))
    return found or [Stretch(0, shift)]


def _ranks(chunks: Iterable[Chunk], bits: int) -> dict[int, int]:
    """Ranks of anchors by their digest, without those that occur twice."""
    ranks: dict[int, int] = {}
    twice: set[int] = set()
    for chunk in chunks:
        for packed in {chunk.low, chunk.high}:
            content, rank = packed >> PLACE_BITS, (chunk.number << bits) + (packed & PLACE_MASK)
            if ranks.setdefault(content, rank) != rank:
                twice.add(content)
    return {content: rank for content, rank in ranks.items() if content not in twice}


def equal(source: Chunk | None, target: Chunk | None) -> bool:
    """Whether both sides have the same records there."""
    if source is None or target is None:
        return source is target
    return (source.records, source.digest) == (target.records, target.digest)


def differing(
    source: Mapping[int, Chunk], target: Mapping[int, Chunk], *, source_cut: bool = False, target_cut: bool = False
) -> Differing:
    """The chunks to open, by number.

    Neighbours are opened together, because a record may have moved from one into the other, and with the equal chunk
    before them, as the record that was doubled may be its last. In a long stretch that one side lacks, only the ends
    can hold records of both sides; its middle is opened apart, or, at the head of a partition whose other side was cut,
    only counted.

    Args:
        source_cut: retention (or DeleteRecords) has removed records from the head of the source's compared range.
        target_cut: the same of the target's.
    """
    unlike = {n for n in source.keys() | target.keys() if not equal(source.get(n), target.get(n))}
    numbers = sorted(unlike | {n - 1 for n in unlike if n - 1 in source})
    both = sorted(source.keys() & target.keys())
    head_end = both[0] if both else max(numbers, default=0) + 1
    found: list[list[int]] = []
    expired_source = expired_target = 0
    for run in _runs(numbers):
        for piece in _pieces(run, source, target):
            one_sided = all((n in source) != (n in target) for n in piece)
            head = piece[-1] < head_end and one_sided and len(piece) > 1
            if head and source_cut and piece[0] in target:
                expired_source += sum(target[n].records for n in piece)
            elif head and target_cut and piece[0] in source:
                expired_target += sum(source[n].records for n in piece)
            else:
                found.append(piece)
    return Differing(found, expired_source, expired_target)


def _runs(numbers: Sequence[int]) -> Iterator[list[int]]:
    for _, group in itertools.groupby(enumerate(numbers), lambda item: item[1] - item[0]):
        yield [number for _, number in group]


def _pieces(run: Sequence[int], source: Mapping[int, Chunk], target: Mapping[int, Chunk]) -> Iterator[list[int]]:
    """The middles of long one-sided stretches, and all the rest together.

    Records just before a gap are aligned as if it were not there until the next anchor, so they lie as many chunks past
    its beginning as they belong before its end: so many chunks stay with the rest at both ends, and two to spare.
    """
    by_sides = itertools.groupby(run, lambda n: (n in source, n in target))
    groups = [(sides, list(group)) for sides, group in by_sides]
    rest: list[int] = []
    for index, (sides, group) in enumerate(groups):
        around = [neighbour for near, neighbour in groups[max(0, index - 1) : index + 2] if near == (True, True)]
        margin = 2 + sum(map(len, around))
        if sides == (True, True) or len(group) <= 2 * margin:
            rest += group
            continue
        rest += [*group[:margin], *group[-margin:]]
        yield group[margin:-margin]
    if rest:
        yield sorted(rest)


def ranges(chunks: Iterable[Chunk]) -> list[Range]:
    """Where to read these chunks of one side: at most RANGES_MAX ranges, in order."""
    found: list[Range] = []
    for chunk in sorted(chunks, key=lambda item: item.first_offset):
        end = chunk.last_offset + 1
        if found and chunk.first_offset <= found[-1].end + NEAR:
            found[-1] = found[-1]._replace(end=max(found[-1].end, end))
        else:
            found.append(Range(chunk.first_offset, end, chunk.first_rank))
    while len(found) > RANGES_MAX:
        gaps = [after.first - before.end for before, after in itertools.pairwise(found)]
        nearest = gaps.index(min(gaps))
        found[nearest : nearest + 2] = [found[nearest]._replace(end=found[nearest + 1].end)]
    return found
