"""Has a flow run with the settings of a flow file, also of one that it has had before. Called by `apply`.

A worker that shares a flow proposes its file only if the flow has never had it; to go back is somebody's decision. A
new generation is opened with the file's settings, and all workers follow it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from replicator.config import Flow
from replicator.failpoints import Failpoint, nothing
from replicator.flow.deciding import changed
from replicator.flow.group_members import members_of
from replicator.flow.never_run import check_new
from replicator.flow.occupied import check_free
from replicator.flow.topics import ControlPlane
from replicator.model.errors import ConfigError
from replicator.state.control import Proposal
from replicator.state.control_topic import Control
from replicator.state.generation import Kind, LaneAssignment
from replicator.state.own_file import lanes_wanted, own_file
from replicator.workers.settings import differences


@dataclass(frozen=True, slots=True)
class AppliedSettings:
    """What there was to change.

    `generation`: the open one with these settings; None where there is none. `opened`: it was opened now. `differs`: by
    key, as `workers.settings.differences`. `workers`: how many share the flow.
    """

    generation: int | None
    opened: bool
    differs: Mapping[str, tuple[str, str]]
    workers: int


def apply_settings(
    flow: Flow, connect_timeout_ms: int, *, dry_run: bool = False, failpoint: Failpoint = nothing
) -> AppliedSettings:
    """Open a generation with the settings of this flow, if the open one has others.

    Args:
        flow: as the file has it.
        dry_run: only say what would change.

    Raises ConfigError where the flow has never run; TakenOver where a backfill or repair has it, which hands it over by
    itself; Incident of the flow's own topics; Unreachable, NotAllowed, Retriable, Fenced.
    """
    own = own_file(flow)

    def propose(control: Control) -> Proposal | None:
        found = control.open
        if found is not None and found.kind is Kind.LIVE and found.settings_hash == own.hash:
            same = found.source_cluster in ("", source.cluster_id)
            return None if same else Proposal(LaneAssignment(found.lanes), reading)
        return Proposal(LaneAssignment(lanes_wanted(flow, {}, control)), reading)

    free = partial(check_free, flow, take_over=False)
    with ControlPlane(flow, connect_timeout_ms=connect_timeout_ms) as plane:
        source, _ = plane.connect()
        reading = replace(own, source_cluster=source.cluster_id)
        control = plane.state.control_unless_new()
        if control is None:
            check_new(flow)
        if control is None or control.never_open:
            raise ConfigError(f"flow {flow.name} has never run on {flow.target.name}: run it, or name another flow")
        newest = control.generations[control.newest]
        free(newest)
        differs = differences(newest.settings, own.settings)
        workers = len(members_of(plane))
        if dry_run or (control.open is not None and propose(control) is None):
            has_it = newest.number if propose(control) is None else None
            return AppliedSettings(has_it, False, differs, workers)
        generation, opened = changed(
            flow,
            plane,
            lambda changer: changer.ensure(propose, {}, free),
            step=failpoint,
        )
        return AppliedSettings(generation.number, opened, differs, workers)
