"""Who shares a flow, for somebody who doesn't run it. Called by `eos-replicate workers`."""

from __future__ import annotations

from replicator.config import Flow
from replicator.flow.group_members import FlowWorkers, read_workers
from replicator.flow.topics import ControlPlane


def read(flow: Flow, *, connect_timeout_ms: int) -> FlowWorkers:
    """Ask the target. Raises Unreachable, NotAllowed, Retriable, and Incident of the flow's own topics."""
    with ControlPlane(flow, connect_timeout_ms=connect_timeout_ms) as plane:
        plane.target.connect()
        control = plane.state.control_if_any()
        return read_workers(flow, plane, None if control is None else control.open)
