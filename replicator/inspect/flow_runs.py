"""Who runs a flow, how it has ended, and whether its process has the flow file as it is. Pure; part of `status`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from replicator.model.checkpoint import NOBODY, Evidence
from replicator.model.partition import Partition
from replicator.state.config_fault import ConfigFault
from replicator.state.flow_end import FlowEnd
from replicator.state.generation import LaneAssignment


@dataclass(frozen=True, slots=True)
class Runner:
    """A process that has the positions of so many partitions, as they say. `since_ms`: None where an older version has
    written one. One that was killed stands there until the next start. `lanes`: those that the partitions are in, of a
    flow with several."""

    owner: str
    since_ms: int | None
    partitions: int
    lanes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class EndedFlow:
    """How a flow has ended in a process that goes on with other flows, which starts it again from time to time.
    `incident`: the name of one of the whole flow that has ended it."""

    kind: str
    detail: str
    exit_code: int
    owner: str
    at_ms: int
    incident: str = ""


def runners(positions: Mapping[Partition, Evidence], assignment: LaneAssignment | None = None) -> tuple[Runner, ...]:
    """Say who has the positions, by source partition, the last one first. Pure. `assignment`: of the open
    generation.
    """
    found: dict[str, list[Evidence]] = defaultdict(list)
    lanes: dict[str, set[int]] = defaultdict(set)
    for at, each in positions.items():
        if each.owner != NOBODY:
            found[each.owner].append(each)
            if assignment is not None and assignment.lanes > 1:
                lanes[each.owner].add(assignment.lane_of(*at))
    made = [
        Runner(owner, min(each.owned_ms for each in its) or None, len(its), tuple(sorted(lanes[owner])))
        for owner, its in found.items()
    ]
    return tuple(sorted(made, key=lambda runner: runner.since_ms or 0, reverse=True))


def ended(end: FlowEnd | None, evidence: Sequence[Evidence], opened_ms: int = 0) -> EndedFlow | None:
    """Say how the flow has ended, unless lanes have come to own positions, or have given them back, since, or the open
    generation was opened since, at `opened_ms`: a flow without partitions has no positions. Pure."""
    if end is None or opened_ms > end.at_ms or any(each.owned_ms > end.at_ms for each in evidence):
        return None
    return EndedFlow(end.kind, end.detail, end.exit_code, end.owner, end.at_ms, end.incident)


def config_fault(fault: ConfigFault | None, evidence: Sequence[Evidence]) -> ConfigFault | None:
    """Say why the file could not be read again, unless that is over, or other lanes have come since. Pure."""
    if fault is None or not fault.detail or any(each.owned_ms > fault.at_ms for each in evidence):
        return None
    return fault
