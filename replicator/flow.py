"""One flow in this process: opens its generation, starts its lanes, and watches topics and lanes until it ends.

Wiring is here: lanes get their plan from `FlowWorker` and nowhere else. Its own thread is the only one that
changes topics and plans; signals and lanes reach it through one queue.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Mapping
from dataclasses import replace

import structlog

from replicator import routing
from replicator.admin import TopicInfo
from replicator.config import Config, Flow
from replicator.control import Changer
from replicator.errors import (
    ConfigError,
    Fatal,
    Incident,
    NotAllowed,
    ReplicatorError,
    Retriable,
    Superseded,
    UnknownOutcome,
    Unreachable,
)
from replicator.failpoints import Reach
from replicator.generation import Generation, lane_of
from replicator.ledger import Route
from replicator.opening import LanePlan
from replicator.planes.contract import Partition
from replicator.planes.records.reading import Reader
from replicator.runner import Copying, Ended, Event, LaneRunner, Parked
from replicator.topics import ControlPlane

CHANGE_ATTEMPTS = 3
CHANGE_PAUSE_S, CHANGE_PAUSE_S_MAX = 0.05, 1.0


class FlowWorker:
    """Runs one flow until it is stopped, superseded, or nothing of it can go on."""

    def __init__(self, flow: Flow, config: Config, owner: str, reach: Reach, log: structlog.stdlib.BoundLogger) -> None:
        self._flow, self._config, self._owner = flow, config, owner
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
        self._cluster_ids: dict[str, str] = {}

    def stop(self) -> None:
        """Ask for a clean stop, from any thread or a signal handler."""
        self._asked.set()
        self._events.put(None)

    def run(self) -> int:
        """Open the flow and run it; the exit code. Errors before the first lane starts are raised."""
        with ControlPlane(self._flow) as plane:
            source, target = plane.connect()
            self._cluster_ids = {self._flow.source.name: source.cluster_id, self._flow.target.name: target.cluster_id}
            infos = self._first_listing(plane)
            self._check_conflicts(infos)
            plane.ensure_internal(self._flow.lanes)
            generation = self._open_generation(infos)
            infos = self._wanted(infos, generation)
            self._routes = self._route(plane, infos)
            for lane in range(generation.lanes):
                plan = self._plan(generation, lane, source.cluster_id)
                self._runners[lane] = LaneRunner(plan, self._events, self._reach, self._log)
            self.copying = True
            for runner in list(self._runners.values()):
                runner.start()
            try:
                self._watch(plane, generation)
            except BaseException:
                self._abandon()
                raise
        return worst((self._code, Incident.exit_code if self._discovery else 0))

    def _first_listing(self, plane: ControlPlane) -> dict[str, TopicInfo]:
        """The source's topics. One that the flow names and that isn't there is a mistake in a new flow, and an
        incident of that topic in a flow that has been opened before."""
        infos = plane.list_source()
        missing = plane.missing(infos)
        if missing is not None:
            if not plane.opened_before():
                raise missing
            self._note_discovery(missing)
        return infos

    def _check_conflicts(self, infos: Mapping[str, TopicInfo]) -> None:
        known = {self._flow.source.name: list(infos)}
        routing.check_conflicts(self._config, known, self._cluster_ids, self._flow.name)

    def _open_generation(self, infos: Mapping[str, TopicInfo]) -> Generation:
        """The open generation, tried for until the connect timeout: a cluster that comes up has no leaders at first."""
        reader, attempt = Reader(self._flow, self._flow.target), 0
        listing = {name: info.partitions for name, info in infos.items()}
        give_up = time.monotonic() + self._flow.limits.connect_timeout_ms / 1000
        try:
            while True:
                try:
                    generation, changed = Changer(self._flow, reader, self._noise).ensure(listing)
                    break
                except (UnknownOutcome, Retriable) as error:  # half done or done: the next attempt reads which
                    attempt += 1
                    if attempt >= CHANGE_ATTEMPTS and time.monotonic() >= give_up:
                        raise
                    self._log.warning("generation_tried_again", reason=str(error))
                    self._asked.wait(min(CHANGE_PAUSE_S_MAX, CHANGE_PAUSE_S * 2 ** min(attempt, 10)))
        finally:
            reader.close()
        if changed:
            self._log.info("generation_opened", generation=generation.number, lanes=generation.lanes)
        return generation

    def _wanted(self, infos: Mapping[str, TopicInfo], generation: Generation) -> dict[str, TopicInfo]:
        """All selected topics, or under `new_topics: ignore` those of the flow's first listing."""
        if self._flow.new_topics == "copy":
            return dict(infos)
        return {name: info for name, info in infos.items() if name in generation.partitions}

    def _route(self, plane: ControlPlane, infos: Mapping[str, TopicInfo]) -> dict[Partition, Route]:
        """Make sure of the target topics, then map every source partition to its target partition."""
        done = plane.ensure_target(infos)
        for spec in done.create:
            self._log.info("topic_created", topic=spec.name, partitions=spec.partitions)
        for growth in done.grow:
            self._log.info("topic_grown", topic=growth.topic, partitions=growth.partitions)
        targets = plane.list_target(infos)
        routes: dict[Partition, Route] = {}
        for name, info in infos.items():
            target = targets.get(routing.target_topic(self._flow, name))
            if target is None:
                raise Retriable(f"target topic of {name} has gone while it was looked at")
            for number in range(info.partitions):
                at = Partition(name, number)
                routes[at] = Route(at, Partition(target.name, number), info.topic_id, target.topic_id)
        return routes

    def _plan(self, generation: Generation, lane: int, source_cluster: str) -> LanePlan:
        return LanePlan(
            flow=self._flow,
            generation=generation.number,
            lane=lane,
            owner=self._owner,
            source_cluster=source_cluster,
            routes=self._lane_routes(lane, generation.lanes),
            map_partitions=generation.lanes,
        )

    def _lane_routes(self, lane: int, lanes: int) -> tuple[Route, ...]:
        mine = (at for at in sorted(self._routes) if lane_of(at.topic, at.partition, lanes) == lane)
        return tuple(self._routes[at] for at in mine)

    def _watch(self, plane: ControlPlane, generation: Generation) -> None:
        interval_s = self._flow.limits.discovery_interval_ms / 1000
        due = time.monotonic() + interval_s
        while self._runners:
            until = due if self._stop_by is None else self._stop_by
            try:
                event = self._events.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                if self._stop_by is not None:
                    raise Unreachable(f"flow {self._flow.name}: no clean stop within limits.stop_timeout_ms") from None
                self._discover(plane, generation)
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

    def _discover(self, plane: ControlPlane, generation: Generation) -> None:
        """New topics and partitions, changed ids: lanes that are concerned start over at the fence."""
        before = self._routes
        try:
            infos = plane.list_source()
            self._check_conflicts(infos)
            self._routes = self._route(plane, self._wanted(infos, generation))
            self._note_discovery(plane.missing(infos))
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
            routes = self._lane_routes(lane, generation.lanes)
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
