"""Partitions, offsets and positions as all packages of the replicator name them. Pure values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple


class Partition(NamedTuple):
    """A topic's partition, on either cluster."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]"


Span = tuple[int, int]
"""Offsets [first, end)."""


def merged(spans: Iterable[Span]) -> list[Span]:
    """Return the same offsets in spans that ascend and don't touch."""
    found: list[Span] = []
    for first, end in sorted(spans):
        if found and first <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((first, end))
    return found


class Committed(NamedTuple):
    """A committed offset of the position group: offset and metadata as they stand on the target."""

    offset: int
    metadata: str


class Seek(NamedTuple):
    """Where to read a source partition next; `leader_epoch` (-1: unknown) lets the broker see truncation (KIP-320)."""

    offset: int
    leader_epoch: int


class LogEnds(NamedTuple):
    """One partition's log as its cluster describes it.

    `stable` is the last stable offset: what a read_committed reader can reach. `end` is the high watermark.
    `leader_epoch`: of the leader that says so; -1: not known.
    """

    topic_id: str
    start: int
    stable: int
    end: int
    leader_epoch: int = -1


class TopicShape(NamedTuple):
    """A topic as it was made: its id, number of partitions, and effective configs."""

    topic_id: str
    partitions: int
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class EndRecords:
    """What a read_committed reader found at the end of a partition, from some offset on.

    `records` are the offsets of the first two records at most, `stable` is the last stable offset (-1: not reached).
    """

    records: tuple[int, ...] = ()
    stable: int = -1
