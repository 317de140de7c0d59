"""When the newest heartbeat was written that a flow has copied: what `status` shows of `heartbeat`."""

from __future__ import annotations

from collections.abc import Mapping

from replicator.config import Flow
from replicator.flow.topic_rules import ListedTopic
from replicator.flow.topics import ControlPlane
from replicator.model import names
from replicator.model.errors import ReplicatorError


def newest_heartbeat_ms(flow: Flow, clusters: ControlPlane, targets: Mapping[str, ListedTopic]) -> int | None:
    """Return when the newest heartbeat was written that was copied (wall clock, ms); None where there is none, or it
    can't be asked."""
    copy = targets.get(names.heartbeats_copy(flow.name))
    if not flow.heartbeat or copy is None or copy.info is None:
        return None
    at = (copy.info.name, 0)
    try:
        _, written_ms = clusters.target.latest_records([at])[at]
    except ReplicatorError:
        return None  # the state of its partition says why
    return written_ms if written_ms > 0 else None
