"""A flow's positions as they stand on its target, for people and for a later `position set`. Nothing is changed.

Called by `eos-replicate position show` and `position export`. Which partitions there are is in the flow's claims, so
all but the lag is known without the source.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from replicator.config import Flow
from replicator.flow.topics import ControlPlane
from replicator.kafka import offset_reader
from replicator.model.checkpoint import Position, Stored
from replicator.model.errors import ConfigError, Incident, NotAllowed, ReplicatorError, Retriable, Unreachable
from replicator.model.partition import LogEnds, Partition
from replicator.state.claims import Claims
from replicator.state.exported_positions import FORMAT, FORMAT_VERSION
from replicator.state.signed_gaps import Adoption, SignedGap, adoptions, signed_gaps


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldPosition:
    """One source partition. `position` None: it was claimed, and has none any more, or none that can be read (`wrong`
    says what stands there). What only a position says is empty or None then; `source_end` and `lag_records` are None
    where the source didn't say. `owner` None: released."""

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
        logs, source_error = _source_logs(plane, wanted)
        opened = control.open if control is not None else None
        return FlowPositions(
            flow=flow.name,
            source=flow.source.name,
            target=flow.target.name,
            generation=None if opened is None else opened.number,
            runs="" if opened is None else opened.kind.value,
            target_cluster=cluster,
            partitions=tuple(held(at, to, stored[to], logs.get(at)) for at, to in wanted.items()),
            signed_gaps=tuple(it for it in signed_gaps(claims.occurrences) if (it.topic, it.partition) in wanted),
            adoptions=tuple(it for it in adoptions(claims.occurrences) if (it.topic, it.partition) in wanted),
            source_error=source_error,
        )


def _source_logs(plane: ControlPlane, wanted: Collection[Partition]) -> tuple[Mapping[Partition, object], str]:
    try:
        plane.source.connect()
        return plane.source_logs.log_ends(wanted), ""
    except (Unreachable, NotAllowed, Retriable, Incident) as error:
        return {}, str(error)


def held(at: Partition, to: Partition, stored: Stored | None, log: object) -> HeldPosition:
    """One partition. `log`: the source's, or why it isn't known. Pure."""
    if not isinstance(stored, Position):
        wrong = "position_expired: there is none" if stored is None else f"{stored.incident}: {stored.why}"
        return HeldPosition(topic=at.topic, partition=at.partition, target_topic=to.topic, wrong=wrong)
    evidence = stored.evidence
    known = log if isinstance(log, LogEnds) else None
    same = known is not None and known.topic_id == evidence.source_topic_id
    wrong = str(log) if isinstance(log, ReplicatorError) else ""
    if known is not None and not same:
        wrong = f"source_topic_recreated: the source topic's id is {known.topic_id} now"
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
        source_end=None if known is None else known.stable,
        lag_records=max(0, known.stable - stored.offset) if known is not None and same else None,
        wrong=wrong,
    )


def exported(found: FlowPositions, now_ms: int) -> dict[str, Any]:
    """The positions as JSON (docs/reference/formats.md); partitions without one are left out."""
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
