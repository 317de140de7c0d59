"""How many lanes a flow gets, and which of its partitions go to which: balanced, and the same everywhere. Pure.

Part of the format: workers of all versions must agree on it for a generation, and a position has one lane that keeps it
alive.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from itertools import accumulate

PARTITIONS_PER_LANE = 32
LANES_AUTO_MAX = 8


def lanes_auto(partitions: int) -> int:
    """Return how many lanes a flow of so many partitions gets: one for each 32 begun, from 1 to 8."""
    return min(LANES_AUTO_MAX, max(1, -(-partitions // PARTITIONS_PER_LANE)))


class BalancedLanes:
    """Partitions of a listing, dealt out to lanes like cards, topic by topic.

    Topics are sorted by a hash, so that neither their names nor their number decide what shares a lane. Of all
    partitions together, and of each topic's alone, no lane has more than one more than another. A partition that the
    listing doesn't have continues its topic's round; a topic that it doesn't have begins at a lane by its hash.
    """

    def __init__(self, lanes: int, listing: Mapping[str, int]) -> None:
        """`listing`: partitions by source topic. Raises ValueError for less than one lane."""
        if lanes < 1:
            raise ValueError(f"{lanes} lanes")
        self.lanes = lanes
        topics = sorted(listing, key=lambda topic: (_hash(topic), topic))
        self._first = dict(zip(topics, accumulate((listing[topic] for topic in topics), initial=0), strict=False))

    def lane_of(self, topic: str, partition: int) -> int:
        """Return the lane of a source partition, listed or not."""
        first = self._first.get(topic)
        return ((_hash(topic) if first is None else first) + partition) % self.lanes


def _hash(topic: str) -> int:
    return zlib.crc32(topic.encode())
