"""Copies the history of a flow in bounded ranges, side by side, and hands over to the daemon.

    1 check   what can be known before anything is changed: topics, ends, positions, who holds them
    2 open    a generation of its own: fences whatever ran the flow before
    3 plan    ranges from the positions, read stable under that generation, to the ends that were seen in 1
    4 rounds  one range of each partition at a time, on an engine
    5 hand over: the daemon's next generation fences what may still run, so that a live worker goes on without gap or
              overlap

Invariant: the position on the target decides what is copied, and nothing that is kept here: a backfill that was killed
anywhere is simply begun again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass

import structlog

from replicator import control, ranges, sighting
from replicator.admin import TopicInfo
from replicator.config import Config, Flow
from replicator.engine import Engine, Observer
from replicator.errors import ConfigError, Incident, ReplicatorError, Superseded
from replicator.generation import Control, Generation, Kind
from replicator.names import process_name
from replicator.planes.contract import Partition
from replicator.planes.records.reading import Reader
from replicator.ranges import Plan, Range, Seen
from replicator.rounds import Rounds
from replicator.setup import Setup, partitions
from replicator.sighting import Sighted
from replicator.tenure import check_free
from replicator.topics import ControlPlane

OFFSETS_MAX = 2_000_000


@dataclass(frozen=True, slots=True)
class Bound:
    """A begin or an end that somebody gave: a time for all partitions, or offsets for some."""

    timestamp_ms: int | None = None
    offsets: Mapping[Partition, int] | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """What to copy. `topics`: source topics, none for all; `first` is inclusive, `last` exclusive.

    `offsets_max` bounds one range, `rate_max` is in records a second for the whole job.
    """

    topics: frozenset[str] = frozenset()
    first: Bound = Bound()
    last: Bound = Bound()
    offsets_max: int = OFFSETS_MAX
    rate_max: float | None = None
    take_over: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """One partition after the job: source offsets [start, end) were asked for, `position` is reached.

    `records` counts those that the flow committed there meanwhile.
    """

    start: int
    end: int
    position: int
    records: int
    incident: Incident | None = None
    begun: bool = True  # it has a position: whoever runs the flow goes on there

    @property
    def done(self) -> bool:
        """Whether everything that was asked for stands on the target."""
        return self.position >= self.end


@dataclass(frozen=True, slots=True)
class Summary:
    """The whole job. `generation` is its own; `stopped`: it was asked to stop before it was done."""

    generation: int
    seconds: float
    stopped: bool
    partitions: Mapping[Partition, Outcome]


class Backfill:
    """One backfill. `check` comes first; `stop` may be called from any thread, but no signal handler."""

    def __init__(
        self, flow: Flow, config: Config, request: Request, observer: Observer, log: structlog.stdlib.BoundLogger
    ) -> None:
        self._flow, self._config, self._request, self._observer = flow, config, request, observer
        self._log = log.bind(flow=flow.name)
        self._owner = process_name()
        self._asked = threading.Event()
        self._bounds: dict[Partition, tuple[int, int]] = {}

    def stop(self) -> None:
        """Ask for a clean stop: the round is cancelled, and the flow handed over."""
        self._asked.set()

    def check(self) -> list[Range]:
        """Steps 1 and, provisionally, 3: the ranges as they would be now. Fixes the ends. Changes nothing.

        Raises ConfigError, Incident, Superseded (somebody holds the flow), Unreachable, NotAllowed, Retriable.
        """
        with ControlPlane(self._flow) as plane:
            setup = self._setup(plane)
            listed = setup.look()
            reader = Reader(self._flow, self._flow.target)
            try:
                opened = plane.opened_before()
                state = control.read(self._flow, reader) if opened else Control()
                claimed = sighting.claimed(self._flow, reader) if opened else {}
            finally:
                reader.close()
            infos = self._selected(setup.wanted(listed, state.first_listing() or partitions(listed)))
            seen = sighting.sight(self._flow, plane, infos, stable=False)
        if state.open is not None:
            self._may_replace(state.open, seen)
        plan = self._first_plan(seen, claimed, state)
        if plan.lost and not plan.ranges:
            raise next(iter(plan.lost.values()))
        self._bounds = plan.bounds
        return plan.ranges

    def run(self, engine: Engine) -> Summary:
        """Steps 2 to 5, to the ends that `check` has fixed. Call from the thread that may be asked to stop.

        Raises Superseded when somebody took the flow over, and what the engine or a cluster made impossible.
        """
        began_s = time.monotonic()
        with ControlPlane(self._flow) as plane:
            setup = self._setup(plane)
            infos, _ = setup.begin()
            rounds = Rounds(self._flow, setup, plane, self._observer, self._log, self._asked)
            try:
                rounds.open(Kind.BACKFILL, infos, lambda found: self._may_replace_now(found, plane, infos))
                before = {at: found for at, found in rounds.sight(stable=True).items() if at in self._bounds}
                plan = self._plan_again(before)
                rounds.run(engine, plan, before, self._request.rate_max)
                after = rounds.moved(before, stable=True)
            except Superseded:
                raise
            except BaseException:
                rounds.hand_over_anyway()
                raise
            rounds.hand_over()
        outcomes = {
            at: _outcome(plan, at, found, after[at], plan.lost.get(at) or rounds.incidents.get(at))
            for at, found in before.items()
        }
        outcomes |= {at: _vanished(at, bounds) for at, bounds in self._bounds.items() if at not in before}
        return Summary(rounds.generation.number, time.monotonic() - began_s, self._asked.is_set(), outcomes)

    def _setup(self, plane: ControlPlane) -> Setup:
        return Setup(self._flow, self._config, plane, self._owner, self._log, self._asked)

    def _selected(self, infos: Mapping[str, TopicInfo]) -> dict[str, TopicInfo]:
        unknown = sorted(self._request.topics - infos.keys())
        if unknown:
            raise ConfigError(f"flow {self._flow.name} doesn't copy, or the source doesn't have: {', '.join(unknown)}")
        chosen = self._request.topics or infos.keys()
        return {name: info for name, info in infos.items() if name in chosen}

    def _may_replace_now(self, found: Generation, plane: ControlPlane, infos: Mapping[str, TopicInfo]) -> None:
        self._may_replace(found, sighting.sight(self._flow, plane, infos, stable=False))

    def _may_replace(self, found: Generation, seen: Mapping[Partition, Sighted]) -> None:
        check_free(self._flow, found, seen, Kind.BACKFILL, take_over=self._request.take_over)

    def _first_plan(self, seen: Mapping[Partition, Sighted], claimed: Mapping[Partition, int], state: Control) -> Plan:
        request, reader = self._request, Reader(self._flow, self._flow.source)
        try:
            begins = sighting.starts(self._flow, seen, state, reader)
            first, last = (self._given(bound, seen, reader) for bound in (request.first, request.last))
        finally:
            reader.close()
        known = {
            at: Seen(found.log_start, found.end, found.position, begins.get(at), claimed.get(at))
            for at, found in seen.items()
        }
        plan = ranges.plan(known, request.offsets_max, first, last)
        if (
            self._flow.start.kind == "latest"
            and not first
            and begins
            and not any(cut.start < cut.end for cut in plan.ranges)
        ):
            raise ConfigError(f"flow {self._flow.name} starts at latest, so it has no history to copy: give --from")
        return plan

    def _given(self, bound: Bound, seen: Mapping[Partition, Sighted], reader: Reader) -> Mapping[Partition, int]:
        if bound.timestamp_ms is not None:
            return sighting.at_time(reader, seen, bound.timestamp_ms, seen)
        return bound.offsets or {}

    def _plan_again(self, seen: Mapping[Partition, Sighted]) -> Plan:
        """Under the generation, when nobody else moves the positions any more; to the ends that were fixed before."""
        known = {
            at: Seen(found.log_start, self._bounds[at][1], found.position, self._begin(at, found))
            for at, found in seen.items()
        }
        return ranges.plan(known, self._offsets_max(len(known)))

    def _begin(self, at: Partition, found: Sighted) -> int:
        """Where it begins without a position: as planned, but not before what retention has left meanwhile."""
        begin = self._bounds[at][0]
        given = self._request.first.timestamp_ms is not None or at in (self._request.first.offsets or {})
        return begin if given else max(begin, found.log_start)

    def _offsets_max(self, partitions: int) -> int:
        """A round must not take longer than positions may go without being committed again."""
        rate_max, interval_s = self._request.rate_max, self._flow.limits.recommit_interval_ms / 1000
        most = self._request.offsets_max
        return most if rate_max is None else max(1, min(most, int(rate_max * interval_s / max(1, partitions))))


def _outcome(plan: Plan, at: Partition, before: Sighted, after: Sighted, incident: Incident | None) -> Outcome:
    start, end = plan.bounds[at]
    position = start if after.position is None else after.position
    return Outcome(start, end, position, after.records - before.records, incident, after.position is not None)


def _vanished(at: Partition, bounds: tuple[int, int]) -> Outcome:
    why = "it was there when the backfill was checked, and not any more when its generation was open"
    gone = Incident("source_topic_gone", why, topic=at.topic, partition=at.partition, offset=bounds[0])
    return Outcome(*bounds, bounds[0], 0, gone, False)


def failed(summary: Summary) -> ReplicatorError | None:
    """The first incident of a summary."""
    return next((found.incident for found in summary.partitions.values() if found.incident is not None), None)
