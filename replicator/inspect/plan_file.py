"""Whether `run` would run a flow file's settings, or those of the generation that is open. Pure. Called by
`inspect.planning`; a worker decides by the same function (`workers.settings.decide`)."""

from __future__ import annotations

from collections.abc import Mapping

from replicator.config import Flow
from replicator.flow.frozen import being_failed_over, failed_over
from replicator.flow.occupied import occupied, other_cluster
from replicator.inspect.flow_plan import STANDS_BY, PlanFinding
from replicator.state.control_topic import Control
from replicator.state.own_file import open_settings, own_file
from replicator.workers.settings import FileDecision, decide, differences, followed_said


def new_settings(flow: Flow, control: Control) -> Mapping[str, tuple[str, str]]:
    """Say what all workers would run differently once `run` starts with this file: before and after by key, as
    `workers.settings.differences`. Empty where nothing changes, or the flow has no settings yet."""
    found = control.open
    if found is None or not found.settings or _decided(flow, control) is not FileDecision.PROPOSE:
        return {}
    return differences(found.settings, own_file(flow).settings)


def file_findings(flow: Flow, control: Control, source_cluster: str) -> list[PlanFinding]:
    """Say why `run` would not run this file's settings; empty where it would.

    Args:
        flow: as the file has it.
        source_cluster: the id of the cluster that the file names as source.
    """
    elsewhere = other_cluster(flow, control, source_cluster)
    if elsewhere:
        return [_stands_by(elsewhere)]
    if frozen := failed_over(control) or being_failed_over(control):  # a change may be under way
        return [_stands_by(frozen)]
    found, held, decision = control.open, open_settings(control, flow), _decided(flow, control)
    if found is None or held is None:
        return []
    if decision is FileDecision.STAND_BY_JOB:
        return [_stands_by(occupied(flow, found))]
    if decision is FileDecision.STAND_BY_NEWER:
        return [_stands_by(held.unknown)]
    other = other_settings(flow, control)
    return [PlanFinding("warning", "file", other)] if other else []


def other_settings(flow: Flow, control: Control) -> str:
    """Say in what the settings that workers run differ from the file's, where the flow has had that file before and has
    another one since; empty where `run` would make it the flow's."""
    found = control.open
    if found is None or not found.settings or _decided(flow, control) is not FileDecision.FOLLOW_OTHER:
        return ""
    return followed_said(flow.name, found.number, own_file(flow).settings, found.settings)


def _decided(flow: Flow, control: Control) -> FileDecision:
    return decide(open_settings(control, flow), control.hashes, own_file(flow), at_start=True)


def _stands_by(why: str) -> PlanFinding:
    return PlanFinding("warning", "file", f"{STANDS_BY}: {why}")
