"""Compares the records that were read from the source and from the target. Pure; independent of the replicator.

A record's name is the number that its writer put into it; its content is everything a reader sees but the offset.
The verdict is the smallest set of faults that explains the target, so that one lost record counts as one fault and the
records after it as none.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple


class ReadRecord(NamedTuple):
    """A record as a reader sees it."""

    name: bytes
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int


Names = tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """How many records of one partition are on either side, and the faults in the copy by name.

    lost: in the source, not in the target. doubled: one entry for each copy too many. reordered: the fewest records
    that would have to move for the rest to stand in source order. altered: copies whose content is not the
    source's, and records that the source never held.
    """

    source: int = 0
    target: int = 0
    lost: Names = ()
    doubled: Names = ()
    reordered: Names = ()
    altered: Names = ()

    @property
    def exact(self) -> bool:
        """Nothing lost, doubled, reordered or altered."""
        return not (self.lost or self.doubled or self.reordered or self.altered)

    def __add__(self, other: Comparison) -> Comparison:
        return Comparison(
            self.source + other.source,
            self.target + other.target,
            self.lost + other.lost,
            self.doubled + other.doubled,
            self.reordered + other.reordered,
            self.altered + other.altered,
        )


def compare_records(source: Sequence[ReadRecord], target: Sequence[ReadRecord]) -> Comparison:
    """Give the verdict on one partition; both sides in the order of their offsets.

    A name that the source holds n times may be n times in the target. A target record without a known name (the name
    itself was damaged) that is where source records are missing is counted as one of them: altered, not lost.
    """
    places = _places(source)
    ranks = _ranks(places, target)
    kept = longest_rising(ranks)
    here = {rank for rank in ranks if rank is not None}
    reordered = here - {ranks[at] for at in kept}
    found = _unidentified(len(source), ranks, kept, here)
    return Comparison(
        len(source),
        len(target),
        lost=tuple(record.name for rank, record in enumerate(source) if rank not in here and rank not in found),
        doubled=_extra(ranks, target),
        reordered=tuple(source[rank].name for rank in sorted(rank for rank in reordered if rank is not None)),
        altered=_altered(source, target, places, found),
    )


def _places(source: Iterable[ReadRecord]) -> dict[bytes, list[int]]:
    """Return name → its places in the source, rising."""
    places: dict[bytes, list[int]] = defaultdict(list)
    for rank, record in enumerate(source):
        places[record.name].append(rank)
    return places


def _ranks(places: Mapping[bytes, list[int]], target: Iterable[ReadRecord]) -> list[int | None]:
    """Return the source place of each target record, None for one whose name the source doesn't hold.

    A name with several places takes them in turn; copies beyond share the last one.
    """
    turns = {name: deque(found) for name, found in places.items()}
    ranks: list[int | None] = []
    for record in target:
        turn = turns.get(record.name)
        ranks.append(None if turn is None else turn.popleft() if len(turn) > 1 else turn[0])
    return ranks


def _extra(ranks: Sequence[int | None], target: Sequence[ReadRecord]) -> Names:
    """Return one name for every copy of a source place beyond the first."""
    taken: set[int] = set()
    extra: list[bytes] = []
    for rank, record in zip(ranks, target, strict=True):
        if rank is not None and rank in taken:
            extra.append(record.name)
        elif rank is not None:
            taken.add(rank)
    return tuple(extra)


def _unidentified(size: int, ranks: Sequence[int | None], kept: Sequence[int], here: set[int]) -> dict[int, int]:
    """Return missing source place → target place of the unidentified record in its gap.

    A gap is between two neighbours that are in source order; inside it both sides are paired in order.
    """
    found: dict[int, int] = {}
    edges = [(-1, -1), *((at, rank) for at in kept if (rank := ranks[at]) is not None), (len(ranks), size)]
    for (left, low), (right, high) in pairwise(edges):
        unknown = [at for at in range(left + 1, right) if ranks[at] is None]
        if unknown:
            missing = [rank for rank in range(low + 1, high) if rank not in here]
            found.update(zip(missing, unknown, strict=False))
    return found


def _altered(
    source: Sequence[ReadRecord],
    target: Sequence[ReadRecord],
    places: Mapping[bytes, list[int]],
    found: Mapping[int, int],
) -> Names:
    """Return the names of copies with other content: the source's name where it is known, else the target's."""
    true_names = {at: source[rank].name for rank, at in found.items()}
    return tuple(
        true_names.get(at, record.name)
        for at, record in enumerate(target)
        if all(record != source[rank] for rank in places.get(record.name, ()))
    )


def longest_rising(numbers: Sequence[int | None]) -> list[int]:
    """Return the indexes of a longest strictly rising subsequence; None is never part of it."""
    lowest: list[int] = []  # the lowest last number of a rising run, by its length
    ends: list[int] = []  # index of each of these numbers
    before: dict[int, int] = {}
    for index, number in enumerate(numbers):
        if number is None:
            continue
        length = bisect_left(lowest, number)
        if length < len(lowest) and lowest[length] == number:
            continue  # the first copy is the one in its place
        lowest[length : length + 1] = [number]
        ends[length : length + 1] = [index]
        if length:
            before[index] = ends[length - 1]
    run: list[int] = []
    at = ends[-1] if ends else None
    while at is not None:
        run.append(at)
        at = before.get(at)
    return run[::-1]
