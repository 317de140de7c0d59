"""Who leads partitions, as a broker has just told: offsets are mostly asked for right after it was asked how many
partitions there are, and needn't ask once more. Used by `topics` and `offsets`."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from replicator.wire import metadata_response
from replicator.wire.metadata_response import Metadata

KNOWN_S = 1.0
"""A deposed leader that doesn't know it yet would tell older ends. Metadata is never newer than it was on its way, so
so much is nothing that could not happen without this."""


class KnownLeaders:
    """Of one cluster. Used by one thread."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._last: tuple[float, frozenset[str], tuple[bytes, int, int]] | None = None

    def take(self, topics: Collection[str], data: bytes, at: int, version: int) -> None:
        """Take a MetadataResponse about these topics that has just come, as `metadata_response.read` does."""
        self._last = self._now_s(), frozenset(topics), (data, at, version)

    def metadata(self, topics: Collection[str]) -> Metadata | None:
        """Return what was told of these topics, and perhaps of others; None where that was too long ago."""
        if self._last is None:
            return None
        since_s, known, response = self._last
        if self._now_s() >= since_s + KNOWN_S or not known.issuperset(topics):
            return None
        return metadata_response.read(*response, leaders=True)

    def forget(self) -> None:
        """Let go of the response."""
        self._last = None
