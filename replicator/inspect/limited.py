"""Tells partitions that a rate limit holds back from those that are stalled. Pure; called by `status`.

Who reads what a limit lets through is seen by the positions alone: where any partition under the same limit has moved
lately the flow is copied, and those that stand still wait for their turn. Where none has, the limit explains nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from replicator.inspect.flow_status import PartitionStatus
from replicator.model.checkpoint import Evidence
from replicator.model.partition import Partition
from replicator.state.run_settings import FLOW, RateLimit


def with_limits(
    rows: Iterable[PartitionStatus],
    rates: Mapping[str, RateLimit],
    positions: Mapping[Partition, Evidence],
    moved_since_ms: int,
) -> list[PartitionStatus]:
    """Have partitions that only a limit holds back said to be limited.

    Args:
        rates: what limits there are, by source topic, and of the flow.
        positions: of all partitions that have one.
        moved_since_ms: where a position has moved since then (wall clock), something is copied.
    """
    moved = {at for at, it in positions.items() if (it.moved_ms or it.committed_ms) > moved_since_ms}
    lively = {at.topic for at in moved} | ({FLOW} if moved else set())
    return [_limited(row, rates, lively) for row in rows]


def _limited(row: PartitionStatus, rates: Mapping[str, RateLimit], lively: set[str]) -> PartitionStatus:
    if row.state != "stalled":
        return row
    found = [(at, rates[at]) for at in (row.source_topic, FLOW) if at in rates and at in lively]
    if not found:
        return row
    said = "; ".join(f"{at or 'the flow'} is copied with {rate.bound_said}" for at, rate in found)
    return replace(row, state="limited", detail=said)
