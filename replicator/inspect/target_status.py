"""What the target knows of a flow while its source is away: `status` shows that, and `incident` lists what lanes have
written down. Nothing else is: whether a partition is behind, or stopped by what its topics show, takes both clusters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from replicator.config import Flow
from replicator.config.routing import selects, target_topic
from replicator.flow.frozen import being_failed_over, failed_over
from replicator.flow.topics import ControlPlane, check_control_topic, listed
from replicator.inspect.flow_status import (
    STATES,
    FlowStatus,
    PartitionStatus,
    State,
    assembled,
    with_decision,
    with_evidence,
)
from replicator.inspect.map_incidents import map_incidents
from replicator.kafka import offset_reader
from replicator.model import names
from replicator.model.checkpoint import Position, Stored
from replicator.model.errors import Incident, NotAllowed
from replicator.model.partition import Partition
from replicator.state.claims import Claims
from replicator.state.control_topic import Control
from replicator.state.flow_state import CONTROL_LOST
from replicator.state.occurrences import Occurrence

SOURCE_AWAY = "the source doesn't answer: this is what the target has; how far the copy is behind isn't known"


def own_topics(clusters: ControlPlane) -> tuple[Control | None, Claims | None, str]:
    """Read the flow's control topic and claims, None where they can't be read; and the name of an incident that keeps
    the flow from starting, see `told_of_flow`.

    Who may not read the flow's own topics is shown the rest.
    """
    unfit = _unfit(clusters)
    try:
        control, claims = clusters.state.control_if_any(), clusters.state.claims_if_any()
    except NotAllowed:
        return None, None, unfit
    except Incident as incident:
        return None, None, unfit or incident.name
    lost = control is None or not control.begun
    known = None if lost and claims and claims.claims else control or Control()
    return known, claims, unfit or (CONTROL_LOST if lost else "")


def _unfit(clusters: ControlPlane) -> str:
    """Return the name of what is wrong with the control topic's configs, as `plan` and `run` find it; empty where it
    is nothing, there is no such topic, or its configs may not be seen."""
    topic = names.control_topic(clusters.flow.name)
    found = listed(clusters.target, (topic,))[topic]
    if found.info is None or found.denied is not None:
        return ""
    try:
        check_control_topic(found.info)
    except Incident as incident:
        return incident.name
    return ""


def told_of_flow(incident: str, *, has_run: bool) -> str:
    """Return the name of what `own_topics` has found, if it is to be told: a flow that has never run has no control
    topic, and nothing was lost. Pure."""
    return incident if has_run or incident != CONTROL_LOST else ""


def target_status(flow: Flow, clusters: ControlPlane, source_error: str, now_ms: int) -> FlowStatus:
    """Read it. `clusters`: of which the target has answered.

    Raises Unreachable, NotAllowed, Retriable: of the target.
    """
    control, claims, incident = own_topics(clusters)
    known = claims or Claims({}, ())
    targets = {claim.source: to for to, claim in known.claims.items() if _is_of(flow, claim.source, to)}
    stored = offset_reader.positions(flow, targets.values(), stable=False)
    open_ = known.open_occurrences()
    rows = [describe(at, to, stored[to], control or Control(), open_.get(to, ())) for at, to in targets.items()]
    positions = {at: it.evidence for at, to in targets.items() if isinstance(it := stored[to], Position)}
    found = assembled(flow, rows, control, known, positions)
    return replace(
        found,
        incident=told_of_flow(incident, has_run=bool(known.claims)),
        notes=tuple(note for note in (SOURCE_AWAY, failed_over(control) or being_failed_over(control)) if note),
        map_incidents=tuple(map_incidents(flow, clusters, list(positions.values()), now_ms)),
        source_error=source_error,
    )


def _is_of(flow: Flow, source: Partition, target: Partition) -> bool:
    """Return whether the flow file still has the flow copy this partition there."""
    return selects(flow, source.topic) and target_topic(flow, source.topic) == target.topic


def describe(
    at: Partition, to: Partition, stored: Stored | None, control: Control, open_: Sequence[Occurrence]
) -> PartitionStatus:
    """Describe one partition's status. `open_`: what lanes have written down of it, the newest first. Pure."""
    row = PartitionStatus(
        source_topic=at.topic,
        partition=at.partition,
        target_topic=to.topic,
        position=None if stored is None else stored.offset,
        state="waiting",
    )
    row = with_evidence(row, stored.evidence if isinstance(stored, Position) else None)
    if said := control.failed_over_said(at.topic):
        return replace(row, state="failed_over", detail=said)
    if open_:
        it = open_[0]
        state: State = STATES.get(it.name, "stopped")
        found = replace(row, state=state, incident=it.name, detail=it.incident.detail)
        return with_decision(found, it, control.decisions, control.settings)
    if paused := control.settings.paused_at(at.topic):
        return replace(row, state="paused", detail=paused.said)
    if failed_over(control):
        return replace(row, state="failed_over")
    if stored is None:
        return replace(row, detail="it has no position any more")
    return row if isinstance(stored, Position) else replace(row, detail=f"{stored.incident}: {stored.why}")
