"""What a flow's worker is made of: put together by `flow.wiring`, used by `flow.worker` and `flow.group_worker`."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import structlog

from replicator.config import Flow
from replicator.flow.group_members import FlowWorkers
from replicator.flow.topics import ControlPlane
from replicator.kafka.group_events import GroupEvent
from replicator.lane.permit import FencePermit
from replicator.lane.plan import LanePlan
from replicator.state.generation import Generation
from replicator.workers.lane_stages import LaneStage


class Note(Protocol):
    """A record of the claims topic that only informs: `FlowEnd`, `ConfigFault`."""

    def encode(self) -> tuple[bytes, bytes]:
        """Return key and value of the record."""


@dataclass(frozen=True, slots=True)
class Silence:
    """A cluster that doesn't answer, for how long none of its brokers has, and why."""

    cluster: str
    for_s: float
    reason: str


class Lane(Protocol):
    """What a worker needs of `lane.driver.LaneDriver`."""

    plan: LanePlan

    def start(self) -> None:
        """Start the lane's thread."""

    def stop(self) -> None:
        """Ask for a clean stop: the open transaction is finished first."""

    def join(self, timeout_s: float) -> bool:
        """Wait for the thread; whether it has ended."""

    def reassign(self, plan: LanePlan) -> None:
        """Give the lane other routes: it starts over at the fence with them."""

    def forget(self) -> None:
        """Let nobody see any more what its partitions are doing. Once it has ended."""


MakeLane = Callable[[LanePlan, queue.SimpleQueue[Any], FencePermit], Lane]
"""A lane, which puts its events into the queue, and asks before it initialises its transactional id."""
Failed = Callable[[BaseException], None]
Watch = Callable[[Flow, Generation, threading.Event, Failed], None]
"""Starts threads beside the lanes of a generation, which end with the event, and tell what ends the flow: TakenOver
when the generation is over, or a bug."""
WatchClusters = Callable[[Flow, threading.Event, Failed, dict[str, float]], Callable[[], Sequence[Silence]]]
"""Starts threads that end with the event, and tell of a bug; what it returns says which clusters of the flow don't
answer now. The dict has the clusters that the log has as unreachable, as of `Connecting`."""
Duties = Callable[[Flow, threading.Event, Failed], None]
"""Starts threads that end with the event, and tell of a bug."""
WhileFrozen = Callable[[Flow, threading.Event, structlog.stdlib.BoundLogger, Callable[[], None]], bool]
"""See `flow.frozen.while_frozen`; whoever makes it says who is told besides."""


class Group(Protocol):
    """What a worker needs of `kafka.group_consumer.GroupConsumer`, see there."""

    def subscribe(self) -> None:
        """Begin to be a member."""

    def unsubscribe(self) -> None:
        """Leave the group."""

    def prove(self, lane: int, number: int, metadata: str) -> None:
        """Begin a proof."""

    def holds(self, lane: int) -> bool:
        """Return whether a lane is in the assignment."""

    def close(self, timeout_s: float) -> bool:
        """Leave, and end the thread; whether it has ended in time."""


class ConditionObserver(Protocol):
    """Is told what keeps a whole flow from copying as its file says, from any thread; must not block and not raise."""

    def connecting(self, clusters: Collection[str]) -> None:
        """Note that these are asked from now on, and no other; none: nobody asks."""

    def cluster_unreachable(self, cluster: str, for_s: float) -> None:
        """Note that no broker of a cluster has answered for so long."""

    def cluster_answers(self, cluster: str) -> None:
        """Note that it answers again, or that nobody asks it any more."""

    def failed_over(self, said: str) -> None:
        """Note that the whole flow was failed over, by whom; empty: it isn't any more, or nobody looks."""

    def being_failed_over(self, said: str) -> None:
        """Note that somebody has begun to fail it over, and other workers may still copy; empty: as above."""

    def other_settings(self, said: str) -> None:
        """Note that it runs other settings than its file has, and why; empty: it runs those of its file."""


class NoConditions:
    """Implements `ConditionObserver` for a flow that nobody watches."""

    def connecting(self, clusters: Collection[str]) -> None:
        """See `ConditionObserver`."""

    def cluster_unreachable(self, cluster: str, for_s: float) -> None:
        """See `ConditionObserver`."""

    def cluster_answers(self, cluster: str) -> None:
        """See `ConditionObserver`."""

    def failed_over(self, said: str) -> None:
        """See `ConditionObserver`."""

    def being_failed_over(self, said: str) -> None:
        """See `ConditionObserver`."""

    def other_settings(self, said: str) -> None:
        """See `ConditionObserver`."""


class WorkerObserver(Protocol):
    """Is told what a worker that shares its flow does, by the flow's thread; must not block and not raise."""

    def stages(self, stages: Mapping[int, LaneStage], *, assigned: bool) -> None:
        """Note where the lanes stand that it has been given, or that still run here. `assigned`: whether the group's
        last word is an assignment, if only of no lanes."""

    def rebalanced(self) -> None:
        """Note that the group has given it an assignment."""

    def handed_over(self, took_s: float) -> None:
        """Note that a lane has initialised its transactional id, so long after it was assigned."""

    def standing_by(self, reason: str) -> None:
        """Note that it runs nothing for now, and why."""

    def members(self, found: FlowWorkers, at_ms: int) -> None:
        """Take all workers of the flow, as they were at this time (wall clock). Told by the thread of discovery."""


class Unwatched:
    """Implements `WorkerObserver` for a worker that nobody watches."""

    def stages(self, stages: Mapping[int, LaneStage], *, assigned: bool) -> None:
        """See `WorkerObserver`."""

    def rebalanced(self) -> None:
        """See `WorkerObserver`."""

    def handed_over(self, took_s: float) -> None:
        """See `WorkerObserver`."""

    def standing_by(self, reason: str) -> None:
        """See `WorkerObserver`."""

    def members(self, found: FlowWorkers, at_ms: int) -> None:
        """See `WorkerObserver`."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What a worker is made of besides its flow, see `flow.wiring`: the control plane of a flow; a lane; what watches
    a generation; what watches the flow's clusters; what one worker of a flow does for all of them; what notes something
    on the target where `status` reads it, such as how the flow has ended; what is told of what keeps the whole flow
    from copying, and how many `partitions` each source topic has, whenever that was listed. For one that shares its
    flow also: a membership in the flow's group; who the members are; what is told of it; and the program's version.
    """

    plane: Callable[[Flow], ControlPlane]
    lane: MakeLane
    watch: Watch = lambda flow, generation, ended, failed: None
    clusters: WatchClusters = lambda flow, ended, failed, told: lambda: ()
    duties: Duties = lambda flow, ended, failed: None
    note: Callable[[Flow, Note], None] = lambda flow, note: None
    group: Callable[[Flow, int, str, Callable[[GroupEvent], None]], Group] | None = None
    members: Callable[[ControlPlane], list[str]] = lambda plane: []
    partitions: Callable[[Flow, Mapping[str, int]], None] = lambda flow, partitions: None
    frozen: WhileFrozen = lambda flow, asked, log, found: False
    observe: Callable[[Flow], WorkerObserver] = lambda flow: Unwatched()
    conditions: Callable[[Flow], ConditionObserver] = lambda flow: NoConditions()
    version: str = ""
