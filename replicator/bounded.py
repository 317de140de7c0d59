"""Copies one range of one source partition: a lane with an end, run to it in whatever process this is called.

Attempts at a range may run at the same time (a retry, speculation, an executor that was thought lost): they share a
transactional id, so the later one fences the earlier. Invariants
- What is done stands in the target's position and nowhere else: an attempt finds out how far the range is.
- An attempt that was fenced off by another one doesn't take back at once: it waits until the position reaches the
  range's end. Without progress for one transaction timeout it reads the generation again and starts over.
"""

from __future__ import annotations

import gc
import queue
import threading
import time
from contextlib import closing
from dataclasses import dataclass

import structlog

from replicator.config import Commit, Delivery, Flow
from replicator.errors import Incident, ReplicatorError, Retriable, Superseded, Unreachable
from replicator.failpoints import Reach, nothing
from replicator.generation import Cut
from replicator.ledger import Route
from replicator.names import process_name
from replicator.opening import LanePlan, Span, check_generation
from replicator.planes.contract import Partition
from replicator.planes.records import look
from replicator.planes.records.reading import Reader
from replicator.runner import GC_YOUNG_OBJECTS_MAX, Ended, Event, LaneRunner, Parked

CHECK_S = 5.0  # without a commit, between two looks at the topics
LOOK_S = 0.5  # between two looks at a position that somebody else moves: there is no event for it


# A commit drains the pipeline, and nobody waits for history: measured, a fifth faster than the daemon's defaults.
COMMIT = Commit(interval_ms=5_000, records_max=400_000, bytes_max=128 * 2**20)


@dataclass(frozen=True, slots=True)
class RangeTask:
    """Source offsets [start, end) of one partition, to be copied under one lane of a generation. Can be pickled.

    `start` is where the partition begins if it has no position yet; otherwise the position decides. A task always
    commits the positions of its lane again, so that they don't expire; without a `route` it does nothing else.
    `rate_max`: records a second, None: as fast as it goes.
    """

    flow: Flow
    generation: int
    cut: Cut
    source_cluster: str
    at: Partition
    route: Route | None
    start: int
    end: int
    rate_max: float | None = None

    @property
    def lane(self) -> int:
        """The lane of the range's partition."""
        return self.cut.lane_of(*self.at)

    def plan(self, owner: str) -> LanePlan:
        """What the lane is to do, for one attempt."""
        flow = self.flow.model_copy(update={"commit": _bulk(self.flow)})
        span = Span({self.at: self.start}, {self.at: self.end}, self.rate_max) if self.route else Span({}, {})
        return LanePlan(
            flow=flow,
            generation=self.generation,
            lane=self.lane,
            owner=owner,
            source_cluster=self.source_cluster,
            routes=(self.route,) if self.route else (),
            map_partitions=self.flow.lanes,
            cut=self.cut,
            span=span,
        )


@dataclass(frozen=True, slots=True)
class RangeDone:
    """How an attempt at a range ended. Can be pickled.

    `position` is the source offset that was reached (-1: none is known). `records` and `bytes` are those that this
    attempt committed: after a retry the others were committed by its predecessors. `error` stopped it short of the end:
    an incident of the partition, or what its class says.
    """

    at: Partition
    position: int
    records: int
    bytes: int
    seconds: float
    owner: str
    error: ReplicatorError | None = None


class _Attempt:
    """Runs lanes for one task until its range is done or an error must go to whoever planned it."""

    def __init__(self, task: RangeTask, reach: Reach) -> None:
        self._task, self._reach = task, reach
        self._owner = process_name()
        self._log = structlog.get_logger().bind(flow=task.flow.name, range=f"{task.at}:{task.end}")
        self._records = self._bytes = 0
        self._position = -1
        self._enough = False  # the attempt gives back what is left of its range
        self._began_s = time.monotonic()

    def run(self) -> RangeDone:
        """The attempt's end. Bugs are raised, errors of the clusters are in the answer."""
        error: ReplicatorError | None = None
        try:
            while not (self._copied() or self._enough or self._watch_other()):
                self._log.warning("range_begun_again", position=self._position)
        except ReplicatorError as stopped:
            error = stopped
        seconds = time.monotonic() - self._began_s
        return RangeDone(self._task.at, self._position, self._records, self._bytes, seconds, self._owner, error)

    def _copied(self) -> bool:
        """Run the lane to the range's end; False when another attempt has taken over."""
        events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        runner = LaneRunner(self._task.plan(self._owner), events, self._reach, self._log, self._committed)
        runner.start()
        try:
            ended = self._ended(events, runner)
        finally:
            runner.stop()
            runner.join(self._task.flow.limits.stop_timeout_ms / 1000)
        entry = runner.ledger.entries.get(self._task.at) if runner.ledger else None
        if entry is not None and entry.position is not None:
            self._position = max(self._position, entry.position.offset)
        if isinstance(ended.error, Superseded):
            self._log.info("range_taken_over", reason=str(ended.error))
            return False
        if ended.error is not None:
            raise ended.error
        if self._task.route is None:
            return True
        if entry is not None and entry.incident is not None:
            raise entry.incident
        return self._position >= self._task.end

    def _ended(self, events: queue.SimpleQueue[Event], runner: LaneRunner) -> Ended:
        stand, committed, moved_s = True, -1, time.monotonic()
        while True:
            if time.monotonic() - self._began_s > self._task.flow.limits.recommit_interval_ms / 1000:
                self._enough = True  # other positions wait for this round's end to be committed again
                runner.stop()
            try:
                event = events.get(timeout=CHECK_S)
            except queue.Empty:
                if committed != self._records:
                    committed, moved_s = self._records, time.monotonic()
                    continue
                stand = self._check_topics(stand)
                if time.monotonic() - moved_s > self._patience_s():
                    raise Retriable(f"{self._task.at}: no commit for {self._patience_s():.0f} s") from None
                continue
            if isinstance(event, Parked):
                runner.stop()
            elif isinstance(event, Ended):
                return event

    def _committed(self, records: int, size: int) -> None:
        self._records += records
        self._bytes += size

    def _patience_s(self) -> float:
        """How long nothing may be committed: whatever should end by itself has ended by then, and been tried again."""
        limits, rate = self._task.flow.limits, self._task.rate_max
        slow_s = 0.0 if rate is None else 2 * max(1.0, rate * self._commit_s) / rate
        return slow_s + 3 * (limits.transaction_timeout_ms + limits.request_timeout_ms) / 1000

    @property
    def _commit_s(self) -> float:
        return _bulk(self._task.flow).interval_ms / 1000

    def _check_topics(self, stands: bool) -> bool:
        """Look at what a lane only sees as "try again": whether both topics are there.

        `stands` says that they were, at the last look: one answer without them may come from a broker that starts.
        Raises Incident when they are gone, or when the source now ends below the range: waiting would be wrong.
        """
        task, flow = self._task, self._task.flow
        if task.route is None:
            return True
        try:
            for name, cluster, at in (("source", flow.source, task.at), ("target", flow.target, task.route.target)):
                with closing(Reader(flow, cluster)) as reader:
                    if at.partition < reader.partitions([at.topic]).get(at.topic, 0):
                        continue
                if stands:
                    return False
                why = f"cluster {cluster.name} has no {at} any more"
                raise Incident(f"{name}_topic_gone", why, topic=task.at.topic, partition=task.at.partition)
            with closing(Reader(flow, flow.source)) as source:
                end = source.committed_bounds(task.at)[1]
        except (Retriable, Unreachable) as error:
            self._log.warning("topics_not_seen", reason=str(error))
            return stands
        if end < task.end:
            why = f"the range was planned to offset {task.end}, but the source now ends at {end}"
            raise Incident("source_truncated", why, topic=task.at.topic, partition=task.at.partition, offset=end)
        return True

    def _watch_other(self) -> bool:
        """Wait while another attempt moves the position: whether it reached the end. Raises Superseded when the
        generation isn't open any more."""
        flow, route = self._task.flow, self._task.route
        if route is None:
            return True  # whoever fenced it has committed the positions of its lane too
        stood, since = -1, time.monotonic()
        while time.monotonic() - since < flow.limits.transaction_timeout_ms / 1000:
            try:
                self._check_generation()
                found = look.positions(flow, [route.target])[route.target]
            except (Retriable, Unreachable) as error:  # an open transaction in the way: that one is being worked on
                self._log.warning("position_unknown", reason=str(error))
                found = None
            self._position = max(self._position, found.offset if found else -1)
            if self._position >= self._task.end:
                return True
            if self._position > stood:
                stood, since = self._position, time.monotonic()
            threading.Event().wait(LOOK_S)
        return False

    def _check_generation(self) -> None:
        with closing(Reader(self._task.flow, self._task.flow.target)) as target:
            check_generation(self._task.plan(self._owner), target)


def _bulk(flow: Flow) -> Commit:
    """Larger transactions than the flow's, unless its own are larger, and far from their timeout."""
    own = flow.commit
    if flow.delivery is Delivery.AT_MOST_ONCE:
        return own  # its records are held in memory
    return Commit(
        interval_ms=max(own.interval_ms, min(COMMIT.interval_ms, flow.limits.transaction_timeout_ms // 4)),
        records_max=max(own.records_max, COMMIT.records_max),
        bytes_max=max(own.bytes_max, COMMIT.bytes_max),
    )


def copy_range(task: RangeTask, reach: Reach = nothing) -> RangeDone:
    """Copy what is left of a range, in this process and this thread's time. Returns when it is done, or can't be.

    Raises only what is a bug.
    """
    gc.set_threshold(GC_YOUNG_OBJECTS_MAX)
    return _Attempt(task, reach).run()
