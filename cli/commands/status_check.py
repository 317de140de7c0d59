"""`status --check`: what of a flow is beyond the bounds that a script has given. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from replicator.inspect.flow_status import FlowStatus, PartitionStatus

WELL = frozenset({"in_sync", "behind", "limited", "not_started", "kept"})
"""States in which a partition needs nobody: lag has bounds of its own."""


@dataclass(frozen=True, slots=True)
class LagBounds:
    """The largest lag of a partition that is still well; None: any."""

    lag_records_max: int | None = None
    lag_seconds_max: float | None = None


def problems(item: FlowStatus, bounds: LagBounds) -> list[str]:
    """Name all that is not well with a flow, a line each."""
    found = []
    if item.incident:
        found.append(f"flow {item.flow} can't start: {item.incident}")
    if item.ended is not None:
        found.append(f"flow {item.flow} has ended with {item.ended.exit_code}: {item.ended.detail}")
    if item.config_fault is not None:
        found.append(f"flow {item.flow} runs with older settings than the flow file has: {item.config_fault.detail}")
    if item.failed_over:
        found.append(f"flow {item.flow} was failed over: nothing is copied")
    if item.being_failed_over:
        found.append(f"flow {item.flow}: {item.being_failed_over}")
    if item.other_settings:
        found.append(f"flow {item.flow} runs with other settings than the flow file has: {item.other_settings}")
    behind = sum(row.lag_records or 0 for row in item.partitions if row.state in ("behind", "limited"))
    if item.released_ms is not None and behind and bounds.lag_records_max is None:
        found.append(f"flow {item.flow} is run by no process, with {behind} records to copy")
    if not item.partitions:
        found.append(f"flow {item.flow} has no partition")
    for row in item.partitions:
        where = row.source_topic if row.partition < 0 else f"{row.source_topic}[{row.partition}]"
        told = item.failed_over and row.state == "failed_over"  # of the flow, above
        found += [f"flow {item.flow}: {where} {what}" for what in _of_partition(row, bounds, told=told)]
    return found


def _of_partition(row: PartitionStatus, bounds: LagBounds, *, told: bool) -> Iterator[str]:
    """Yield what isn't well with a partition. `told`: its state was told of the whole flow."""
    if row.state not in WELL and not told:
        yield f"is {row.incident or row.state}" + (f": {row.detail}" if row.detail else "")
    if bounds.lag_records_max is not None and (row.lag_records or 0) > bounds.lag_records_max:
        yield f"is {row.lag_records} records behind, more than {bounds.lag_records_max}"
    if bounds.lag_seconds_max is not None and (row.lag_seconds or 0) > bounds.lag_seconds_max:
        yield f"is {row.lag_seconds:.0f} s behind, more than {bounds.lag_seconds_max:g}"
