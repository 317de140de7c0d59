"""Whether only workers are in the group by which they share the flow's lanes, for `inspect.planning`."""

from __future__ import annotations

from collections.abc import Iterator

from replicator.config import Flow
from replicator.flow.group_members import members_of, shown
from replicator.flow.group_watch import foreign
from replicator.flow.topics import ControlPlane
from replicator.inspect.flow_plan import PlanFinding
from replicator.model.errors import NotAllowed, ReplicatorError

ASK_S = 5.0


def members_that_are_no_workers(flow: Flow, clusters: ControlPlane) -> Iterator[PlanFinding]:
    """Yield a finding for each: the group would give lanes to it, which nobody would copy."""
    try:
        found = shown(flow.name, None, members_of(clusters, ASK_S), {})
    except ReplicatorError as error:
        message = f"{error}; whether only workers share the flow's lanes is not known"
        yield PlanFinding("warning", "right" if isinstance(error, NotAllowed) else "group", message)
        return
    for incident in foreign(flow, found):
        yield PlanFinding("error", "group", str(incident), incident.exit_code, incident=incident.name)
