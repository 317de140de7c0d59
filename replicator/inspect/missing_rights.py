"""Rights without which a partition isn't copied, where its status shows no more than that its position stands still.

A lane that lacks one says so in its log and metrics, and not on the target, where it may not write. Pure.
"""

from __future__ import annotations

from dataclasses import replace

from replicator.config import Flow
from replicator.flow.topic_rules import ListedTopic
from replicator.inspect.flow_status import PartitionStatus
from replicator.inspect.plan_rights import lacks, missing_on_topic

_STANDS_STILL = ("behind", "stalled", "limited")
_COPYING = {"source": ("Read",), "target": ("Read", "Write")}


def with_rights(flow: Flow, row: PartitionStatus, source: ListedTopic, target: ListedTopic) -> PartitionStatus:
    """Return the status of a partition, which says that it waits if the user lacks a right on one of its topics."""
    if row.state not in _STANDS_STILL:
        return row
    sides = ((flow.source, source, row.source_topic, "source"), (flow.target, target, row.target_topic, "target"))
    told = [
        lacks(cluster, missing, f"topic {name!r}")
        for cluster, listed, name, side in sides
        if (missing := missing_on_topic(listed, _COPYING[side]))
    ]
    return replace(row, state="waiting", detail="; ".join(told)) if told else row
