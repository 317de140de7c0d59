"""Whether a job has the flow, or it is copied from another cluster, so that nothing else may run it unasked. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from replicator.config import Flow
from replicator.model.errors import FlowFrozen, TakenOver
from replicator.state.control_topic import Control
from replicator.state.generation import Generation, failed_over_said


def check_free(flow: Flow, found: Generation, *, take_over: bool) -> None:
    """Raise TakenOver where a job has the flow: a daemon that starts, or that a supervisor starts again, doesn't cut it
    short. `take_over`: it shall."""
    if found.kind.bounded and not take_over:
        raise TakenOver(occupied(flow, found))


def check_frozen(flow: Flow, control: Control | None) -> None:
    """Raise FlowFrozen where the flow was failed over, or is about to be."""
    if control is not None and (found := control.frozen) is not None:
        what, then = (
            ("was failed", "nothing is") if control.is_frozen else ("is being failed", "nobody may begin to be")
        )
        raise FlowFrozen(
            f"flow {flow.name} {what} over ({found.begun_said}): {then} copied until "
            f"eos-replicate failover --undo --flow {flow.name} -c FILE"
        )


def check_topics(flow: Flow, failed_over: Mapping[str, int], topics: Iterable[str]) -> None:
    """Raise FlowFrozen where one of these source topics was failed over. `failed_over` as of `Generation`."""
    for topic in sorted(failed_over.keys() & set(topics)):
        raise FlowFrozen(f"flow {flow.name}: {failed_over_said(topic, failed_over[topic])}")


def occupied(flow: Flow, found: Generation) -> str:
    """Say why a daemon doesn't start: a job has the flow."""
    begun = f"generation {found.number}, begun by {found.by or 'an unknown process'}"
    return (
        f"flow {flow.name}: a {found.kind.value} has it ({begun}). Let it finish, run it again if it died, or take the "
        "flow from it with --take-over"
    )


def other_cluster(flow: Flow, control: Control, source_cluster: str) -> str:
    """Say why a worker's file is about another source than the flow's; empty where it isn't. `source_cluster`: the id
    of the cluster that the file names."""
    before = control.daemon
    if before is None or before.source_cluster in ("", source_cluster):
        return ""
    here = f"cluster {flow.source.name!r} of its file has the id {source_cluster}"
    return f"flow {flow.name}: {here}, the flow is copied from {before.source_cluster}"
