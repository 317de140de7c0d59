"""A flow's positions as they stand on its target, for people and for a later `position set`. Nothing is changed.

Called by `eos-replicate position show` and `position export`. Which partitions there are is in the flow's claims, so
all but the lag is known without the source.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from replicator.config import Flow, routing
from replicator.flow.topics import ControlPlane
from replicator.kafka import offset_reader
from replicator.model.checkpoint import Position, Stored
from replicator.model.commands import SOURCE_RECREATED, TARGET_RECREATED
from replicator.model.errors import (
    ConfigError,
    Incident,
    NotAllowed,
    ReplicatorError,
    Retriable,
    TopicMissing,
    Unreachable,
)
from replicator.model.partition import LogEnds, Partition
from replicator.state.claims import Claim, Claims
from replicator.state.exported_positions import FORMAT, FORMAT_VERSION
from replicator.state.signed_gaps import Adoption, SignedGap, adoptions, signed_gaps


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldPosition:
    """One source partition. `position` None: it was claimed, and has none any more (`wrong` says why), or none that can
    be read (`wrong` says what stands there). `taken_out`: its topic is no longer in the flow file. What only a position
    says is empty or None then; `source_end` and `lag_records` are None where the source didn't say. Without a position,
    and of a topic that was created again on either side, the lag is all that the source's log has. `owner` None:
    released."""

    topic: str
    partition: int
    target_topic: str
    position: int | None = None
    source_topic_id: str = ""
    target_topic_id: str = ""
    next_target_offset: int | None = None
    records_copied: int | None = None
    generation: int | None = None
    owner: str | None = None
    delivery: str = ""
    committed_ms: int | None = None
    moved_ms: int | None = None
    source_end: int | None = None
    lag_records: int | None = None
    wrong: str = ""
    taken_out: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowPositions:
    """All partitions that a flow has claimed. `generation`: the open one; None while it is changed. `source_error`: why
    the source doesn't say how far behind they are."""

    flow: str
    source: str
    target: str
    generation: int | None
    runs: str
    target_cluster: str
    partitions: tuple[HeldPosition, ...]
    signed_gaps: tuple[SignedGap, ...] = ()
    adoptions: tuple[Adoption, ...] = ()
    source_error: str = ""


def read(flow: Flow, only: Collection[Partition], *, connect_timeout_ms: int) -> FlowPositions:
    """Read the positions of these source partitions, or of all that the flow has claimed.

    Raises ConfigError for one that it hasn't; Incident of the flow's own topics; Unreachable, NotAllowed, Retriable.
    """
    with ControlPlane(flow, connect_timeout_ms=connect_timeout_ms) as plane:
        cluster = plane.target.connect().cluster_id
        control, claims = plane.state.control_if_any(), plane.state.claims_if_any() or Claims({}, ())
        targets = {claim.source: to for to, claim in sorted(claims.claims.items())}
        unknown = sorted(set(only) - targets.keys())
        if unknown:
            raise ConfigError(f"flow {flow.name} has no position of {', '.join(map(str, unknown))}")
        wanted = {at: to for at, to in sorted(targets.items()) if not only or at in only}
        stored = offset_reader.positions(flow, wanted.values(), stable=False)
        source_cluster, logs, source_error = _source_logs(plane, wanted)
        target_logs = plane.target_logs.log_ends(wanted.values())
        opened = control.open if control is not None else None
        return FlowPositions(
            flow=flow.name,
            source=flow.source.name,
            target=flow.target.name,
            generation=None if opened is None else opened.number,
            runs="" if opened is None else opened.kind.value,
            target_cluster=cluster,
            partitions=tuple(
                replace(
                    held(claims.claims[to], stored[to], logs.get(at), target_logs.get(to), source_cluster),
                    taken_out=not routing.selects(flow, at.topic),
                )
                for at, to in wanted.items()
            ),
            signed_gaps=tuple(it for it in signed_gaps(claims.occurrences) if (it.topic, it.partition) in wanted),
            adoptions=tuple(it for it in adoptions(claims.occurrences) if (it.topic, it.partition) in wanted),
            source_error=source_error,
        )


def _source_logs(plane: ControlPlane, wanted: Collection[Partition]) -> tuple[str, Mapping[Partition, object], str]:
    """Return the source's cluster id, its logs, and why it doesn't say that; either is empty."""
    try:
        cluster = plane.source.connect().cluster_id
        return cluster, plane.source_logs.log_ends(wanted), ""
    except (Unreachable, NotAllowed, Retriable, Incident) as error:
        return "", {}, str(error)


def held(claim: Claim, stored: Stored | None, source: object, target: object, source_cluster: str = "") -> HeldPosition:
    """Describe one partition, as its lane would find it. Pure.

    Args:
        claim: whose it is.
        source, target: the logs of both sides, or why they aren't known.
        source_cluster: its id; empty where `source` isn't known.
    """
    at, to = claim.source, claim.target
    log = source if isinstance(source, LogEnds) else None
    all_of_it = None if log is None else log.stable - log.start
    if not isinstance(stored, Position):
        lost = stored is None
        return HeldPosition(
            topic=at.topic,
            partition=at.partition,
            target_topic=to.topic,
            source_end=log.stable if log is not None and lost else None,
            lag_records=all_of_it if lost else None,
            wrong=f"{stored.incident}: {stored.why}" if stored else _why_lost(claim, log, target, source_cluster),
        )
    evidence = stored.evidence
    wrong, again = str(source) if isinstance(source, ReplicatorError) else "", False
    for incident, its_log, id_ in (
        (TARGET_RECREATED, target, evidence.target_topic_id),
        (SOURCE_RECREATED, source, evidence.source_topic_id),  # told where both were, as lanes do
    ):
        if isinstance(its_log, LogEnds) and its_log.topic_id != id_:
            side = incident.split("_")[0]
            wrong, again = f"{incident}: the {side} topic's id is {its_log.topic_id} now", True
    return HeldPosition(
        topic=at.topic,
        partition=at.partition,
        target_topic=to.topic,
        position=stored.offset,
        source_topic_id=evidence.source_topic_id,
        target_topic_id=evidence.target_topic_id,
        next_target_offset=evidence.next_target_offset,
        records_copied=evidence.count,
        generation=evidence.generation,
        owner=evidence.owner or None,
        delivery=evidence.delivery,
        committed_ms=evidence.committed_ms or None,
        moved_ms=evidence.moved_ms or None,
        source_end=None if log is None else log.stable,
        lag_records=all_of_it if log is None or again else max(0, log.stable - stored.offset),
        wrong=wrong,
    )


def _why_lost(claim: Claim, source: LogEnds | None, target: object, source_cluster: str) -> str:
    """Say why there is no position, or only that there is none while the target doesn't say what it has."""
    if not isinstance(target, LogEnds | TopicMissing):
        return f"there is none, and why isn't known: {target}"
    source_id, target_id = (it.topic_id if isinstance(it, LogEnds) else None for it in (source, target))
    name, why = claim.why_without_position(source_cluster, claim.source, source_id, target_id)
    return f"{name}: {why}"


def exported(found: FlowPositions, now_ms: int) -> dict[str, Any]:
    """Return the positions as JSON (docs/reference/formats.md); partitions without one are left out."""
    keys = ("topic", "partition", "target_topic", "source_topic_id", "target_topic_id", "next_target_offset")
    more = ("records_copied", "generation", "delivery", "committed_ms", "moved_ms")
    rows = []
    for it in found.partitions:
        if it.position is None:
            continue
        row = asdict(it)
        rows.append({"offset": it.position, **{key: row[key] for key in (*keys, *more)}})
    return {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "flow": found.flow,
        "target_cluster": found.target_cluster,
        "generation": found.generation,
        "exported_ms": now_ms,
        "positions": rows,
    }
