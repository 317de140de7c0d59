"""What the partitions of a lane want by and large: worked out in one pass, since a lane may have thousands. Pure.

Used by `fetcher`, which keeps one until anything of a partition changes.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import NamedTuple

from replicator.planes.batches.part_read import PartRead, ReadState


class ReadingSummary(NamedTuple):
    """`topics` whose leaders are to be looked up now; brokers to `ask` now; whether there may be more of any partition
    than was read; when a partition is to be asked again without an answer coming first (None: never). It holds until
    `until_s`."""

    topics: frozenset[str]
    ask: frozenset[int]
    behind: bool
    wake_s: float | None
    until_s: float


def summed_up(parts: Iterable[PartRead], now_s: float) -> ReadingSummary:
    """Sum up all partitions that are read, as they stand at `now_s`."""
    topics, ask, behind, wake_s, until_s = set[str](), set[int](), False, inf, inf
    for read in parts:
        state = read.state
        if state is ReadState.DONE:
            continue
        if not read.at_end and read.failing_since_s is None:
            behind = True
        if read.nearer >= 0 and now_s < read.nearer_until_s < until_s:
            until_s = read.nearer_until_s
        if read.not_before_s > now_s:
            wake_s = min(wake_s, read.not_before_s)
        elif state is ReadState.LOOK_UP:
            topics.add(read.at.topic)
        elif state is ReadState.CHECK:
            ask.add(read.leader)
        else:
            ask.add(read.source(now_s))
    return ReadingSummary(
        frozenset(topics), frozenset(ask), behind, None if wake_s == inf else wake_s, min(wake_s, until_s)
    )
