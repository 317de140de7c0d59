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

import structlog

from replicator import control, sighting
from replicator.admin import TopicInfo
from replicator.bounded import RangeDone, RangeTask
from replicator.config import Flow
from replicator.control import MayReplace
from replicator.engine import Cancelled, Engine, Observer, Standing
from replicator.errors import Incident, Retriable, Superseded, Unreachable
from replicator.generation import Kind
from replicator.ledger import Route
from replicator.planes.contract import Partition
from replicator.planes.records import look
from replicator.planes.records.reading import Reader
from replicator.ranges import Plan, Range
from replicator.setup import Setup
from replicator.sighting import Sighted
from replicator.tenure import Tenure
from replicator.topics import ControlPlane

LOOK_S = 1.0  # between two looks at the positions while a round runs: there is no event for them
ATTEMPTS_MAX = 3


class Rounds(Tenure):
    """A generation whose lanes are run in rounds."""

    def __init__(
        self,
        flow: Flow,
        setup: Setup,
        plane: ControlPlane,
        observer: Observer,
        log: structlog.stdlib.BoundLogger,
        asked: threading.Event,
    ) -> None:
        """`asked` is set when the job shall stop: the round under way is cancelled."""
        super().__init__(flow, setup, plane, log)
        self._observer, self._asked = observer, asked
        self._kept_s: dict[int, float] = {}  # by lane: when its positions were last committed, by the monotonic clock
        self._lanes_at: dict[int, Partition] = {}
        self._number = 0
        self.incidents: dict[Partition, Incident] = {}

    def open(self, kind: Kind, infos: Mapping[str, TopicInfo], may_replace: MayReplace) -> None:
        """See `Tenure.open`."""
        before = self._infos
        super().open(kind, infos, may_replace)
        self._number = 0
        self.incidents = {at: found for at, found in self.incidents.items() if _same(at.topic, before, infos)}
        cut = self.generation.cut
        self._lanes_at = {cut.lane_of(*at): Partition(*at) for at in cut.partitions()}
        self._note_kept()

    def check(self) -> None:
        """Whether the job's generation is still the open one. Raises Superseded; a round without tasks can't notice."""
        reader = Reader(self._flow, self._flow.target)
        try:
            found = control.read(self._flow, reader).open
        finally:
            reader.close()
        self.check_own(found)

    def _note_kept(self) -> None:
        """When each lane's positions were last committed, so that none gets too old. Without positions: no need."""
        now_s, now_ms, cut = time.monotonic(), time.time() * 1000, self.generation.cut
        self._kept_s = {}
        for at, found in self.sight(stable=True).items():
            if found.position is not None:
                age_s = (now_ms - found.evidence.committed_ms) / 1000 if found.evidence else now_s
                self._kept_s[cut.lane_of(*at)] = now_s - max(0.0, age_s)
        reader = Reader(self._flow, self._flow.target)
        try:
            claimed = sighting.claimed(self._flow, reader)
        finally:
            reader.close()
        for at in claimed.keys() - self.routes.keys():  # of topics that have gone, or that the flow has dropped
            self._kept_s[cut.lane_of(*at)] = float("-inf")

    def run(self, engine: Engine, plan: Plan, before: Mapping[Partition, Sighted], rate_max: float | None) -> None:
        """Run all ranges of a plan, or until asked to stop. `before`: what was seen when it was made.

        A partition that an incident stops is left out from there on, see `incidents`. Raises Superseded when another
        generation was opened, Unreachable when the engine failed, and whatever stopped a range again and again.
        """
        standings = _standings(plan, before, before)
        self._observer.planned(self.generation.number, plan.ranges, standings)
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
        tasks = [self._task(cut.at, self.routes[cut.at], cut.start, cut.end, share) for cut in together]
        busy = {task.lane for task in tasks}
        due_s = time.monotonic() - self._flow.limits.recommit_interval_ms / 1000
        due = [lane for lane, kept_s in sorted(self._kept_s.items()) if lane not in busy and kept_s <= due_s]
        return tasks + self._keeps([self._lanes_at[lane] for lane in due if lane in self._lanes_at])

    def _keeps(self, due: Sequence[Partition]) -> list[RangeTask]:
        """Tasks that commit the positions of lanes again. A lane's own partition takes part only if it has one."""
        targets = {at: self.routes[at].target for at in due if at in self.routes}
        stored = look.positions(self._flow, targets.values(), stable=True)
        tasks: list[RangeTask] = []
        for at in due:
            found = stored[targets[at]] if at in targets else None
            offset = found.offset if found else 0
            tasks.append(self._task(at, self.routes[at] if found else None, offset, offset, None))
        return tasks

    def _task(self, at: Partition, route: Route | None, start: int, end: int, rate_max: float | None) -> RangeTask:
        generation = self.generation
        return RangeTask(
            flow=self._flow,
            generation=generation.number,
            cut=generation.cut,
            source_cluster=self._setup.source_cluster,
            at=at,
            route=route,
            start=start,
            end=end,
            rate_max=rate_max,
        )

    def _watched(
        self, engine: Engine, tasks: Sequence[RangeTask], plan: Plan, before: Mapping[Partition, Sighted]
    ) -> list[RangeDone] | None:
        """Run one round in a thread of its own, and look at the positions meanwhile; None when it was cancelled."""
        with ThreadPoolExecutor(1, thread_name_prefix="round") as pool:
            running: Future[list[RangeDone]] = pool.submit(engine.run, tasks)
            over = threading.Event()
            running.add_done_callback(lambda _: over.set())
            cancelled = False
            while not over.wait(LOOK_S):
                if self._asked.is_set() and not cancelled:
                    cancelled = True
                    engine.cancel()
                    self._log.info("stopping")
                self._look(plan, before)
        try:
            return running.result()
        except Cancelled:
            return None

    def moved(self, before: Mapping[Partition, Sighted], *, stable: bool) -> dict[Partition, Sighted]:
        """The same partitions with the positions that stand there now, whatever has become of their topics."""
        targets = {at: self.routes[at].target for at in before if at in self.routes}
        stored = look.positions(self._flow, targets.values(), stable=stable)
        return {
            at: sighting.moved(found, stored[targets[at]]) if at in targets else found for at, found in before.items()
        }

    def _look(self, plan: Plan, before: Mapping[Partition, Sighted]) -> None:
        try:
            now = self.moved(before, stable=False)
        except (Unreachable, Retriable) as error:
            self._observer.unseen(str(error))
            return
        self._observer.moved(_standings(plan, before, now))

    def _judge(self, done: RangeDone, left: dict[Partition, deque[Range]], failures: dict[Partition, int]) -> None:
        """What follows a task's answer: its partition's next range, the same one again, none of it, or the end."""
        error, at = done.error, done.at
        if isinstance(error, Superseded):
            raise error
        if isinstance(error, Incident):
            self.stop(at, error)
            self._kept_s[self.generation.cut.lane_of(*at)] = time.monotonic()  # its position is committed all the same
            left.pop(at, None)
            return
        if error is not None:
            failures[at] = failures.get(at, 0) + 1
            self._log.warning("range_failed", range=str(at), kind=type(error).__name__, reason=str(error))
            if failures[at] >= ATTEMPTS_MAX:
                raise error
            return
        self._kept_s[self.generation.cut.lane_of(*at)] = time.monotonic()
        failures.pop(at, None)
        ahead = left.get(at)
        while ahead and done.position >= ahead[0].end:
            ahead.popleft()
        if not ahead:
            left.pop(at, None)

    def stop(self, at: Partition, incident: Incident) -> None:
        """Leave a partition out from now on; the incident is told, and kept."""
        self._log.error(
            "incident",
            name=incident.name,
            detail=incident.detail,
            topic=at.topic,
            partition=at.partition,
            offset=incident.offset,
            advice=incident.advice,
        )
        self.incidents[at] = incident


def _same(topic: str, before: Mapping[str, TopicInfo], now: Mapping[str, TopicInfo]) -> bool:
    return topic in before and topic in now and before[topic].topic_id == now[topic].topic_id


def _together(left: Mapping[Partition, deque[Range]]) -> list[Range]:
    """The next range of each partition; claims, which are empty, come before everything else."""
    heads = [cuts[0] for _, cuts in sorted(left.items())]
    return [cut for cut in heads if cut.start == cut.end] or heads


def _standings(
    plan: Plan, before: Mapping[Partition, Sighted], now: Mapping[Partition, Sighted]
) -> dict[Partition, Standing]:
    found: dict[Partition, Standing] = {}
    for at, (start, end) in plan.bounds.items():
        if at in now and at in before:
            position = now[at].position
            records = now[at].records - before[at].records
            found[at] = Standing(start, end, start if position is None else position, records)
    return found
