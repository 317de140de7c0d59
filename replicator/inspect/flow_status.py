"""What `status` says of a flow, as data. Filled by `status`, and by `target_status` while the source is away. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from replicator.config import Flow, routing
from replicator.flow.deciding import pause_before
from replicator.flow.frozen import being_failed_over, failed_over
from replicator.inspect.flow_runs import EndedFlow, Runner, config_fault, ended, runners
from replicator.inspect.map_incidents import MapIncident
from replicator.inspect.plan_file import other_settings
from replicator.model.checkpoint import Evidence
from replicator.model.partition import Partition
from replicator.state.claims import Claims
from replicator.state.config_fault import ConfigFault
from replicator.state.control_topic import Control
from replicator.state.decisions import OperatorDecision
from replicator.state.kept_positions import KeptPositions, kept_now
from replicator.state.occurrences import Occurrence
from replicator.state.run_settings import NO_SETTINGS, Paused, RateLimit, RunSettings, rate_of
from replicator.state.signed_gaps import Adoption, SignedGap, adoptions, signed_gaps

State = Literal[
    "in_sync",  # nothing to copy
    "behind",  # copying
    "source_waits",  # an open transaction at the source has held back records for long: does it hang?
    "stalled",  # something to copy, and the position hasn't moved for long: does the daemon run, does it wait?
    "limited",  # the same, and others under the same rate limit are copied meanwhile: `detail` has the limit
    "not_started",  # no position yet
    "paused",  # an operator has paused it: `detail` says who
    "failed_over",  # its topic was, by a command: `detail` says since when; or the whole flow, as a note says
    "waiting",  # something that must be known of it can't be asked, or a right is missing: `detail` says what
    "kept",  # the source topic was deleted, and its copy stays (`deleted_topics: keep`)
    "topic_missing",  # the source topic does not exist
    "records_lost",  # the source deleted records before they were copied
    "source_truncated",  # the source ends before the position
    "source_recreated",  # the source topic is another one than the position was written for
    "other_source",  # the position was written for another cluster or topic
    "target_recreated",  # the target topic is another one than was written
    "target_deleted",  # the target topic was there, and is not any more
    "position_expired",  # it was copied to, but has no position any more
    "target_lost_data",  # the target ends below what was written
    "foreign_position",  # the position was not written by this program
    "stopped",  # any other incident: `incident` has its name
]

PAUSABLE: frozenset[State] = frozenset({"in_sync", "behind", "source_waits", "stalled", "limited", "not_started"})
"""States of partitions that are copied as long as nobody pauses them."""
STATES: Mapping[str, State] = {
    "source_cluster_changed": "other_source",
    "source_topic_changed": "other_source",
    "source_topic_recreated": "source_recreated",
    "source_topic_deleted": "topic_missing",
    "source_records_gone": "records_lost",
    "source_truncated": "source_truncated",
    "target_topic_recreated": "target_recreated",
    "target_topic_deleted": "target_deleted",
    "target_lost_data": "target_lost_data",
    "position_expired": "position_expired",
    "position_unreadable": "foreign_position",
}
"""States of partitions that these incidents stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStatus:
    """One source partition. None where nothing is known: offsets without a position, seconds without a record.

    `incident`: the name of the one that stops it, and `occurrence` the id under which a lane has written it down, if
    one has. `decided`: what was decided of it and not acted on yet, and `decided_waits` by whom it is paused, where
    a lane acts on it only after `resume`. `detail`: what was found, or why something can't
    be known.
    """

    source_topic: str
    partition: int
    target_topic: str
    position: int | None = None
    source_end: int | None = None
    lag_records: int | None = None
    lag_seconds: float | None = None
    last_commit_ms: int | None = None
    generation: int | None = None
    owner: str | None = None
    records_copied: int | None = None
    held_back_records: int = 0
    held_back_since_ms: int | None = None
    state: State
    incident: str = ""
    occurrence: str = ""
    decided: str = ""
    decided_waits: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class FlowStatus:
    """All partitions of one flow. `incident`: the name of one that keeps the whole flow from starting. `notes`: what
    else its owner should know. `run_by`: empty where the positions were released, last at `released_ms`.
    `signed_gaps`: what is not copied because an operator has decided so; `adoptions`: which partitions have their
    position from one. `map_incidents`: what is wrong with the offset map, which stops nothing. `config_fault`: the
    process that runs it could not read the flow file again, and goes on with the settings that it has. `paused`,
    `rates`: what operators have set, and the limit of the flow file where none of them has replaced it (`by` is
    empty then), by source topic; empty for the whole flow. `taken_out`: topics of those that are no longer in the
    flow file. `failed_over`: the whole flow was, as one of `notes` says; `kept_by`: who has committed its positions
    again since. `being_failed_over`: that somebody has begun to, in words. `other_settings`: why workers run other
    settings than the file's. `heartbeat_ms`: when the newest heartbeat was written that the target has; None of a flow
    without. `source_error`: why the source doesn't answer, and nothing is known but what the target has."""

    flow: str
    source: str
    target: str
    delivery: str
    partitions: tuple[PartitionStatus, ...]
    incident: str = ""
    notes: tuple[str, ...] = ()
    run_by: tuple[Runner, ...] = ()
    released_ms: int | None = None
    ended: EndedFlow | None = None
    config_fault: ConfigFault | None = None
    paused: Mapping[str, Paused] = field(default_factory=dict)
    rates: Mapping[str, RateLimit] = field(default_factory=dict)
    taken_out: tuple[str, ...] = ()
    failed_over: bool = False
    being_failed_over: str = ""
    kept_by: KeptPositions | None = None
    other_settings: str = ""
    signed_gaps: tuple[SignedGap, ...] = ()
    adoptions: tuple[Adoption, ...] = ()
    map_incidents: tuple[MapIncident, ...] = ()
    heartbeat_ms: int | None = None
    source_error: str = ""


def with_evidence(row: PartitionStatus, evidence: Evidence | None) -> PartitionStatus:
    """Return a partition's status with what its position says of who committed it; None: it has none. Pure."""
    if evidence is None:
        return row
    return replace(
        row,
        last_commit_ms=evidence.committed_ms or None,
        generation=evidence.generation,
        owner=evidence.owner or None,
        records_copied=evidence.count,
    )


def with_decision(
    row: PartitionStatus, found: Occurrence, decided: Mapping[str, OperatorDecision], settings: RunSettings
) -> PartitionStatus:
    """Return a partition's status with what was decided of the occurrence that stops it, if anything, and what that
    waits for. Pure."""
    row, decision = replace(row, occurrence=found.id), decided.get(found.id)
    if decision is None:
        return row
    return replace(row, decided=decision.said, decided_waits=pause_before(decision, found, settings))


def decided_said(decided: str, waits: str) -> str:
    """Say of a decision, arguments as of `PartitionStatus`, what it waits for; empty where there is none. Pure."""
    if not decided:
        return ""
    return f"{decided}; " + (
        f"the flow acts on it after eos-replicate resume: {waits}" if waits else "the flow has not acted on it yet"
    )


def with_pause(row: PartitionStatus, settings: RunSettings) -> PartitionStatus:
    """Return a partition's status, if it is only paused that keeps it from being copied. Pure."""
    paused = settings.paused_at(row.source_topic)
    return row if paused is None or row.state not in PAUSABLE else replace(row, state="paused", detail=paused.said)


def with_failover(row: PartitionStatus) -> PartitionStatus:
    """Return a partition's status in a flow that was failed over: nothing is copied, whatever else it could be.
    Pure.
    """
    return replace(row, state="failed_over") if row.state in PAUSABLE else row


def assembled(
    flow: Flow,
    rows: Iterable[PartitionStatus],
    control: Control | None,
    claims: Claims,
    positions: Mapping[Partition, Evidence],
) -> FlowStatus:
    """Make a flow's status, of what its own topics and its positions say. Pure.

    Args:
        control: None where it can't be read.
        positions: of all partitions that have one, by source partition.
    """
    evidence = [*positions.values()]
    settings = NO_SETTINGS if control is None else control.settings
    open_ = None if control is None else control.open
    run_by = runners(positions, None if open_ is None else open_.assignment)
    return FlowStatus(
        flow.name,
        flow.source.name,
        flow.target.name,
        flow.delivery.value,
        tuple(sorted(rows, key=lambda row: (row.source_topic, row.partition))),
        run_by=run_by,
        released_ms=None if run_by else max((each.committed_ms for each in evidence), default=None),
        ended=ended(claims.ended, evidence, 0 if open_ is None else open_.at_ms),
        config_fault=config_fault(claims.config_fault, evidence),
        paused=settings.paused,
        rates={} if control is None else settings.told(rate_of(flow)),
        taken_out=routing.taken_out(flow, settings.topics),
        failed_over=bool(failed_over(control)),
        being_failed_over=being_failed_over(control),
        kept_by=kept_now(control, claims.kept),
        other_settings="" if control is None else other_settings(flow, control),
        signed_gaps=signed_gaps(claims.occurrences),
        adoptions=adoptions(claims.occurrences),
    )
