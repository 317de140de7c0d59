"""What the driver of a job talks to, beside its lanes. Made by backfill, continuous rounds and repair."""

from __future__ import annotations

from types import TracebackType

from replicator.config import Flow
from replicator.flow.topics import ControlPlane, questions_of
from replicator.lane.ports import ClusterQuestions
from replicator.state.flow_state import FlowState


class JobClients:
    """A context manager over the clients of one job: use from one thread."""

    def __init__(self, flow: Flow) -> None:
        self.plane = ControlPlane(flow)
        self._source = questions_of(flow, "source")

    @property
    def source(self) -> ClusterQuestions:
        """The source cluster, read-only."""
        return self._source

    @property
    def state(self) -> FlowState:
        """The flow's own topics on the target."""
        return self.plane.state

    def __enter__(self) -> JobClients:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._source.close()
        self.plane.close()
