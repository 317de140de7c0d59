"""A generation that is run in rounds of ranges: opened, run on an engine, watched, handed over to the daemon.

Spark is one engine (`replicator.spark.engine`); whatever runs `copy_range` in some process would do.

Invariants
- One task of a partition at a time and round: its lane's transactional id is shared by all attempts.
- No position of the flow expires meanwhile (invariant 7): each round has, besides its ranges, a task for every lane
  whose positions were last committed a recommit interval ago, for partitions that are done or not asked for, too.
- Which task ends how decides nothing but what is tried next; what is copied is read from the target.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

import structlog

from replicator.config import Flow
from replicator.flow.listing import Listing
from replicator.flow.setup import Setup
from replicator.incidents import tell_incident
from replicator.jobs import partition_state
from replicator.jobs.clients import JobClients
from replicator.jobs.engine import Cancelled, Engine, Observer, PartitionProgress
from replicator.jobs.job_generation import JobGeneration
from replicator.jobs.partition_state import PartitionOffsets
from replicator.jobs.range_copy import RangeDone, RangeTask
from replicator.jobs.ranges import Plan, Range
from replicator.kafka import offset_reader
from replicator.model.errors import Incident, NotAllowed, ReplicatorError, Retriable, TakenOver, Unreachable
from replicator.model.partition import Partition
from replicator.state.control import MayReplace
from replicator.state.generation import Kind

POSITIONS_READ_S = 1.0  # between two reads of the positions while a round runs: there is no event for them
ATTEMPTS_MAX = 3
Offsets = Mapping[Partition, PartitionOffsets]


class Rounds(JobGeneration):
    """A generation whose lanes are run in rounds."""

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
        """`asked` is set when the job shall stop: the round under way is cancelled. `waits`: a partition that fails
        waits until the next discovery, see `waiting`, and doesn't end the job."""
        super().__init__(flow, setup, clients, log)
        self._observer, self._asked, self._waits = observer, asked, waits
        self._kept_s: dict[int, float] = {}  # by lane: when its positions were last committed, by the monotonic clock
        self._lanes_at: dict[int, Partition] = {}
        self._number = 0
        self.incidents: dict[Partition, Incident] = {}
        self.waiting: set[Partition] = set()
        self._reported: dict[
            Partition, Incident | str
        ] = {}  # what was logged last of a partition that stopped or waits

    def open(self, kind: Kind, listing: Listing, may_replace: MayReplace) -> None:
        """Open a generation as `JobGeneration` does. What stopped partitions of topics that are the same still does."""
        before = self.listing
        super().open(kind, listing, may_replace)
        self._number = 0
        self.incidents = {at: found for at, found in self.incidents.items() if _same(at.topic, before, listing)}
        assignment = self.generation.assignment
        self._lanes_at = {assignment.lane_of(*at): Partition(*at) for at in assignment.partitions()}
        self._note_routes()
        self._note_kept()

    def route_again(self, listing: Listing) -> None:
        """As `JobGeneration`; partitions that waited are tried again, and those whose topics were stopped."""
        stopped = [at for at, route in self.routes.items() if route.stopped is not None]
        super().route_again(listing)
        for at in stopped:
            self.incidents.pop(at, None)
        self._note_routes()

    def _note_routes(self) -> None:
        """What topics show before any task runs."""
        self.waiting = set()
        for at, route in self.routes.items():
            if route.stopped is not None:
                self.stop(at, route.stopped.at(at.partition, -1))
            elif route.waiting:
                self.wait(at, route.waiting)

    def _note_kept(self) -> None:
        """When each lane's positions were last committed, so that none gets too old. Without positions: no need."""
        now_s, now_ms, assignment = time.monotonic(), time.time() * 1000, self.generation.assignment
        self._kept_s = {}
        for at, read in self.read_offsets(stable=True).found.items():
            if read.position is not None:
                age_s = (now_ms - read.evidence.committed_ms) / 1000 if read.evidence else now_s
                self._kept_s[assignment.lane_of(*at)] = now_s - max(0.0, age_s)
        claimed = partition_state.claimed_offsets(self._clients.state.claims())
        for at in claimed.keys() - self.readable().keys():  # of topics that have gone, were dropped, stopped or wait
            self._kept_s[assignment.lane_of(*at)] = float("-inf")

    def run(self, engine: Engine, plan: Plan, before: Offsets, rate_max: float | None) -> None:
        """Run all ranges of a plan, or until asked to stop. `before`: the offsets of which it was made.

        A partition that an incident stops is left out from there on, see `incidents`. Raises TakenOver when another
        generation was opened, Unreachable when the engine failed, and whatever stopped a range again and again.
        """
        progress = _progress_of(plan, before, before)
        self._observer.planned(self.generation.number, plan.ranges, progress)
        left: dict[Partition, deque[Range]] = {}
        for cut in plan.ranges:
            left.setdefault(cut.at, deque()).append(cut)
        failures: dict[Partition, int] = {}
        first = True
        while (left or first) and not self._asked.is_set():
            together = _together(left)
            tasks = self._tasks(together, rate_max, engine.slots)
            first = False
            if not tasks:
                break
            self._observer.round_began(self._number, len(tasks))
            answers = self._watched(engine, tasks, plan, before)
            if answers is None:
                return
            for done in answers:
                self._judge(done, left, failures)
            self._observer.round_ended(self._number, together, answers)
            self._number += 1

    def _tasks(self, together: Sequence[Range], rate_max: float | None, slots: int) -> list[RangeTask]:
        share = None if rate_max is None else rate_max / max(1, min(len(together), slots))
        lane_of = self.generation.assignment.lane_of
        tasks = [RangeTask(self.plan(lane_of(*cut.at)), cut.at, cut.start, cut.end, share) for cut in together]
        busy = {task.plan.lane for task in tasks}
        due_s = time.monotonic() - self._flow.limits.recommit_interval_ms / 1000
        due = [lane for lane, kept_s in sorted(self._kept_s.items()) if lane not in busy and kept_s <= due_s]
        return tasks + self._keeping([(lane, self._lanes_at[lane]) for lane in due if lane in self._lanes_at])

    def _keeping(self, due: Sequence[tuple[int, Partition]]) -> list[RangeTask]:
        """Tasks that commit the positions of lanes again. A lane's own partition takes part only if it has one: it must
        not be claimed unless it is to be copied."""
        targets = {at: self.routes[at].target for _, at in due if at in self.routes}
        stored = offset_reader.positions(self._flow, targets.values(), stable=True)
        tasks: list[RangeTask] = []
        for lane, at in due:
            plan, found = self.plan(lane), stored[targets[at]] if at in targets else None
            if found is None:
                plan = replace(plan, routes=tuple(route for route in plan.routes if route.source != at))
            offset = found.offset if found else 0
            tasks.append(RangeTask(plan, at, offset, offset, copies=False))
        return tasks

    def _watched(
        self, engine: Engine, tasks: Sequence[RangeTask], plan: Plan, before: Offsets
    ) -> list[RangeDone] | None:
        """Run one round in a thread of its own, and read the positions meanwhile; None when it was cancelled."""
        with ThreadPoolExecutor(1, thread_name_prefix="round") as pool:
            running: Future[list[RangeDone]] = pool.submit(engine.run, tasks)
            over = threading.Event()
            running.add_done_callback(lambda _: over.set())
            cancelled = False
            while not over.wait(POSITIONS_READ_S):
                if self._asked.is_set() and not cancelled:
                    cancelled = True
                    engine.cancel()
                    self._log.info("stopping")
                self._tell_progress(plan, before)
        try:
            return running.result()
        except Cancelled:
            return None

    def read_again(self, before: Offsets, *, stable: bool) -> dict[Partition, PartitionOffsets]:
        """The same partitions with the positions that stand there now, whatever has become of their topics."""
        targets = {at: self.routes[at].target for at in before if at in self.routes}
        stored = offset_reader.positions(self._flow, targets.values(), stable=stable)
        return {at: read.at(stored[targets[at]] if at in targets else None) for at, read in before.items()}

    def _tell_progress(self, plan: Plan, before: Offsets) -> None:
        try:
            now = self.read_again(before, stable=False)
        except (Unreachable, Retriable) as error:
            self._observer.positions_unknown(str(error))
            return
        self._observer.moved(_progress_of(plan, before, now))

    def _judge(self, done: RangeDone, left: dict[Partition, deque[Range]], failures: dict[Partition, int]) -> None:
        """What follows a task's answer: its partition's next range, the same one again, none of it, or the end."""
        error, at = done.error, done.at
        if isinstance(error, TakenOver):
            raise error
        if error is None or isinstance(error, Incident):  # an incident leaves the positions committed all the same
            self._kept_s[self.generation.assignment.lane_of(*at)] = time.monotonic()
        if isinstance(error, Incident):
            self.stop(at, error)
            left.pop(at, None)
        elif error is not None:
            self._failed(at, error, left, failures)
        else:
            failures.pop(at, None)
            self._reported.pop(at, None)
            ahead = left.get(at)
            while ahead and done.position >= ahead[0].end:
                ahead.popleft()
            if not ahead:
                left.pop(at, None)

    def _failed(
        self, at: Partition, error: ReplicatorError, left: dict[Partition, deque[Range]], failures: dict[Partition, int]
    ) -> None:
        self._log.warning("range_failed", range=str(at), kind=type(error).__name__, reason=str(error))
        if self._waits and isinstance(error, NotAllowed | Retriable):
            self.wait(at, str(error))
            left.pop(at, None)
            return
        failures[at] = failures.get(at, 0) + 1
        if failures[at] >= ATTEMPTS_MAX:
            raise error

    def stop(self, at: Partition, incident: Incident) -> None:
        """Leave a partition out from now on; the incident is logged, and kept."""
        if self._reported.get(at) != incident:
            tell_incident(self._log, incident)
        self.incidents[at] = self._reported[at] = incident

    def wait(self, at: Partition, why: str) -> None:
        """Leave a partition out until the topics are listed again."""
        if self._reported.get(at) != why:
            self._log.warning("waiting", topic=at.topic, partition=at.partition, detail=why)
        self.waiting.add(at)
        self._reported[at] = why


def _same(topic: str, before: Listing, now: Listing) -> bool:
    was, is_ = before.topics.get(topic), now.topics.get(topic)
    return was is not None and is_ is not None and was.topic_id == is_.topic_id


def _together(left: Mapping[Partition, deque[Range]]) -> list[Range]:
    """The next range of each partition; claims, which are empty, come before everything else."""
    heads = [cuts[0] for _, cuts in sorted(left.items())]
    return [cut for cut in heads if cut.start == cut.end] or heads


def _progress_of(plan: Plan, before: Offsets, now: Offsets) -> dict[Partition, PartitionProgress]:
    found: dict[Partition, PartitionProgress] = {}
    for at, (start, end) in plan.bounds.items():
        if at in now and at in before:
            position = now[at].position
            records = now[at].records - before[at].records
            found[at] = PartitionProgress(start, end, start if position is None else position, records)
    return found
