"""Compares what a reader of the source and a reader of the target have seen. Pure; knows nothing of the replicator.

A record's name is the number that its writer put into it; its content is everything a reader sees but the offset.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Seen(NamedTuple):
    """A record as a reader sees it."""

    name: bytes
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the copy of one partition is worth; exact when the last four are zero."""

    source: int
    target: int
    lost: int
    doubled: int
    reordered: int
    altered: int

    @property
    def exact(self) -> bool:
        """Nothing lost, doubled, reordered or altered."""
        return not (self.lost or self.doubled or self.reordered or self.altered)

    def __add__(self, other: Verdict) -> Verdict:
        return Verdict(
            self.source + other.source,
            self.target + other.target,
            self.lost + other.lost,
            self.doubled + other.doubled,
            self.reordered + other.reordered,
            self.altered + other.altered,
        )


NOTHING = Verdict(0, 0, 0, 0, 0, 0)


def judge(source: Sequence[Seen], target: Sequence[Seen]) -> Verdict:
    """The verdict on one partition.

    lost: names that the target lacks. doubled: copies beyond those that the source holds. altered: copies whose
    content is not the source's, and records that the source never held. reordered: the fewest records that would
    have to move for the rest to stand in source order.
    """
    here, there = Counter(record.name for record in source), Counter(record.name for record in target)
    rank = {record.name: number for number, record in reversed(list(enumerate(source)))}
    contents: dict[bytes, set[Seen]] = {}
    for record in source:
        contents.setdefault(record.name, set()).add(record)
    lost = sum((here - there).values())
    doubled = sum(count for name, count in (there - here).items() if name in here)
    altered = sum(record not in contents.get(record.name, ()) for record in target)
    firsts, seen = list[int](), set[bytes]()
    for record in target:
        if record.name in rank and record.name not in seen:
            seen.add(record.name)
            firsts.append(rank[record.name])
    return Verdict(len(source), len(target), lost, doubled, len(firsts) - longest_rising(firsts), altered)


def longest_rising(numbers: Sequence[int]) -> int:
    """Length of the longest strictly rising subsequence."""
    tails: list[int] = []
    for number in numbers:
        place = bisect_left(tails, number)
        tails[place : place + 1] = [number]
    return len(tails)
