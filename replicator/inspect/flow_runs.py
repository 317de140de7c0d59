"""Who runs a flow, how it has ended, and whether its process has the flow file as it is. Pure; part of `status`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from replicator.model.checkpoint import NOBODY, Evidence
from replicator.state.config_fault import ConfigFault
from replicator.state.flow_end import FlowEnd


@dataclass(frozen=True, slots=True)
class Runner:
    """A process that has the positions of so many partitions, as they say. `since_ms`: None where an older version has
    written one. One that was killed stands there until the next start."""

    owner: str
    since_ms: int | None
    partitions: int


@dataclass(frozen=True, slots=True)
class EndedFlow:
    """How a flow has ended in a process that goes on with other flows, which starts it again from time to time."""

    kind: str
    detail: str
    exit_code: int
    owner: str
    at_ms: int


def runners(evidence: Sequence[Evidence]) -> tuple[Runner, ...]:
    """Who has the positions, the last one first. Pure."""
    found: dict[str, list[Evidence]] = defaultdict(list)
    for each in evidence:
        if each.owner != NOBODY:
            found[each.owner].append(each)
    made = [Runner(owner, min(each.owned_ms for each in its) or None, len(its)) for owner, its in found.items()]
    return tuple(sorted(made, key=lambda runner: runner.since_ms or 0, reverse=True))


def ended(end: FlowEnd | None, evidence: Sequence[Evidence]) -> EndedFlow | None:
    """How the flow has ended, unless lanes have come to own positions, or have given them back, since. Pure."""
    if end is None or any(each.owned_ms > end.at_ms for each in evidence):
        return None
    return EndedFlow(end.kind, end.detail, end.exit_code, end.owner, end.at_ms)


def config_fault(fault: ConfigFault | None, evidence: Sequence[Evidence]) -> ConfigFault | None:
    """Why the file could not be read again, unless that is over, or other lanes have come since. Pure."""
    if fault is None or not fault.detail or any(each.owned_ms > fault.at_ms for each in evidence):
        return None
    return fault
