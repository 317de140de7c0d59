"""Of which partitions nothing was heard for long: no record, no end, no error. Pure; used by `lane.session`.

Their topic may be another one now, which librdkafka ignores, while others have records without end.
"""

from __future__ import annotations

from collections.abc import Mapping

from replicator.lane.partition import LanePartition
from replicator.model.partition import Partition

SILENT_S = 10.0
LOOK_S = 1.0  # between two looks for such partitions


def silent(copied: Mapping[Partition, LanePartition], now_s: float) -> list[Partition]:
    """Find those that are silent now. One of which nothing was heard in this session counts from this look on."""
    found: list[Partition] = []
    for at, partition in copied.items():
        if partition.session.heard_s is None:
            partition.session.heard_s = now_s
        elif now_s - partition.session.heard_s >= SILENT_S:
            found.append(at)
    return found
