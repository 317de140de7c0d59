"""Copies the history of a flow in bounded ranges, side by side, and hands over to the daemon.

    1 check   what can be known before anything is changed: topics, ends, positions, who holds them
    2 open    a generation of its own: fences whatever ran the flow before
    3 plan    ranges from the positions, read stable under that generation, to the ends that were read in 1
    4 copy    one range of each partition at a time, in the slots of an engine
    5 hand over: the daemon's next generation fences what may still run, so that a live worker goes on without gap or
              overlap

Where 1 finds nothing to copy, neither a generation nor an engine is needed: `finish` instead of `run`.

Invariant: the position on the target decides what is copied, and nothing that is kept here: a backfill that was killed
anywhere is simply begun again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

import structlog

from replicator.config import Config, Flow
from replicator.flow.listing import Listing, known_topics
from replicator.flow.occupied import check_frozen, check_topics
from replicator.flow.setup import Setup
from replicator.jobs import partition_state, ranges
from replicator.jobs.clients import JobClients
from replicator.jobs.engine import Engine, Observer
from replicator.jobs.job_generation import check_free
from replicator.jobs.partition_state import PartitionOffsets
from replicator.jobs.progress import progress_of
from replicator.jobs.range_job import RangeJob
from replicator.jobs.ranges import Given, Plan, Range
from replicator.kafka.topic_questions import TopicInfo
from replicator.lane.ports import ClusterQuestions
from replicator.lane.start_decision import unreadable
from replicator.model.errors import ConfigError, Incident, NotAllowed, ReplicatorError, TakenOver, TopicMissing
from replicator.model.names import process_name
from replicator.model.partition import Partition
from replicator.state.claims import Claims
from replicator.state.control_topic import Control
from replicator.state.generation import Generation, Kind

OFFSETS_MAX = 2_000_000


@dataclass(frozen=True, slots=True)
class Bound:
    """A begin or an end as it was requested: a time for all partitions, or offsets for some."""

    timestamp_ms: int | None = None
    offsets: Mapping[Partition, int] | None = None


@dataclass(frozen=True, slots=True)
class BackfillRequest:
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
class BackfilledPartition:
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
        """Whether everything that was asked for stands on the target, and no incident contradicts that."""
        return self.position >= self.end and self.incident is None


@dataclass(frozen=True, slots=True)
class BackfillSummary:
    """The whole job. `generation` is its own, None if there was nothing to copy and so none was opened; `stopped`: it
    was asked to stop before it was done."""

    generation: int | None
    seconds: float
    stopped: bool
    partitions: Mapping[Partition, BackfilledPartition]


class Backfill:
    """One backfill. `check` comes first; `stop` may be called from any thread, but no signal handler."""

    def __init__(
        self,
        flow: Flow,
        config: Config,
        request: BackfillRequest,
        observer: Observer,
        log: structlog.stdlib.BoundLogger,
    ) -> None:
        self._flow, self._config, self._request, self._observer = flow, config, request, observer
        self._log = log.bind(flow=flow.name)
        self._owner = process_name()
        self._asked = threading.Event()
        self._bounds: dict[Partition, tuple[int, int]] = {}
        self._found: Mapping[Partition, PartitionOffsets] = {}  # by the check
        self._lost: Mapping[Partition, Incident] = {}  # by the check, where there is nothing else to do
        self._left_open = False  # a job that died has the flow

    def stop(self) -> None:
        """Ask for a clean stop: tasks are cancelled, and the flow handed over."""
        self._asked.set()

    def check(self) -> list[Range]:
        """Do steps 1 and, provisionally, 3: return the ranges as they would be now, none if there is nothing to copy.
        Fixes the ends. Changes nothing.

        Raises ConfigError, Incident, TakenOver (somebody holds the flow), Unreachable, NotAllowed, Retriable.
        """
        with JobClients(self._flow) as clients:
            listing = self._setup(clients).list_only()
            control = clients.state.control_if_any() or Control()
            check_frozen(self._flow, control)
            claims = clients.state.claims_if_any()
            known = known_topics(control.first_listing(), claims or Claims({}, ())) or listing.partitions
            infos = self._selected(listing.wanted(self._flow, known))
            check_topics(self._flow, control.failed_over, infos)
            offsets = self._offsets(clients, infos)
            if control.open is not None:
                self._may_replace(control.open, offsets)
            plan = self._first_plan(offsets, partition_state.claimed_offsets(claims), control, clients.source)
        newest = control.generations.get(control.newest)
        self._left_open = newest is not None and newest.kind.bounded
        self._bounds, self._found = plan.bounds, offsets
        # Claims alone are no work: whoever runs the flow begins there by itself, unless the user said where.
        given = self._request.first.timestamp_ms is not None or bool(self._request.first.offsets)
        if all(cut.empty for cut in plan.ranges) and not (given and plan.ranges):
            for lost in plan.lost.values():
                if not self._left_open:
                    raise lost
            self._lost = plan.lost
            return []
        return plan.ranges

    def finish(self) -> BackfillSummary:
        """Finish instead of `run`, after a check that found nothing to copy. Opens no generation, unless a job that
        died has left its own open: then the flow is handed over. Raises as `check`."""
        began_s, number = time.monotonic(), None
        if self._left_open:
            with JobClients(self._flow) as clients:
                job, listing = self._job(clients)
                job.open(Kind.BACKFILL, listing, lambda found: self._may_replace_now(found, clients, listing))
                job.hand_over()
                number = job.generation.number
        outcomes = {
            at: BackfilledPartition(
                start, end, max(start, found.position or 0), 0, self._lost.get(at), begun=found.position is not None
            )
            for at, (start, end) in self._bounds.items()
            for found in [self._found[at]]
        }
        return BackfillSummary(number, time.monotonic() - began_s, self._asked.is_set(), outcomes)

    def run(self, engine: Engine) -> BackfillSummary:
        """Do steps 2 to 5, to the ends that `check` has fixed. Call from the thread that may be asked to stop.

        Raises TakenOver when somebody took the flow over, and what the engine or a cluster made impossible.
        """
        began_s = time.monotonic()
        with JobClients(self._flow) as clients:
            job, listing = self._job(clients)
            try:
                job.open(Kind.BACKFILL, listing, lambda found: self._may_replace_now(found, clients, listing))
                before, recreated = self._asked_for(job)
                plan = self._plan_again(before)
                job.run(engine, plan, before, self._request.rate_max)
                after = job.read_again(before, stable=True)
                self._observer.moved(progress_of(plan, before, after))
            except TakenOver:
                raise
            except BaseException:
                job.hand_over_after_error()
                raise
            job.hand_over()
        outcomes = {
            at: _outcome(plan, at, found, after[at], plan.lost.get(at) or job.incidents.get(at))
            for at, found in before.items()
        }
        outcomes |= {
            at: _not_begun(at, bounds, recreated.get(at) or job.incidents.get(at))
            for at, bounds in self._bounds.items()
            if at not in before
        }
        return BackfillSummary(job.generation.number, time.monotonic() - began_s, self._asked.is_set(), outcomes)

    def _job(self, clients: JobClients) -> tuple[RangeJob, Listing]:
        setup = self._setup(clients)
        listing = setup.begin()
        return RangeJob(self._flow, setup, clients, self._observer, self._log, self._asked), listing

    def _setup(self, clients: JobClients) -> Setup:
        return Setup(self._flow, self._config, clients.plane, self._owner, self._log, self._asked)

    def _selected(self, listing: Listing) -> dict[str, TopicInfo]:
        """Return the topics to copy. Raises what hinders one of them: it can be left out by naming the others."""
        unknown = sorted(self._request.topics - listing.topics.keys() - listing.hidden.keys())
        if unknown:
            raise ConfigError(f"flow {self._flow.name} doesn't copy, or the source doesn't have: {', '.join(unknown)}")
        chosen = self._request.topics or listing.topics.keys() | listing.hidden.keys()
        for name in sorted(chosen):
            if name in listing.denied:
                raise listing.denied[name]
            if name in listing.conflicts:
                raise listing.conflicts[name]
        return {name: info for name, info in listing.topics.items() if name in chosen}

    def _offsets(self, clients: JobClients, infos: Mapping[str, TopicInfo]) -> Mapping[Partition, PartitionOffsets]:
        targets = partition_state.existing_targets(self._flow, infos, clients.plane.list_target(infos))
        return partition_state.read_offsets(self._flow, clients.source, targets, stable=False).all()

    def _asked_for(self, job: RangeJob) -> tuple[dict[Partition, PartitionOffsets], dict[Partition, Incident]]:
        """Read what both clusters say, under the job's generation, of the partitions that are to be copied; those whose
        topic was created again since the check are apart, with why. Raises NotAllowed, Unreachable, Retriable."""
        for at in job.waiting & self._bounds.keys():
            raise NotAllowed(f"{at} can't be copied: {job.routes[at].waiting}", [at])
        read = job.read_offsets(stable=True)
        for at, error in read.errors.items():
            if at in self._bounds and not isinstance(error, TopicMissing):
                raise error
        asked = {at: found for at, found in read.found.items() if at in self._bounds}
        recreated = {at: found for at, it in asked.items() if (found := self._recreated(at, it)) is not None}
        return {at: found for at, found in asked.items() if at not in recreated}, recreated

    def _recreated(self, at: Partition, found: PartitionOffsets) -> Incident | None:
        """Say that a topic was created again since the check, whose offsets are those of the former one. Where there is
        a position, that names the topic that it was written for."""
        checked = self._found[at].topic_id
        if found.position is not None or checked == found.topic_id:
            return None
        ids = f"the source topic's id was {checked} when the backfill was checked, and is {found.topic_id} now"
        why = f"{ids}: nothing of it is copied by this backfill"
        return Incident("source_topic_recreated", why, topic=at.topic, partition=at.partition)

    def _may_replace_now(self, found: Generation, clients: JobClients, listing: Listing) -> None:
        check_topics(self._flow, found.failed_over, {at.topic for at in self._bounds})
        self._may_replace(found, self._offsets(clients, listing.topics))

    def _may_replace(self, found: Generation, offsets: Mapping[Partition, PartitionOffsets]) -> None:
        evidence = {at: read.evidence for at, read in offsets.items()}
        check_free(self._flow, found, evidence, Kind.BACKFILL, take_over=self._request.take_over)

    def _first_plan(
        self,
        offsets: Mapping[Partition, PartitionOffsets],
        claimed: Mapping[Partition, int],
        control: Control,
        source: ClusterQuestions,
    ) -> Plan:
        request = self._request
        begins = partition_state.first_offsets(self._flow, offsets, control, source)
        given = Given(self._given(request.first, offsets, source), self._given(request.last, offsets, source))
        plan = ranges.plan(offsets, request.offsets_max, given, begins=begins, claimed=claimed)
        if (
            self._flow.start.kind == "latest"
            and not given.first
            and begins
            and not any(cut.start < cut.end for cut in plan.ranges)
        ):
            raise ConfigError(f"flow {self._flow.name} starts at latest, so it has no history to copy: give --from")
        return plan

    def _given(
        self, bound: Bound, offsets: Mapping[Partition, PartitionOffsets], source: ClusterQuestions
    ) -> Mapping[Partition, int]:
        if bound.timestamp_ms is None:
            return bound.offsets or {}
        found = partition_state.offsets_at(source, offsets, bound.timestamp_ms, offsets)
        # a record that came since isn't part of this job
        return {at: min(offset, offsets[at].end) for at, offset in found.items()}

    def _plan_again(self, offsets: Mapping[Partition, PartitionOffsets]) -> Plan:
        """Plan again under the job's generation: no other process moves the positions now. The ends are those of
        `check`.
        """
        fixed = {at: replace(found, end=self._bounds[at][1]) for at, found in offsets.items()}
        begins = {at: self._begin(at, found) for at, found in offsets.items()}
        return ranges.plan(fixed, self._offsets_max(len(fixed)), begins=begins)

    def _begin(self, at: Partition, found: PartitionOffsets) -> int:
        """Say where it begins without a position: as planned, and if that was at earliest, at what retention has
        left.
        """
        begin = self._bounds[at][0]
        given = self._request.first.timestamp_ms is not None or at in (self._request.first.offsets or {})
        resolved = begin != self._found[at].log_start  # by `start`: what is gone behind it is lost
        return begin if given or resolved else max(begin, found.log_start)

    def _offsets_max(self, partitions: int) -> int:
        """Return how many offsets a range may have, which must not take longer than positions may go without being
        committed again.
        """
        rate_max, interval_s = self._request.rate_max, self._flow.limits.recommit_interval_ms / 1000
        most = self._request.offsets_max
        return most if rate_max is None else max(1, min(most, int(rate_max * interval_s / max(1, partitions))))


def _outcome(
    plan: Plan, at: Partition, before: PartitionOffsets, after: PartitionOffsets, incident: Incident | None
) -> BackfilledPartition:
    start, end = plan.bounds[at]
    position = start if after.position is None else after.position
    if incident is None and after.stray is not None:  # it was committed since the last task has ended
        incident = unreadable(at, after.stray)
    return BackfilledPartition(
        start, end, position, after.records - before.records, incident, after.position is not None
    )


def _not_begun(at: Partition, bounds: tuple[int, int], incident: Incident | None) -> BackfilledPartition:
    why = "it was there when the backfill was checked, and not any more when its generation was open"
    gone = Incident("source_topic_deleted", why, topic=at.topic, partition=at.partition, offset=bounds[0])
    return BackfilledPartition(*bounds, bounds[0], 0, incident or gone, False)


def failed(summary: BackfillSummary) -> ReplicatorError | None:
    """Return the first incident of a summary."""
    return next((found.incident for found in summary.partitions.values() if found.incident is not None), None)
