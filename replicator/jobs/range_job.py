"""A generation whose ranges run on an engine: opened, kept busy slot by slot, watched, handed over to the daemon.

Used by `jobs.backfill` and, again and again, by `jobs.continuous`. Spark is one engine (`replicator.spark.engine`);
whatever runs `copy_range` in some process would do.

Invariants
- One task of a partition at a time: its lane's transactional id is shared by all attempts. A partition's next range
  begins as soon as its last one has ended and a slot is free, and waits for nothing else (`jobs.schedule`).
- No position of the flow expires meanwhile (invariant 7): before any range a slot gets the lanes whose positions were
  last committed a recommit interval ago: a range of their partition, or, where nothing of it is left or was asked for,
  a task that does nothing else.
- Which task ends how decides nothing but what is tried next; what is copied is read from the target.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

import structlog

from replicator.config import Flow
from replicator.flow.listing import Listing
from replicator.flow.setup import Setup
from replicator.incidents import tell_incident
from replicator.jobs import partition_state
from replicator.jobs.clients import JobClients
from replicator.jobs.engine import Cancelled, Engine, Observer
from replicator.jobs.job_generation import JobGeneration
from replicator.jobs.partition_state import PartitionOffsets
from replicator.jobs.progress import POSITIONS_READ_S, OffsetsByPartition, ProgressReader, progress_of
from replicator.jobs.range_copy import RangeTask
from replicator.jobs.ranges import Plan
from replicator.jobs.running import Ended, Running
from replicator.jobs.schedule import Schedule
from replicator.kafka import offset_reader
from replicator.model.errors import Incident, NotAllowed, ReplicatorError, Retriable, TakenOver
from replicator.model.partition import Partition
from replicator.state.control import MayReplace
from replicator.state.generation import Kind

ATTEMPTS_MAX = 3


@dataclass(slots=True)
class _Run:
    """One call of `RangeJob.run`. `failures` in a row; `not_kept`: lanes whose positions could not be kept in it."""

    schedule: Schedule
    running: Running
    failures: dict[Partition, int] = field(default_factory=dict)
    not_kept: set[int] = field(default_factory=set)


class RangeJob(JobGeneration):
    """A generation whose lanes copy ranges. Use from one thread."""

    def __init__(
        self,
        flow: Flow,
        setup: Setup,
        clients: JobClients,
        observer: Observer,
        log: structlog.stdlib.BoundLogger,
        asked: threading.Event,
        *,
        waits: bool = False,
    ) -> None:
        """`asked` is set when the job shall stop: the tasks that run are cancelled. `waits`: a partition that fails
        waits until the next discovery, see `waiting`, and doesn't end the job; tasks write incidents down, and act on
        what was decided about them."""
        super().__init__(flow, setup, clients, log)
        self._observer, self._asked, self._waits = observer, asked, waits
        self._kept_s: dict[int, float] = {}  # by lane: when its positions were last committed, by the monotonic clock
        self._lanes_at: dict[int, Partition] = {}
        self.incidents: dict[Partition, Incident] = {}
        self.looked: set[Partition] = set()
        """Those of `incidents` whose lanes have found nothing since, when their positions were kept alive."""
        self.waiting: set[Partition] = set()
        self._reported: dict[
            Partition, Incident | str
        ] = {}  # what was logged last of a partition that stopped or waits

    def open(self, kind: Kind, listing: Listing, may_replace: MayReplace) -> None:
        """Open a generation as `JobGeneration` does. What stopped partitions of topics that are the same still does."""
        before = self.listing
        super().open(kind, listing, may_replace)
        self.try_again([at for at in self.incidents if not _same(at.topic, before, listing)])
        assignment = self.generation.assignment
        self._lanes_at = {assignment.lane_of(*at): Partition(*at) for at in assignment.partitions()}
        self._note_routes()
        self._note_kept()

    def route_again(self, listing: Listing) -> None:
        """Route again as `JobGeneration` does; partitions that waited are tried again, and those whose topics were
        stopped.
        """
        stopped = [at for at, route in self.routes.items() if route.stopped is not None]
        super().route_again(listing)
        self.try_again(stopped)
        self._note_routes()

    def _note_routes(self) -> None:
        """Note what topics show before any task runs."""
        self.waiting = set()
        for at, route in self.routes.items():
            if route.stopped is not None:
                self.stop(at, route.stopped.at(at.partition, -1))
            elif route.waiting:
                self.wait(at, route.waiting)

    def _note_kept(self) -> None:
        """Note when each lane's positions were last committed, so that none gets too old. Without positions: no
        need.
        """
        now_s, now_ms, assignment = time.monotonic(), time.time() * 1000, self.generation.assignment
        self._kept_s = {}
        for at, read in self.read_offsets(stable=True).found.items():
            if read.position is not None:
                age_s = (now_ms - read.evidence.committed_ms) / 1000 if read.evidence else now_s
                self._kept_s[assignment.lane_of(*at)] = now_s - max(0.0, age_s)
        claimed = partition_state.claimed_offsets(self._clients.state.claims())
        for at in claimed.keys() - self.readable().keys():  # of topics that have gone, were dropped, stopped or wait
            self._kept_s[assignment.lane_of(*at)] = float("-inf")

    def run(self, engine: Engine, plan: Plan, before: OffsetsByPartition, rate_max: float | None) -> None:
        """Copy all ranges of a plan, or until asked to stop. `before`: the offsets of which it was made.

        A partition that an incident stops is left out from there on, see `incidents`. Raises TakenOver when another
        generation was opened, Unreachable when the engine failed, and whatever stopped a range again and again.
        """
        self._observer.planned(self.generation.number, plan.ranges, progress_of(plan, before, before))
        begun = {at for at, read in before.items() if read.position is not None}
        run = _Run(Schedule(plan.ranges, begun), Running(engine, rate_max))
        try:
            with ProgressReader(lambda: progress_of(plan, before, self.read_again(before, stable=False))) as reader:
                self._run(run, reader)
        except BaseException:
            run.running.give_up()
            raise
        if run.running:
            self._log.info("stopping")
            engine.cancel()
            for ended in run.running.stop():
                self._tell(ended)

    def _run(self, run: _Run, reader: ProgressReader) -> None:
        """Run tasks until nothing is left to do, or somebody asks for a stop."""
        while not self._asked.is_set():
            self._fill(run)
            if not run.running:
                return
            try:
                for ended in run.running.wait(POSITIONS_READ_S):
                    self._tell(ended)
                    self._handle_answer(run, ended)
            except Cancelled:  # somebody cancelled the engine itself
                return
            reader.tell(self._observer)

    def _fill(self, run: _Run) -> None:
        """Give every free slot a task, if there is one for it."""
        running, schedule = run.running, run.schedule
        free = running.free
        if not free:
            return
        for task in self._keeping(self._due(run)[:free]):
            schedule.hold(task.at)
            running.submit(task)
            free -= 1
        lane_of = self.generation.assignment.lane_of
        rate = running.share(min(free, schedule.waiting))
        while free and rate != 0.0 and (cut := schedule.next(joined=rate is None)) is not None:
            plan = self.plan(lane_of(*cut.at))
            running.submit(RangeTask(plan, cut.at, cut.start, cut.end, decides=self._waits), cut, rate)
            free -= 1

    def _due(self, run: _Run) -> list[tuple[int, Partition]]:
        """Return the lanes whose positions must be committed again, but for those that are at it, or will be by a
        range.
        """
        due_s = time.monotonic() - self._flow.limits.recommit_interval_ms / 1000
        busy = run.running.lanes | run.not_kept
        due = [
            (lane, self._lanes_at[lane])
            for lane, kept_s in sorted(self._kept_s.items())
            if kept_s <= due_s and lane not in busy and lane in self._lanes_at
        ]
        for _, at in due:
            run.schedule.urge(at)
        return [(lane, at) for lane, at in due if not run.schedule.has(at)]

    def _keeping(self, due: Sequence[tuple[int, Partition]]) -> list[RangeTask]:
        """Make tasks that commit the positions of lanes again. A lane's own partition takes part only if it has one: it
        must not be claimed unless it is to be copied."""
        targets = {at: self.routes[at].target for _, at in due if at in self.routes}
        stored = offset_reader.positions(self._flow, targets.values(), stable=True)
        tasks: list[RangeTask] = []
        for lane, at in due:
            plan, found = self.plan(lane), stored[targets[at]] if at in targets else None
            if found is None:
                plan = replace(plan, routes=tuple(route for route in plan.routes if route.source != at))
            offset = found.offset if found else 0
            tasks.append(RangeTask(plan, at, offset, offset, copies=False, decides=self._waits))
        return tasks

    def read_again(self, before: OffsetsByPartition, *, stable: bool) -> dict[Partition, PartitionOffsets]:
        """Return the same partitions with the positions that stand there now, whatever has become of their topics."""
        targets = {at: self.routes[at].target for at in before if at in self.routes}
        stored = offset_reader.positions(self._flow, targets.values(), stable=stable)
        return {at: read.at(stored[targets[at]] if at in targets else None) for at, read in before.items()}

    def _tell(self, ended: Ended) -> None:
        if ended.cut is not None:
            self._observer.answered(ended.cut, ended.done)

    def _handle_answer(self, run: _Run, ended: Ended) -> None:
        """Do what follows a task's answer: its partition's next range, the same one again, none of it, or the end."""
        done, schedule = ended.done, run.schedule
        error, at = done.error, done.at
        if isinstance(error, TakenOver):
            raise error
        if error is None or isinstance(error, Incident):  # an incident leaves the positions committed all the same
            self._kept_s[self.generation.assignment.lane_of(*at)] = time.monotonic()
        if isinstance(error, Incident):
            self.stop(at, error)
            schedule.drop(at)
        elif error is not None:
            self._failed(run, at, error)
        else:
            run.failures.pop(at, None)
            if at not in self.incidents:
                self._reported.pop(at, None)
            elif done.position >= 0:  # else its lane hasn't looked at it
                self.looked.add(at)
            schedule.ended(at, done.position)

    def _failed(self, run: _Run, at: Partition, error: ReplicatorError) -> None:
        self._log.warning("range_failed", range=str(at), kind=type(error).__name__, reason=str(error))
        if self._waits and isinstance(error, NotAllowed | Retriable):
            self.wait(at, str(error))
            run.not_kept.add(self.generation.assignment.lane_of(*at))
            run.schedule.drop(at)
            return
        run.failures[at] = run.failures.get(at, 0) + 1
        if run.failures[at] >= ATTEMPTS_MAX:
            raise error
        run.schedule.release(at)

    def stop(self, at: Partition, incident: Incident) -> None:
        """Leave a partition out from now on; the incident is logged, and kept."""
        if self._reported.get(at) != incident:
            tell_incident(self._log, incident)
        self.looked.discard(at)
        self.incidents[at] = self._reported[at] = incident

    def try_again(self, partitions: Collection[Partition]) -> None:
        """Take partitions in again that incidents have stopped."""
        for at in partitions:
            self.incidents.pop(at, None)
            self.looked.discard(at)

    def wait(self, at: Partition, why: str) -> None:
        """Leave a partition out until the topics are listed again."""
        if self._reported.get(at) != why:
            self._log.warning("waiting", topic=at.topic, partition=at.partition, detail=why)
        self.waiting.add(at)
        self._reported[at] = why


def _same(topic: str, before: Listing, now: Listing) -> bool:
    was, is_ = before.topics.get(topic), now.topics.get(topic)
    return was is not None and is_ is not None and was.topic_id == is_.topic_id
