"""Of which partitions nothing was heard for long: no record, no end, no error. Pure; used by `lane.session`.

Their topic may be another one now, which librdkafka ignores, while others have records without end.
"""

from __future__ import annotations

from collections.abc import Iterable

from replicator.model.partition import Partition

SILENT_S = 10.0
LOOK_S = 1.0  # between two looks for such partitions


class Silence:
    """Of one producer session. All times are monotonic, in seconds."""

    def __init__(self, now_s: float) -> None:
        self._heard_s: dict[Partition, float] = {}
        self._looked_s = now_s

    def hear(self, heard: Iterable[Partition], now_s: float) -> None:
        """Something came from these partitions, or their clusters were asked for them."""
        self._heard_s.update(dict.fromkeys(heard, now_s))

    def found(self, copied: Iterable[Partition], now_s: float) -> list[Partition]:
        """Those of `copied` that are silent now; none, unless it is time for another look."""
        if now_s < self._looked_s + LOOK_S:
            return []
        self._looked_s = now_s
        return [at for at in copied if now_s - self._heard_s.setdefault(at, now_s) >= SILENT_S]
