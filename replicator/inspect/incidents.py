"""Incidents that are open now, of what `status` has found: it decides as lanes and `plan` do. Pure.

Called by `eos-replicate incident`.

Invariant: an id is that of the occurrence that a lane has written down, which a decision names; where none has, it
stands for a kind and its facts, where it stopped among them. That one goes on to name the incident once a lane has
written it down (`first_id`), so an id that was shown stays good, whether the flow runs or not; one that was seen before
and stands elsewhere now is another one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass

from replicator.inspect.flow_status import FlowStatus, PartitionStatus, decided_said
from replicator.model.commands import REBUILD_CONTROL, SET_POSITION, commands_for
from replicator.model.incident_kinds import KINDS, advice_for
from replicator.state.occurrences import ID_DIGITS


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenIncident:
    """What keeps a partition, a topic (partition -1) or a flow (no topic either) from being copied until somebody does
    something; or what is wrong with the offset map, by the map's topic. `position`: the source offset where it stopped;
    None where there is none. `occurrence`: a lane has written it down, so that it can be decided about. `decided`: what
    was decided and not acted on yet, `decided_waits` as of `PartitionStatus`. `first_id`: the id that it has before a
    lane has written it down."""

    id: str
    first_id: str
    flow: str
    name: str
    topic: str = ""
    partition: int = -1
    target_topic: str = ""
    position: int | None = None
    source_end: int | None = None
    lag_records: int | None = None
    last_commit_ms: int | None = None
    occurrence: bool = False
    decided: str = ""
    decided_waits: str = ""
    detail: str

    @property
    def where(self) -> str:
        """What it stops, for people."""
        if not self.topic:
            return "the flow"
        return self.topic if self.partition < 0 else f"{self.topic}[{self.partition}]"

    @property
    def found(self) -> str:
        """What incidents of its kind have found; empty of a kind that this version doesn't know."""
        return KINDS[self.name].found if self.name in KINDS else ""

    @property
    def means(self) -> str:
        """What that means; empty as `found`."""
        return KINDS[self.name].means if self.name in KINDS else ""

    @property
    def undecidable_yet(self) -> bool:
        """Whether a command would apply to it, once a lane has written it down."""
        return bool(commands_for(self.name)) and not self.occurrence

    @property
    def commands(self) -> tuple[str, ...]:
        """Options of `incident resolve` that apply to it now."""
        return tuple(command.option for command in commands_for(self.name)) if self.occurrence else ()

    @property
    def decided_said(self) -> str:
        """What was decided, and what that waits for; empty where nothing was."""
        return decided_said(self.decided, self.decided_waits)

    @property
    def typed(self) -> tuple[str, ...]:
        """What to type to decide about it, without the flow file."""
        usages = [command.usage for command in commands_for(self.name)] if self.occurrence else []
        found = [f"incident resolve {self.id} {usage}" for usage in usages]
        if self.name in SET_POSITION and self.position is not None:
            at = f"--partition {self.topic}:{self.partition} --offset {self.position}"
            found.append(f"position set --flow {self.flow} {at} --why TEXT")
        if self.name in REBUILD_CONTROL:
            found.append(f"rebuild-control --flow {self.flow}")
        return tuple(found)

    @property
    def advice(self) -> str:
        """What to do; never empty."""
        return advice_for(self.name, self.id, self.flow)


def open_incidents(status: FlowStatus) -> list[OpenIncident]:
    """Return those of one flow: that of the flow first, then by topic and partition, the map's among them."""
    found = [_of_partition(status.flow, row) for row in status.partitions if row.incident]
    if status.incident:
        found.append(_of_flow(status.flow, status.incident, "It keeps the whole flow from starting"))
    found += [
        OpenIncident(
            id=(id_ := _id(status.flow, it.name, it.topic, it.partition, it.detail)),
            first_id=id_,
            flow=status.flow,
            name=it.name,
            topic=it.topic,
            partition=it.partition,
            detail=it.detail,
        )
        for it in status.map_incidents
    ]
    end = status.ended
    if end is not None and end.incident and all(it.name != end.incident for it in found):
        found.append(_of_flow(status.flow, end.incident, f"The flow has ended by it. {end.detail}"))
    return sorted(found, key=lambda it: (it.topic, it.partition))


def matching(incidents: Iterable[OpenIncident], start: str) -> list[OpenIncident]:
    """Return those whose id begins so, or the one that they had before a lane has written them down."""
    return [it for it in incidents if any(id_.startswith(start.lower()) for id_ in (it.id, it.first_id))]


def _of_flow(flow: str, name: str, detail: str) -> OpenIncident:
    id_ = _id(flow, name, "", -1, None)
    return OpenIncident(id=id_, first_id=id_, flow=flow, name=name, detail=detail)


def _of_partition(flow: str, row: PartitionStatus) -> OpenIncident:
    first_id = _id(flow, row.incident, row.source_topic, row.partition, row.position)
    return OpenIncident(
        id=row.occurrence or first_id,
        first_id=first_id,
        flow=flow,
        name=row.incident,
        topic=row.source_topic,
        partition=row.partition,
        target_topic=row.target_topic,
        position=row.position,
        source_end=row.source_end,
        lag_records=row.lag_records,
        last_commit_ms=row.last_commit_ms,
        occurrence=bool(row.occurrence),
        decided=row.decided,
        decided_waits=row.decided_waits,
        detail=row.detail,
    )


def _id(*facts: str | int | None) -> str:
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:ID_DIGITS]
