"""Copies records again that a reconciliation found missing on the target, exactly once, and hands over to the daemon.

    1 check      what can be refused before anything is read or changed
    2 open       a generation of its own, a lane for each partition: fences whatever ran the flow before
    3 copy       the lanes of partitions that miss records, a few at a time in this process: each asks both sides
                 about these records first, then copies those that may be         (repair_policy, repair_decision)
    4 hand over  the daemon's next generation fences what may still run; not where a lost end is there only in part,
                 by this repair or one before: the next repair goes on

It runs here and not in Spark's tasks: missing records are few, and a task would have to be sent a list as long as they
are many. The other lanes are only opened by name: a repair ends long before a position could expire.

Kafka's log can only be appended to: records that are copied again stand behind all others. Nothing that is there is
moved, altered or taken away.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import structlog

from replicator.config import Config, Delivery, Flow
from replicator.failpoints import Failpoint, nothing
from replicator.flow import wiring
from replicator.flow.listing import Listing
from replicator.flow.occupied import check_frozen, check_topics
from replicator.flow.setup import Setup
from replicator.jobs.bounded_lane import BoundedLane, patience_s
from replicator.jobs.clients import JobClients
from replicator.jobs.job_generation import JobGeneration, check_free_now
from replicator.jobs.repair_by_map import RecordsByMap, RepairByMap
from replicator.jobs.repair_listed import ListedRecords
from replicator.jobs.repair_policy import LostRecords, RepairPolicy
from replicator.jobs.repair_spans import RepairRequest
from replicator.lane.plan import LanePlan
from replicator.model.errors import ConfigError, Incident, NotAllowed, TakenOver
from replicator.model.names import process_name
from replicator.model.partition import Partition, Span
from replicator.model.route import Route
from replicator.planes.contract import ReadStopped
from replicator.state.claims import Repair as Repaired
from replicator.state.generation import Generation, Kind

LANES_MAX = 4  # at the same time


@dataclass(frozen=True, slots=True)
class RepairedPartition:
    """One partition: records that this repair copied again; those that another one had since the reconciliation; what
    stopped it.

    Not copied were `standing` records, which the target has already, and `superseded` ones, whose key has a later
    record in a compacted topic: `superseded_at` are their source offsets, the first of them. `refused`: how many others
    weren't, by the reason.
    """

    copied: int
    done_before: int
    incident: Incident | None = None
    standing: int = 0
    superseded: int = 0
    superseded_at: tuple[Span, ...] = ()
    refused: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RepairSummary:
    """The whole repair. `stopped`: it was asked to stop before it was done. `handed_over`: the flow can go on."""

    generation: int
    seconds: float
    stopped: bool
    partitions: Mapping[Partition, RepairedPartition]
    handed_over: bool = True

    @property
    def incident(self) -> Incident | None:
        """The first incident."""
        return next((found.incident for found in self.partitions.values() if found.incident is not None), None)

    def of(self, partitions: Collection[Partition]) -> RepairSummary:
        """Return what it says of these partitions, and of the whole."""
        return replace(self, partitions={at: one for at, one in self.partitions.items() if at in partitions})


def known(flow: Flow) -> frozenset[Repaired]:
    """Read the repairs that the claims topic has now. To be read before a reconciliation reads the target."""
    with JobClients(flow) as clients:
        claims = clients.state.claims_if_any()
    return frozenset(claims.repairs) if claims else frozenset()


def check(flow: Flow, *, take_over: bool) -> bool:
    """Check what can be refused beforehand. Changes nothing. Return whether a repair has not handed the flow over.

    Raises ConfigError, TakenOver (somebody holds the flow), Incident, Unreachable, NotAllowed, Retriable.
    """
    if flow.delivery is not Delivery.EXACTLY_ONCE:
        raise ConfigError(
            f"flow {flow.name} has delivery {flow.delivery.value}: a worker that writes so can't be fenced off, so "
            "what it still writes could be copied twice. A repair needs exactly_once"
        )
    with JobClients(flow) as clients:
        clients.plane.connect()
        control = clients.state.control_if_any()
        check_frozen(flow, control)
        opened = control.open if control else None
        if opened is not None:
            infos = clients.plane.list_source()
            check_free_now(flow, clients, infos, opened, Kind.REPAIR, take_over=take_over)
    return opened is not None and opened.kind is Kind.REPAIR


@dataclass(frozen=True, slots=True)
class _Lane:
    """The lane of one partition, and what it has copied."""

    lane: BoundedLane
    policy: RepairPolicy

    def run(self) -> RepairedPartition:
        """Run until everything is copied, or somebody asks it to stop. Raises TakenOver, NotAllowed, Retriable, …"""
        incident = None
        try:
            self.lane.run()
        except Incident as stopped:
            incident = stopped
        policy = self.policy
        return RepairedPartition(
            policy.copied,
            policy.copied_before,
            incident,
            policy.standing,
            policy.superseded,
            tuple(policy.superseded_at),
            dict(policy.refused),
        )


class RepairJob:
    """One repair. Without requests it only hands over what one before it has kept, if that may be. `stop` may be called
    from any thread or signal handler."""

    def __init__(
        self,
        flow: Flow,
        config: Config,
        requests: Sequence[RepairRequest | RepairByMap],
        log: structlog.stdlib.BoundLogger,
        failpoint: Failpoint = nothing,
        say: Callable[[str], None] = lambda text: None,
        *,
        whole: Collection[Partition] = (),
        known: Collection[Repaired] = (),
        take_over: bool = False,
    ) -> None:
        """
        Args:
            requests: one for each way to find what is lost, of partitions of its own.
            say: is told in a few words what is done now, by several threads.
            whole: source partitions of which the reconciliation has found that nothing is missing.
            known: the repairs that the claims topic had before the reconciliation read the target: it knows nothing of
                what others have left half done since.
        """
        self._flow, self._config, self._requests, self._failpoint = flow, config, requests, failpoint
        self._wanted = sorted(at for request in requests for at in request.partitions)
        self._say, self._whole, self._known, self._take_over = say, whole, known, take_over
        self._log = log.bind(flow=flow.name)
        self._asked = threading.Event()
        self._lanes: dict[Partition, _Lane] = {}
        self._half_done: frozenset[Partition] | None = frozenset()  # by repairs before this one

    def stop(self) -> None:
        """Ask for a clean stop after the transactions under way."""
        self._asked.set()
        for one in self._lanes.values():
            one.lane.stop()

    def run(self) -> RepairSummary:
        """Do steps 1 to 4.

        Raises TakenOver when somebody holds the flow or took it over, and what a cluster made impossible.
        """
        began_s, flow = time.monotonic(), self._flow
        check(flow, take_over=self._take_over)
        with JobClients(flow) as clients:
            setup = Setup(flow, self._config, clients.plane, process_name(), self._log, self._asked)
            listing = setup.begin()
            generation = JobGeneration(flow, setup, clients, self._log)
            try:
                generation.open(
                    Kind.REPAIR,
                    listing,
                    lambda found: self._check_free(clients, listing, found),
                )
                if self._half_done is None:
                    self._half_done = self._left_half_done(clients, setup, generation)
                outcomes = self._copy(generation)
            except TakenOver:
                raise
            except BaseException:
                if not self._is_kept(generation):
                    generation.hand_over_after_error()
                raise
            if not (is_kept := self._is_kept(generation)):
                generation.hand_over()
        took_s, stopped = time.monotonic() - began_s, self._asked.is_set()
        return RepairSummary(generation.generation.number, took_s, stopped, outcomes, not is_kept)

    def _is_kept(self, generation: JobGeneration) -> bool:
        """Return whether the flow isn't handed over: it would go on behind what the target has lost and no repair has
        copied yet, and no incident would tell it."""
        if not generation.is_open:
            return False
        policies = {at: one.policy for at, one in self._lanes.items()}
        finished = {at for at, it in policies.items() if it.is_finished}
        half_done = {at for at, it in policies.items() if it.is_half_done}
        kept = sorted(half_done | ((self._half_done or frozenset()) - finished))
        if kept:
            where = ", ".join(map(str, kept))
            reason = f"the target has lost records of {where}, and only some of them may have been copied again"
        elif self._half_done is None:
            reason = "it could not be read what repairs before this one have left half done"
        else:
            return False
        self._log.error("not_handed_over", generation=generation.generation.number, reason=reason)
        return True

    def _left_half_done(self, clients: JobClients, setup: Setup, generation: JobGeneration) -> frozenset[Partition]:
        """Return the partitions whose lost end repairs have copied to since the flow ran last: one that was killed, or
        didn't hand the flow over, may not have finished them. Those that the reconciliation has found whole since are
        left out, and those of topics that were created again."""
        control, claims = setup.seen or setup.look(), clients.state.claims_if_any()
        ran = control.daemon.number if control.daemon is not None else 0
        routes, whole = generation.routes, {*self._whole} - {*self._wanted}
        return frozenset(
            one.source
            for one in (claims.repairs if claims else ())
            if one.lost_end and one.generation > ran and not (one.source in whole and one in self._known)
            if one.source in routes and _same_topics(one, routes[one.source])
        )

    def _check_free(self, clients: JobClients, listing: Listing, found: Generation) -> None:
        """See `check_free`. Raises FlowFrozen where a topic was failed over."""
        flow = self._flow
        if found.kind is not Kind.LIVE:
            self._half_done = None  # it isn't known yet of which
        check_topics(flow, found.failed_over, {at.topic for at in self._wanted})
        check_free_now(flow, clients, listing.topics, found, Kind.REPAIR, take_over=self._take_over)

    def _copy(self, generation: JobGeneration) -> dict[Partition, RepairedPartition]:
        wanted = self._wanted
        for request in self._requests:
            if isinstance(request, RepairByMap):
                try:
                    request.choices.fenced(sorted(request.partitions))
                except ReadStopped:
                    return {}
        self._lanes = {at: self._lane(at, generation) for at in wanted if at in generation.routes}
        outcomes = {at: RepairedPartition(0, 0, _gone(at)) for at in wanted if at not in self._lanes}
        if self._asked.is_set():  # before there was a lane to be asked
            self.stop()
        with ThreadPoolExecutor(LANES_MAX, thread_name_prefix="repair") as pool:
            running = {at: pool.submit(one.run) for at, one in self._lanes.items()}
            try:
                for at, future in running.items():
                    outcomes[at] = future.result()
            except BaseException:
                for future in running.values():
                    future.cancel()
                self.stop()
                raise
        return {at: _told(one, self._flow.name) for at, one in outcomes.items()}

    def _lane(self, at: Partition, generation: JobGeneration) -> _Lane:
        route = generation.routes[at]
        if route.waiting:
            raise NotAllowed(f"{at} can't be repaired: {route.waiting}", [at])
        plan = generation.plan(generation.generation.assignment.lane_of(*at), process_name())
        log = self._log.bind(generation=plan.generation, partition=str(at))
        policy = RepairPolicy(plan, at, self._lost(plan, at), log)
        lane = BoundedLane(plan, policy, wiring.services(self._failpoint, log), at, patience_s(self._flow.limits))

        def on_read(side: str, done: int, of: int) -> None:
            lane.progressed()
            if self._asked.is_set():
                raise ReadStopped(f"asking the {side} about {at}")
            if done:
                self._say(f"asking the {side} about missing records of {at}: {done:,} of {of:,} offsets")

        policy.on_read = on_read
        return _Lane(lane, policy)

    def _lost(self, plan: LanePlan, at: Partition) -> LostRecords:
        request = next(request for request in self._requests if at in request.partitions)
        if isinstance(request, RepairByMap):
            return RecordsByMap(plan, at, request.choices)
        return ListedRecords(plan, at, request)


def _same_topics(one: Repaired, route: Route) -> bool:
    """Return whether a repair was of the topics that are there now, as far as it has said."""
    ids = route.source_topic_id, route.target_topic_id
    return all(then in ("", now) for then, now in zip(one.topic_ids, ids, strict=True))


def _told(done: RepairedPartition, flow: str) -> RepairedPartition:
    """Return the same, with advice that names the flow."""
    return done if done.incident is None else replace(done, incident=done.incident.of_flow(flow))


def _gone(at: Partition) -> Incident:
    return Incident("source_topic_deleted", "the flow doesn't copy it any more", topic=at.topic, partition=at.partition)
