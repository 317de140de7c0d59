"""Copies records again that a reconciliation found missing on the target, exactly once, and hands over to the daemon.

    1 check      what can be refused before anything is read or changed
    2 open       a generation of its own, a lane for each partition: fences whatever ran the flow before
    3 copy       the lanes of partitions that miss records, a few at a time in this process              (repair_lane)
    4 hand over  the daemon's next generation fences what may still run

It runs here and not in Spark's tasks: missing records are few, and a task would have to be sent a list as long as they
are many. The other lanes are only opened by name: a repair ends long before a position could expire.

Kafka's log can only be appended to: records that are copied again stand behind all others. Nothing that is there is
moved, altered or taken away.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass

import structlog

from replicator import control, sighting
from replicator.admin import TopicInfo
from replicator.config import Config, Delivery, Flow
from replicator.errors import ConfigError, Incident, Superseded
from replicator.failpoints import Reach, nothing
from replicator.generation import Generation, Kind
from replicator.map import Repair as Repaired
from replicator.names import process_name
from replicator.opening import LanePlan, Span
from replicator.planes.contract import Partition
from replicator.planes.records.reading import Reader
from replicator.repair_lane import RepairLane
from replicator.repair_spans import Request
from replicator.setup import Setup
from replicator.tenure import Tenure, check_free
from replicator.topics import ControlPlane

LANES_MAX = 4  # at the same time


@dataclass(frozen=True, slots=True)
class Outcome:
    """One partition: records that this repair copied again; those that another one had since the reconciliation; what
    stopped it."""

    copied: int
    done_before: int
    incident: Incident | None = None


@dataclass(frozen=True, slots=True)
class Summary:
    """The whole repair. `stopped`: it was asked to stop before it was done."""

    generation: int
    seconds: float
    stopped: bool
    partitions: Mapping[Partition, Outcome]

    @property
    def incident(self) -> Incident | None:
        """The first incident."""
        return next((found.incident for found in self.partitions.values() if found.incident is not None), None)


def known(flow: Flow) -> frozenset[Repaired]:
    """The repairs that stand in the map now. To be read before a reconciliation looks at the target."""
    with closing(Reader(flow, flow.target)) as target:
        return frozenset(sighting.repaired(flow, target))


def check(flow: Flow, *, take_over: bool) -> None:
    """What can be refused beforehand. Changes nothing.

    Raises ConfigError, Superseded (somebody holds the flow), Incident, Unreachable, NotAllowed, Retriable.
    """
    if flow.delivery is not Delivery.EXACTLY_ONCE:
        raise ConfigError(
            f"flow {flow.name} has delivery {flow.delivery.value}: a worker that writes so can't be fenced off, so "
            "what it still writes could be copied twice. A repair needs exactly_once"
        )
    with ControlPlane(flow) as plane, closing(Reader(flow, flow.target)) as target:
        plane.connect()
        if not plane.opened_before():
            return
        opened = control.read(flow, target).open
        if opened is not None:
            _check_free(flow, plane, plane.list_source(), opened, take_over=take_over)


def _check_free(
    flow: Flow, plane: ControlPlane, infos: Mapping[str, TopicInfo], found: Generation, *, take_over: bool
) -> None:
    seen = sighting.sight(flow, plane, infos, stable=False)
    check_free(flow, found, seen, Kind.REPAIR, take_over=take_over)


class Repair:
    """One repair. `stop` may be called from any thread or signal handler."""

    def __init__(
        self,
        flow: Flow,
        config: Config,
        request: Request,
        log: structlog.stdlib.BoundLogger,
        reach: Reach = nothing,
    ) -> None:
        self._flow, self._config, self._request, self._reach = flow, config, request, reach
        self._log = log.bind(flow=flow.name)
        self._asked = threading.Event()

    def stop(self) -> None:
        """Ask for a clean stop after the transactions under way."""
        self._asked.set()

    def run(self) -> Summary:
        """Steps 1 to 4.

        Raises Superseded when somebody holds the flow or took it over, and what a cluster made impossible.
        """
        began_s, flow, request = time.monotonic(), self._flow, self._request
        check(flow, take_over=request.take_over)
        with ControlPlane(flow) as plane:
            setup = Setup(flow, self._config, plane, process_name(), self._log, self._asked)
            infos, _ = setup.begin()
            tenure = Tenure(flow, setup, plane, self._log)
            try:
                tenure.open(
                    Kind.REPAIR,
                    infos,
                    lambda found: _check_free(flow, plane, infos, found, take_over=request.take_over),
                )
                outcomes = self._copy(tenure, setup.source_cluster)
            except Superseded:
                raise
            except BaseException:
                tenure.hand_over_anyway()
                raise
            tenure.hand_over()
        return Summary(tenure.generation.number, time.monotonic() - began_s, self._asked.is_set(), outcomes)

    def _copy(self, tenure: Tenure, source_cluster: str) -> dict[Partition, Outcome]:
        wanted = sorted(self._request.partitions)
        lanes = {at: self._lane(at, tenure, source_cluster) for at in wanted if at in tenure.routes}
        outcomes = {at: Outcome(0, 0, _gone(at)) for at in wanted if at not in lanes}
        with ThreadPoolExecutor(LANES_MAX, thread_name_prefix="repair") as pool:
            running = {at: pool.submit(self._run, lane) for at, lane in lanes.items()}
            try:
                for at, future in running.items():
                    outcomes[at] = future.result()
            except BaseException:
                for future in running.values():
                    future.cancel()
                self._asked.set()
                raise
        return outcomes

    def _run(self, lane: RepairLane) -> Outcome:
        try:
            lane.run()
        except Incident as incident:
            self._log.error("incident", name=incident.name, detail=str(incident), partition=incident.partition)
            return Outcome(lane.copied, lane.done_before, incident)
        return Outcome(lane.copied, lane.done_before)

    def _lane(self, at: Partition, tenure: Tenure, source_cluster: str) -> RepairLane:
        generation = tenure.generation
        plan = LanePlan(
            flow=self._flow,
            generation=generation.number,
            lane=generation.cut.lane_of(*at),
            owner=process_name(),
            source_cluster=source_cluster,
            routes=(tenure.routes[at],),
            map_partitions=self._flow.lanes,
            cut=generation.cut,
            span=Span({at: 0}, {at: 0}),
        )
        return RepairLane(plan, self._request, self._asked, self._log, self._reach)


def _gone(at: Partition) -> Incident:
    return Incident("source_topic_gone", "the flow doesn't copy it any more", topic=at.topic, partition=at.partition)
