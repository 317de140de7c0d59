"""Who shares a flow, for somebody who doesn't run it. Called by `eos-replicate workers`."""

from __future__ import annotations

from dataclasses import dataclass

from replicator.config import Flow
from replicator.flow.frozen import being_failed_over, failed_over
from replicator.flow.group_members import FlowWorkers, read_workers
from replicator.flow.topics import ControlPlane
from replicator.state.claims import Claims
from replicator.state.kept_positions import KeptPositions, kept_now


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundWorkers:
    """The workers of a flow. `failed_over`: that the whole flow was, in words, else empty: then nobody shares it, and
    the process of `kept_by` commits its positions again. `being_failed_over`: that somebody has begun to, in words."""

    workers: FlowWorkers
    failed_over: str = ""
    being_failed_over: str = ""
    kept_by: KeptPositions | None = None


def read(flow: Flow, *, connect_timeout_ms: int) -> FoundWorkers:
    """Ask the target. Raises Unreachable, NotAllowed, Retriable, and Incident of the flow's own topics."""
    with ControlPlane(flow, connect_timeout_ms=connect_timeout_ms) as plane:
        plane.target.connect()
        control = plane.state.control_if_any()
        found = read_workers(flow, plane, None if control is None else control.open)
        frozen = failed_over(control)
        claims = (plane.state.claims_if_any() if frozen else None) or Claims({}, ())
        half, kept = being_failed_over(control), kept_now(control, claims.kept)
        return FoundWorkers(workers=found, failed_over=frozen, being_failed_over=half, kept_by=kept)
