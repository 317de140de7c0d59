"""One flow in this process: opens its generation, starts its lanes, and watches over them until the flow ends.

Used by `flow.daemon`, one worker for each attempt to run a flow. Its thread owns the lanes; lanes, discovery and
signals reach it through one queue.

Invariant: a lane never dies alone. What ended one lane ends the flow, all others are stopped, and the daemon decides
whether the flow is started again.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import structlog

from replicator.config import Config, Flow
from replicator.flow.connecting import Connecting
from replicator.flow.discovery import Discovered, Discovery, DiscoveryEnded, FlowNotes
from replicator.flow.lane_counts import FlowCounts
from replicator.flow.listing import Routing
from replicator.flow.occupied import check_free
from replicator.flow.parts import Lane, Parts
from replicator.flow.restarts import worst
from replicator.flow.retrying import beside_others
from replicator.flow.setup import Setup
from replicator.flow.topics import ControlPlane
from replicator.lane.driver import CountsChanged, LaneEnded
from replicator.lane.permit import UNASKED
from replicator.lane.plan import LanePlan
from replicator.model.errors import Fenced, FlowFrozen, Incident, ReplicatorError, TakenOver, Unreachable
from replicator.model.names import process_name
from replicator.model.route import Route
from replicator.state.control import Changer, keeping
from replicator.state.generation import Generation
from replicator.state.own_file import lanes_wanted, own_file

MARGIN_S_MAX = 1.0


def margin_s(flow: Flow) -> float:
    """Return the end of limits.stop_timeout_ms in which no lane is waited for any more: half of it is the flow's, to
    say which are late, then the process leaves."""
    return min(MARGIN_S_MAX, flow.limits.stop_timeout_ms / 1000 / 4)


class FlowWorker:
    """Runs one flow until it is stopped, taken over, or nothing of it can go on."""

    def __init__(
        self,
        flow: Flow,
        config: Config,
        parts: Parts,
        log: structlog.stdlib.BoundLogger,
        *,
        take_over: bool = False,
        exit_on_incident: bool = False,
        told_before: bool = False,
        told: dict[str, float] | None = None,
    ) -> None:
        """`take_over`: also from a backfill or repair that has the flow; `exit_on_incident`: end with the first one.
        `told_before`: the flow has ended here before, and why is known; `told`: as of `Connecting`."""
        self._flow, self._config, self._parts, self._take_over = flow, config, parts, take_over
        self._exit_on_incident, self._log = exit_on_incident, log
        self._owner = process_name()  # of this attempt: lanes of an earlier one that still hang are somebody else
        self._events: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._ended = threading.Event()  # or asked to
        self._connecting = Connecting(self._ended, log, parts.conditions(flow), told_before=told_before, told=told)
        self._lanes: dict[int, Lane] = {}
        self._counts = FlowCounts(())
        self._notes = FlowNotes(log)
        self._error: BaseException | None = None
        self.stopped_early = False
        """Whether a stop came before its lanes had told of all partitions, so that the exit code doesn't say whether
        something waits for a decision."""
        self._stop_by: float | None = None  # when lanes that were asked to stop must have ended
        self._setup: Setup | None = None
        self._alive: Callable[[], None] = lambda: None

    def take(self, config: Config) -> None:
        """Take another state of the whole file, in which this flow is the same: what its topics may conflict with is
        asked of it from the next discovery on. From any thread."""
        self._config = config
        if (setup := self._setup) is not None:
            setup.take(config)

    def stop(self) -> None:
        """Ask for a clean stop, from any thread or a signal handler."""
        self._ended.set()
        self._events.put(None)

    def run(self, lanes_started: Callable[[], None] = lambda: None) -> int:
        """Open the flow and run it; the exit code. Raises what ended it.

        `lanes_started` is called, again and again, once there is something that a stop has to finish, or the flow is
        failed over.
        """
        self._log.info("connecting", source=self._flow.source.name, target=self._flow.target.name)
        self._alive = lanes_started
        opened = self._opened()
        while opened is None and not self._ended.is_set():
            opened = self._opened()
        if opened is None:
            return 0
        plane, setup, generation, routing = opened
        self._parts.partitions(self._flow, routing.topic_partitions)
        discovery = Discovery(setup, plane, generation, self._notes, self._events, self._ended, self._log)
        discovery.start()

        def failed(error: BaseException) -> None:
            self._events.put(DiscoveryEnded(error))

        def over(error: BaseException) -> None:
            if not (isinstance(error, TakenOver) and error.half_done):  # the next start finishes it; this one copies
                failed(error)

        self._parts.watch(self._flow, generation, self._ended, over)
        self._parts.clusters(self._flow, self._ended, failed, self._connecting.told)
        self._parts.duties(self._flow, self._ended, failed)
        try:
            self._start(generation, routing, setup)
            self._alive()
            self._watch()
        except BaseException:
            self._abandon()
            raise
        finally:
            self._ended.set()
        self.stopped_early, code = not self._counts.complete, self._code()
        if (error := graver(self._error, code, self._log)) is not None:
            raise error
        return code

    def _opened(self) -> tuple[ControlPlane, Setup, Generation, Routing] | None:
        """Open the flow; None after it was failed over, and that was undone, or it is asked to stop."""
        try:
            return self._attempted()
        except Unreachable:
            if self._ended.is_set():  # by which it was cut short: nothing was begun that has to be finished
                return None
            raise

    def _attempted(self) -> tuple[ControlPlane, Setup, Generation, Routing] | None:
        plane = self._parts.plane(self._flow)
        try:
            at = self._flow, self._config, plane, self._owner, self._log, self._ended
            setup = self._setup = Setup(*at, connecting=self._connecting)
            setup.take(self._config)  # one that came meanwhile
            return plane, setup, *self._open(setup)
        except (FlowFrozen, Unreachable) as error:
            plane.close()
            undone = isinstance(error, FlowFrozen)  # meanwhile, where it isn't failed over any more
            if not undone and not self._connecting.target_answers:  # it can't say whether the flow was failed over
                raise
            if self._parts.frozen(self._flow, self._ended, self._log, self._alive):
                self._connecting.tell_again()
            elif not undone:
                raise
            return None
        except BaseException:
            plane.close()
            raise

    def _code(self) -> int:
        """Return the exit code after a clean end: 4 while something waits for a decision."""
        return Incident.exit_code if self._counts.stopped or self._notes.incidents else 0

    def _open(self, setup: Setup) -> tuple[Generation, Routing]:
        listing = setup.begin()
        wanted = keeping(
            partial(lanes_wanted, self._flow, listing.partitions), own_file(self._flow, setup.source_cluster)
        )
        generation, changed = self._changed(
            setup, lambda changer: changer.ensure(wanted, listing.partitions, partial(self._may_replace, setup))
        )
        if changed:
            self._log.info("generation_opened", generation=generation.number, lanes=generation.lanes)
        setup.take_generation(generation)
        listing = setup.wanted(listing, generation.partitions)
        self._notes.note_listing(listing)
        return generation, setup.first_routes(listing)

    def _changed(self, setup: Setup, ask: Callable[[Changer], tuple[Generation, bool]]) -> tuple[Generation, bool]:
        """Return what `ask` does. Whoever writes what an operator has typed fences this at the control id, as another
        process does that opens a generation: it is tried again unless there is such a one. Raises Fenced, TakenOver."""
        known = setup.seen.newest if setup.seen is not None else 0

        def may_pass(error: ReplicatorError) -> bool:
            if not isinstance(error, (Fenced, TakenOver)):
                return False
            control = setup.look()
            begun = control.open or control.preparing
            own = begun is not None and begun.by == self._owner  # which the other one may have finished
            return own or (isinstance(error, Fenced) and (begun is None or begun.number <= known))

        # Tried again also when it shall stop: what is half done is finished.
        return beside_others(
            lambda: setup.change(ask),
            may_pass,
            lambda error: self._log.info("generation_tried_again", reason=str(error)),
        )

    def _may_replace(self, setup: Setup, found: Generation) -> None:
        check_free(self._flow, found, take_over=self._take_over)
        setup.settle_claims()

    def _start(self, generation: Generation, routing: Routing, setup: Setup) -> None:
        for lane in range(generation.lanes):
            plan = lane_plan(self._flow, generation, lane, self._owner, setup)
            self._lanes[lane] = self._parts.lane(with_routes(plan, routing), self._events, UNASKED)
        self._counts = FlowCounts(lane for lane, made in self._lanes.items() if made.plan.routes)
        for made in list(self._lanes.values()):
            made.start()

    def _watch(self) -> None:
        """Wait until all lanes have ended. Raises Unreachable when they don't in time, and bugs."""
        while self._lanes:
            timeout_s = None if self._stop_by is None else max(0.0, self._stop_by - time.monotonic())
            try:
                event = self._events.get(timeout=timeout_s)
            except queue.Empty:
                raise (self._error or no_clean_stop(self._flow, self._lanes)) from None
            self._handle(event)

    def _handle(self, event: object) -> None:
        if event is None:
            self._log.info("stopping")
            self._stop_lanes()
        elif isinstance(event, CountsChanged):
            self._counts.update(event.lane, event.counts)
            self._stop_by_incidents()
        elif isinstance(event, LaneEnded):
            self._lane_ended(event)
        elif isinstance(event, Discovered):
            self._discovered(event.routing)
        elif isinstance(event, DiscoveryEnded):
            self._fail(event.error)
        else:
            raise TypeError(f"unknown event {event!r}")

    def _discovered(self, routing: Routing) -> None:
        self._parts.partitions(self._flow, routing.topic_partitions)
        if self._stop_by is not None:
            return
        self._counts.settle()
        for lane, running in self._lanes.items():
            plan = with_routes(running.plan, routing)
            if plan != running.plan:
                self._log.info("reassigned", lane=lane, partitions=len(plan.routes))
                self._counts.reassigned(lane, len(plan.routes))
                running.reassign(plan)
        self._stop_by_incidents()

    def _stop_by_incidents(self) -> None:
        """Stop a flow of which nothing can go on, so that somebody looks at it; if wanted, with the first incident."""
        if self._stop_by is not None:
            return
        if self._counts.all_stopped:
            self._log.error("all_partitions_stopped", partitions=self._counts.stopped)
            self._stop_lanes()
        elif self._exit_on_incident and (self._counts.stopped or self._notes.incidents):
            self._log.error("exit_on_incident", partitions=self._counts.stopped)
            self._stop_lanes()

    def _lane_ended(self, event: LaneEnded) -> None:
        del self._lanes[event.lane]
        error = event.error
        if error is None and self._stop_by is None:
            error = RuntimeError(f"lane {event.lane} ended without being asked to")
        if error is not None:
            kind, code = type(error).__name__, getattr(error, "exit_code", 70)
            self._log.error("lane_ended", lane=event.lane, kind=kind, detail=str(error), exit_code=code)
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """End the flow by `error`; of several by the worst. Lanes that still run are stopped first."""
        self._error = worse(self._error, error)
        self._stop_lanes()

    def _stop_lanes(self) -> None:
        self._ended.set()
        if self._stop_by is not None:
            return
        self._stop_by = stop_by_s(self._flow)
        for lane in self._lanes.values():
            lane.stop()

    def _abandon(self) -> None:
        """Stop what still runs when this worker fails: a lane that nobody watches must not go on copying."""
        self._stop_lanes()
        for lane in self._lanes.values():
            lane.join(max(0.0, (self._stop_by or 0.0) - time.monotonic()))


def lane_plan(flow: Flow, generation: Generation, lane: int, owner: str, setup: Setup) -> LanePlan:
    """Plan a lane, without routes. `owner`: of its positions."""
    return LanePlan(
        flow=flow,
        generation=generation.number,
        lane=lane,
        owner=owner,
        source_cluster=setup.source_cluster,
        target_cluster=setup.target_cluster,
        routes=(),
        claim_partitions=generation.lanes,
        assignment=generation.assignment,
        writes_map=setup.has_map,
        map_topic_id=setup.map_topic_id,
    )


def stop_by_s(flow: Flow) -> float:
    """Return when lanes that are asked to stop now must have ended (monotonic)."""
    return time.monotonic() + flow.limits.stop_timeout_ms / 1000 - margin_s(flow) / 2


def no_clean_stop(flow: Flow, late: Iterable[int]) -> Unreachable:
    """Return what a flow ends by whose lanes `late` have not ended in time."""
    lanes = ", ".join(str(lane) for lane in late)
    return Unreachable(f"flow {flow.name}: no clean stop within limits.stop_timeout_ms of lanes {lanes}")


def worse(before: BaseException | None, error: BaseException) -> BaseException:
    """Return the one of two errors that the operator must see; the earlier of two that are alike."""
    if before is None or worst((code_of(error), code_of(before))) != code_of(before):
        return error
    return before


def graver(error: BaseException | None, code: int, log: structlog.stdlib.BoundLogger) -> BaseException | None:
    """Return the error that has ended a flow, unless the operator must see `code` first: then it is in the log."""
    if error is None or worst((code_of(error), code)) == code_of(error):
        return error
    log.error("flow_ended", kind=type(error).__name__, detail=str(error), exit_code=code_of(error))
    return None


def code_of(error: BaseException) -> int:
    """Return the exit code that an error has; 70 for a bug."""
    return error.exit_code if isinstance(error, ReplicatorError) else 70


def with_routes(plan: LanePlan, routing: Routing) -> LanePlan:
    """Return the plan with those of the flow's routes that belong to its lane, and the sizes that their targets take.
    Pure.
    """
    routes: tuple[Route, ...] = tuple(
        routing.routes[at] for at in sorted(routing.routes) if plan.assignment.lane_of(*at) == plan.lane
    )
    plan = replace(plan, routes=routes)
    sizes = routing.sizes(routes)
    if not sizes:
        return plan
    return replace(plan, batch_bytes_max=sizes[0], record_bytes_max=sizes[-1])
