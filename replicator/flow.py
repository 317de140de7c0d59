"""One flow in this process: opens its generation, starts its lanes, and watches topics and lanes until it ends.

Wiring is here: lanes get their plan from `FlowWorker` and nowhere else. Its own thread is the only one that
changes topics and plans; signals and lanes reach it through one queue.
"""

from __future__ import annotations

import queue
import threading
import time
from dataclasses import replace

import structlog

from replicator.config import Config, Flow
from replicator.errors import (
    ConfigError,
    Fatal,
    Incident,
    NotAllowed,
    ReplicatorError,
    Retriable,
    Superseded,
    Unreachable,
)
from replicator.failpoints import Reach
from replicator.generation import Cut, Generation
from replicator.ledger import Route
from replicator.opening import LanePlan
from replicator.planes.contract import Partition
from replicator.runner import Copying, Ended, Event, LaneRunner, Parked
from replicator.setup import Setup, occupied, partitions
from replicator.topics import ControlPlane


class FlowWorker:
    """Runs one flow until it is stopped, superseded, or nothing of it can go on."""

    def __init__(
        self,
        flow: Flow,
        config: Config,
        owner: str,
        reach: Reach,
        log: structlog.stdlib.BoundLogger,
        *,
        take_over: bool = False,
    ) -> None:
        """`take_over`: also from a backfill or repair that has the flow."""
        self._flow, self._config, self._owner, self._take_over = flow, config, owner, take_over
        self._reach, self._log = reach, log
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._asked = threading.Event()  # to stop
        self._parked: set[int] = set()
        self._runners: dict[int, LaneRunner] = {}
        self._routes: dict[Partition, Route] = {}
        self._code = 0
        self._discovery = ""  # the incident that the last discovery met
        self.stopping = False
        self.copying = False  # lanes have started, so a stop has something to finish
        self._stop_by: float | None = None  # when lanes that were asked to stop must have ended

    def stop(self) -> None:
        """Ask for a clean stop, from any thread or a signal handler."""
        self._asked.set()
        self._events.put(None)

    def run(self) -> int:
        """Open the flow and run it; the exit code. Errors before the first lane starts are raised."""
        with ControlPlane(self._flow) as plane:
            setup = Setup(self._flow, self._config, plane, self._owner, self._log, self._asked)
            infos, missing = setup.begin()
            self._note_discovery(missing)
            cut = Cut(self._flow.lanes)
            generation, changed = setup.change(
                lambda changer: changer.ensure(cut, partitions(infos), self._may_replace)
            )
            if changed:
                self._log.info("generation_opened", generation=generation.number, lanes=generation.lanes)
            self._routes = setup.first_routes(setup.wanted(infos, generation.partitions))
            for lane in range(generation.lanes):
                plan = self._plan(generation, lane, setup.source_cluster)
                self._runners[lane] = LaneRunner(plan, self._events, self._reach, self._log)
            self.copying = True
            for runner in list(self._runners.values()):
                runner.start()
            try:
                self._watch(setup, generation)
            except BaseException:
                self._abandon()
                raise
        return worst((self._code, Incident.exit_code if self._discovery else 0))

    def _plan(self, generation: Generation, lane: int, source_cluster: str) -> LanePlan:
        return LanePlan(
            flow=self._flow,
            generation=generation.number,
            lane=lane,
            owner=self._owner,
            source_cluster=source_cluster,
            routes=self._lane_routes(lane, generation.cut),
            map_partitions=generation.lanes,
            cut=generation.cut,
        )

    def _lane_routes(self, lane: int, cut: Cut) -> tuple[Route, ...]:
        mine = (at for at in sorted(self._routes) if cut.lane_of(at.topic, at.partition) == lane)
        return tuple(self._routes[at] for at in mine)

    def _may_replace(self, found: Generation) -> None:
        """A job that has the flow is not cut short by a daemon that starts, or that a supervisor starts again."""
        if found.kind.bounded and not self._take_over:
            raise Superseded(occupied(self._flow, found))

    def _watch(self, setup: Setup, generation: Generation) -> None:
        interval_s = self._flow.limits.discovery_interval_ms / 1000
        due = time.monotonic() + interval_s
        while self._runners:
            until = due if self._stop_by is None else self._stop_by
            try:
                event = self._events.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                if self._stop_by is not None:
                    raise Unreachable(f"flow {self._flow.name}: no clean stop within limits.stop_timeout_ms") from None
                self._discover(setup, generation)
                due = time.monotonic() + interval_s
                continue
            if event is None:
                self._stop_lanes()
            elif isinstance(event, Parked):
                self._lane_parked(event)
            elif isinstance(event, Copying):
                self._parked.discard(event.plan.lane)
            else:
                self._lane_ended(event)

    def _stop_lanes(self) -> None:
        self.stopping = True
        if self._stop_by is None:
            self._stop_by = time.monotonic() + self._flow.limits.stop_timeout_ms / 1000
            self._log.info("stopping")
        for runner in self._runners.values():
            runner.stop()

    def _abandon(self) -> None:
        """Stop what still runs when this worker fails: a lane that nobody watches must not go on copying."""
        self._stop_lanes()
        for runner in self._runners.values():
            runner.join(max(0.0, (self._stop_by or 0.0) - time.monotonic()))

    def _lane_parked(self, event: Parked) -> None:
        """A flow of which nothing can go on ends, so that somebody looks at it."""
        runner = self._runners.get(event.plan.lane)
        if runner is None or runner.plan is not event.plan:
            return  # it was given other partitions meanwhile
        self._parked.add(event.plan.lane)
        self._stop_if_parked()

    def _stop_if_parked(self) -> None:
        if self._parked and all(lane in self._parked or not other.plan.routes for lane, other in self._runners.items()):
            self._stop_lanes()

    def _lane_ended(self, event: Ended) -> None:
        self._runners.pop(event.lane)
        error = event.error
        if error is None:
            code = 4 if event.incidents else 0
        elif isinstance(error, ReplicatorError):
            code = error.exit_code
            self._log.error("lane_ended", lane=event.lane, kind=type(error).__name__, detail=str(error), exit_code=code)
        else:
            raise error
        self._code = worst((self._code, code))
        self._parked.discard(event.lane)
        if isinstance(error, (Superseded, Fatal)):
            self._stop_lanes()  # whoever superseded one lane has the flow
        elif not self.stopping:
            self._stop_if_parked()

    def _discover(self, setup: Setup, generation: Generation) -> None:
        """New topics and partitions, changed ids: lanes that are concerned start over at the fence."""
        before = self._routes
        try:
            infos, missing = setup.listing()
            self._routes = setup.routes(setup.wanted(infos, generation.partitions))
            self._note_discovery(missing)
        except ConfigError as error:  # a new topic that another flow writes, or that comes back
            self._note_discovery(Incident("flows_in_conflict", str(error)))
            return
        except (Unreachable, Retriable, NotAllowed) as error:
            self._log.warning("discovery_failed", reason=str(error))
            return
        except Incident as incident:
            self._note_discovery(incident)
            return
        if self._routes == before:
            return
        for lane, runner in self._runners.items():
            routes = self._lane_routes(lane, generation.cut)
            if routes != runner.plan.routes:
                self._log.info("reassigned", lane=lane, partitions=len(routes))
                self._parked.discard(lane)
                runner.reassign(replace(runner.plan, routes=routes))

    def _note_discovery(self, incident: Incident | None) -> None:
        """Tell an incident of the listing once, and forget it when the next listing doesn't meet it."""
        text = "" if incident is None else str(incident)
        if incident is not None and text != self._discovery:
            self._log.error(
                "incident",
                name=incident.name,
                detail=incident.detail,
                topic=incident.topic,
                partition=incident.partition,
                offset=incident.offset,
                advice=incident.advice,
            )
        self._discovery = text

    def _noise(self, text: str) -> None:
        self._log.debug("client", detail=text)


# The worst wins: a bug before an incident, an incident before being superseded, and so on.
SEVERITY = (70, 4, 5, 3, 2, 0)


def worst(codes: tuple[int, ...]) -> int:
    """The exit code that the operator must see first."""
    return next(code for code in SEVERITY if code in codes)
