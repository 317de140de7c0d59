"""A generation of a job: opened with a lane for each partition, and handed over to the daemon at its end.

Used by backfill, continuous rounds (`jobs.rounds`) and repair.

Invariants
- Opening it fences whatever ran the flow before; handing over fences whatever of the job may still run.
- A live worker that holds the flow is not stopped unasked.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import structlog

from replicator.config import Flow
from replicator.flow.listing import Listing, Routing
from replicator.flow.setup import Setup
from replicator.flow.worker import with_routes
from replicator.jobs import partition_state
from replicator.jobs.clients import JobClients
from replicator.jobs.partition_state import ReadOffsets
from replicator.kafka.topic_questions import TopicInfo
from replicator.lane.plan import LanePlan
from replicator.model.checkpoint import Evidence
from replicator.model.errors import ReplicatorError, TakenOver
from replicator.model.partition import Partition
from replicator.model.route import Route
from replicator.state.control import MayReplace, handing_back
from replicator.state.generation import Generation, Kind, LaneAssignment
from replicator.state.own_file import lanes_wanted


class JobGeneration:
    """One generation of a job on one flow. Use from one thread."""

    def __init__(self, flow: Flow, setup: Setup, clients: JobClients, log: structlog.stdlib.BoundLogger) -> None:
        self._flow, self._setup, self._clients, self._log = flow, setup, clients, log
        self.listing = Listing({})
        self._routing = Routing()
        self._by_lane: dict[int, dict[Partition, Route]] = {}
        self._opened: Generation | None = None

    @property
    def generation(self) -> Generation:
        """The job's generation, once it is open."""
        if self._opened is None:
            raise RuntimeError("no generation was opened")
        return self._opened

    @property
    def is_open(self) -> bool:
        """Whether a generation was opened."""
        return self._opened is not None

    @property
    def routes(self) -> Mapping[Partition, Route]:
        """Where all partitions of the flow go, by source partition."""
        return self._routing.routes

    def open(self, kind: Kind, listing: Listing, may_replace: MayReplace) -> None:
        """Open a generation with a lane for each partition of the flow: whatever ran before is fenced off."""
        assignment = LaneAssignment.by_partition(listing.partitions)
        before = self._opened.number if self._opened else 0

        def may_fence(found: Generation) -> None:
            may_replace(found)
            self._setup.settle_claims()

        opened = self._setup.change(
            lambda changer: changer.begin(kind, assignment, listing.partitions, may_fence, before)
        )
        self._opened = opened  # from here on there is something to hand over
        self._log.info("generation_opened", generation=opened.number, lanes=assignment.lanes, kind=kind.value)
        self._setup.take_generation(opened)
        self.listing = self._setup.wanted(listing, opened.partitions)
        self._route(self._setup.first_routes(self.listing))

    def route_again(self, listing: Listing) -> None:
        """Decide again over the same topics and partitions: the cause of what stopped one, or let it wait, may be
        gone.
        """
        self.listing = self._setup.wanted(listing, self.generation.partitions)
        self._route(self._setup.routes(self.listing))

    def _route(self, routing: Routing) -> None:
        self._routing, self._by_lane = routing, {}
        lane_of = self.generation.assignment.lane_of
        for at, route in routing.routes.items():
            self._by_lane.setdefault(lane_of(*at), {})[at] = route

    def plan(self, lane: int, owner: str = "") -> LanePlan:
        """Make the plan of one lane, with all routes that belong to it: a hash gives it those that the generation's
        listing didn't have, such as a topic that may not be seen now."""
        generation = self.generation
        plan = LanePlan(
            flow=self._flow,
            generation=generation.number,
            lane=lane,
            owner=owner,
            source_cluster=self._setup.source_cluster,
            target_cluster=self._setup.target_cluster,
            routes=(),
            claim_partitions=self._setup.claim_partitions,
            assignment=generation.assignment,
            writes_map=self._setup.has_map,
            map_topic_id=self._setup.map_topic_id,
        )
        return with_routes(plan, Routing(self._by_lane.get(lane, {}), self._routing.message_bytes))

    def readable(self) -> dict[Partition, Partition]:
        """Return the partitions that are neither stopped nor wait by what their topics show, with their target
        partitions.
        """
        return {at: route.target for at, route in self.routes.items() if route.stopped is None and not route.waiting}

    def read_offsets(self, *, stable: bool) -> ReadOffsets:
        """Read what both clusters say now of the partitions that are readable."""
        return partition_state.read_offsets(self._flow, self._clients.source, self.readable(), stable=stable)

    def check_open(self) -> None:
        """Check that the job's generation is still the open one. Raises TakenOver, Incident (see
        `FlowState.control`).
        """
        self._setup.check_generation(self.generation.number, self.generation.assignment)

    def check_own(self, found: Generation | None) -> None:
        """Check that this generation (None: a change is under way) is the job's. Raises TakenOver."""
        mine = self.generation.number
        if found is None or found.number != mine:
            other = "a change" if found is None else f"generation {found.number} ({found.kind.value})"
            raise TakenOver(f"flow {self._flow.name}: {other} has taken over from {mine}")

    def hand_over(self) -> None:
        """Open the daemon's next generation: fences every task that may still run.

        Raises TakenOver when another generation than the job's is open.
        """
        listing = self.listing.partitions
        wanted = handing_back(partial(lanes_wanted, self._flow, listing))
        generation, _ = self._setup.change(lambda changer: changer.ensure(wanted, listing, self.check_own))
        self._log.info("handed_over", generation=generation.number, lanes=generation.lanes)

    def hand_over_after_error(self) -> None:
        """Hand the flow over on the way out with an error: if this fails too, the job's generation stays open, and says
        so to others.
        """
        if self._opened is None:
            return
        try:
            self.hand_over()
        except ReplicatorError as error:
            self._log.error("not_handed_over", generation=self._opened.number, reason=str(error))


def check_free_now(
    flow: Flow,
    clients: JobClients,
    infos: Mapping[str, TopicInfo],
    found: Generation,
    own: Kind,
    *,
    take_over: bool,
) -> None:
    """Check as `check_free` does, by what the target says now of the copies of these source topics. Raises what it says
    instead, too.
    """
    targets = partition_state.existing_targets(flow, infos, clients.plane.list_target(infos))
    check_free(flow, found, partition_state.read_evidence(flow, targets), own, take_over=take_over)


def check_free(
    flow: Flow, found: Generation, evidence: Mapping[Partition, Evidence | None], own: Kind, *, take_over: bool = False
) -> None:
    """Check that a job may begin: nobody holds the flow under the open generation, or it may be taken over.

    A worker that died holds it too: nobody can tell. So does a flow on Spark: a clean stop would have handed it over. A
    job of the same kind (`own`) that is there counts as one that died and is begun again. One that sets positions is
    over in one transaction: it was done, or is refused.

    Raises TakenOver.
    """
    if take_over or found.kind in (own, Kind.POSITION_SET):
        return
    held = partition_state.owners(evidence, found.number)
    if not held and found.kind is Kind.LIVE:
        return
    names = ", ".join(f"{owner} ({len(partitions)} partitions)" for owner, partitions in held.items())
    raise TakenOver(
        f"flow {flow.name}: a {found.kind.value} worker holds it under generation {found.number}: "
        f"{names or found.by}. Stop it, or take the flow from it with --take-over"
    )
