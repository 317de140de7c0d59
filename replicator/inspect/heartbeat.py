"""When the newest heartbeat was written that a flow has copied: what `status` shows of `heartbeat`."""

from __future__ import annotations

import time
from collections.abc import Mapping

from replicator.config import Flow
from replicator.flow.topic_rules import ListedTopic
from replicator.flow.topics import ControlPlane
from replicator.kafka.admin import AddressedPartition, ClusterAdmin
from replicator.model import names
from replicator.model.errors import ReplicatorError

REPLICATED_S = 2.0
"""A replica that is away holds the high watermark up for longer, and whoever asks for the status then mustn't wait."""


def newest_heartbeat_ms(flow: Flow, clusters: ControlPlane, targets: Mapping[str, ListedTopic]) -> int | None:
    """Return when the newest heartbeat was written that was copied (wall clock, ms); None where there is none, or it
    can't be asked."""
    copy = targets.get(names.heartbeats_copy(flow.name))
    if not flow.heartbeat or copy is None or copy.info is None:
        return None
    try:
        return _newest_ms(clusters.target, (copy.info.name, 0))
    except ReplicatorError:
        return None  # the state of its partition says why


def _newest_ms(target: ClusterAdmin, at: AddressedPartition) -> int | None:
    """Ask again while a log that has records is said to have none: the newest one is there before it is replicated, and
    until then the leader answers as if there were none (`Partition.fetchOffsetForTimestamp`)."""
    answered_ms = -1

    def known() -> bool:
        nonlocal answered_ms
        answered_ms = target.latest_records([at])[at][1]
        return answered_ms > 0

    if not known() and target.offsets([at], end=True)[at] > target.offsets([at], end=False)[at]:
        give_up_s = time.monotonic() + REPLICATED_S
        target.until(lambda: known() or time.monotonic() > give_up_s)
    return answered_ms if answered_ms > 0 else None
