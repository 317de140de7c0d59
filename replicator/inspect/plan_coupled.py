"""Topics of a flow that are tied together at the source, for `inspect.planning`."""

from __future__ import annotations

from replicator.config import Flow
from replicator.inspect import coupled_topics
from replicator.inspect.flow_plan import CoupledPlan
from replicator.model.errors import ReplicatorError

READ_BYTES_MAX = 512 * 1024
"""Of each partition of the coordinators' logs: less than `eos-replicate coupled` reads, which answers just this."""


def plan_coupled(flow: Flow) -> tuple[list[CoupledPlan], list[str]]:
    """Find the coupled sets, and what isn't known of them. Whatever fails here keeps no flow from running."""
    try:
        found = coupled_topics.look(flow, read_bytes_max=READ_BYTES_MAX)
    except ReplicatorError as error:
        return [], [str(error)]
    return [CoupledPlan(it.topics, it.outside, it.groups) for it in found.sets], [str(it) for it in found.unseen]
