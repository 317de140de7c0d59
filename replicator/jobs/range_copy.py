"""Copies one range of one source partition: a lane with an end, run to it in whatever process this is called.

Used by engines (`replicator.spark.engine`, threads in tests) for the tasks that `jobs.range_job` plans.

Attempts at a range may run at the same time (a retry, speculation, an executor that was thought lost): they share a
transactional id, so the later one fences the earlier. Invariants
- What is done stands in the target's position and nowhere else: an attempt finds out how far the range is.
- An attempt that was fenced off by another one doesn't take back at once: it waits until the position reaches the
  range's end. Without progress for one transaction timeout it reads the generation again and starts over.
"""

from __future__ import annotations

import gc
import threading
import time
from contextlib import closing
from dataclasses import dataclass, replace

import structlog

from replicator.config import Commit, Delivery, Flow
from replicator.failpoints import Failpoint, nothing
from replicator.flow import wiring
from replicator.flow.daemon import GC_YOUNG_OBJECTS_MAX
from replicator.flow.topics import reading_topics
from replicator.jobs.bounded_lane import BoundedLane, patience_s
from replicator.jobs.generation_watch import GenerationWatch
from replicator.jobs.range_policy import RangePolicy
from replicator.kafka.offset_reader import OffsetReader
from replicator.lane.plan import LanePlan
from replicator.model.errors import ReplicatorError, Retriable, TakenOver, Unreachable
from replicator.model.names import process_name
from replicator.model.partition import Partition
from replicator.state.control_topic import check_generation
from replicator.state.flow_state import FlowState

POSITION_READ_S = 0.5  # between two reads of a position that another attempt moves: there is no event for it

# A commit drains the pipeline, and nobody waits for history: measured, a fifth faster than the daemon's defaults.
COMMIT = Commit(interval_ms=5_000, records_max=400_000, bytes_max=128 * 2**20)


@dataclass(frozen=True, slots=True)
class RangeTask:
    """Source offsets [start, end) of one partition, to be copied under one lane of a generation. Can be pickled.

    `plan` is the lane's, without an owner. `start` is where the partition begins if it has no position yet; otherwise
    the position decides. A task always commits the positions of its lane again, so that they don't expire; unless it
    `copies`, it does nothing else. `rate_max`: records a second, None: as fast as it goes. `decides`: see `Policy`.
    """

    plan: LanePlan
    at: Partition
    start: int
    end: int
    rate_max: float | None = None
    copies: bool = True
    decides: bool = False

    @property
    def target(self) -> Partition:
        """The target partition. Raises StopIteration for a task that has none."""
        return next(route.target for route in self.plan.routes if route.source == self.at)

    def policy(self) -> RangePolicy:
        """Return the policy, which is what a lane of this task does."""
        if not self.copies:
            return RangePolicy({}, {}, decides=self.decides)
        return RangePolicy({self.at: self.start}, {self.at: self.end}, self.rate_max, decides=self.decides)


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
    """Runs lanes for one task until its range is done or an error must go to the job that planned it."""

    def __init__(self, task: RangeTask, failpoint: Failpoint) -> None:
        self._task, self._flow = task, task.plan.flow
        self._plan = replace(task.plan, owner=process_name(), flow=in_bulk(task.plan.flow))
        self._log = structlog.get_logger().bind(flow=self._flow.name, range=f"{task.at}:{task.end}")
        self._services = wiring.services(failpoint, self._log)
        self._records = self._bytes = 0
        self._position = -1
        self._began_s = time.monotonic()
        # other positions may wait for this slot to be committed again
        self._until_s = self._began_s + self._flow.limits.recommit_interval_ms / 1000

    def run(self) -> RangeDone:
        """Run until the attempt's end. Bugs are raised, errors of the clusters are in the answer."""
        error: ReplicatorError | None = None
        try:
            while not (self._copied() or time.monotonic() >= self._until_s or self._done_by_other()):
                self._log.warning("range_begun_again", position=self._position)
        except ReplicatorError as stopped:
            error = stopped
        seconds = time.monotonic() - self._began_s
        return RangeDone(self._task.at, self._position, self._records, self._bytes, seconds, self._plan.owner, error)

    def _copied(self) -> bool:
        """Run the lane to the range's end; False when another attempt has taken over, or the time is over. Raises
        Retriable where the source ends before the range now."""
        task, policy = self._task, self._task.policy()
        with closing(GenerationWatch(self._plan, self._log)) as watch:
            lane = BoundedLane(self._plan, policy, self._services, task.at, self._patience_s(), watch.check)
            try:
                lane.run(self._until_s)
            except TakenOver as other:
                self._log.info("range_taken_over", reason=str(other))
                return False
            finally:
                self._position = max(self._position, lane.position)
                self._records += lane.progress.records
                self._bytes += lane.progress.bytes
        if task.copies and self._position < task.end and (early := policy.ended_early.get(task.at)) is not None:
            raise Retriable(f"{task.at}: {early}")
        return not task.copies or self._position >= task.end

    def _patience_s(self) -> float:
        rate, interval_s = self._task.rate_max, self._plan.flow.commit.interval_ms / 1000
        slow_s = 0.0 if rate is None else 2 * max(1.0, rate * interval_s) / rate
        return slow_s + patience_s(self._flow.limits)

    def _done_by_other(self) -> bool:
        """Wait while another attempt moves the position: whether it reached the end. Raises TakenOver when the
        generation isn't open any more, and Incident of the control topic."""
        if not self._task.copies:
            return True  # the attempt that fenced it has committed the positions of its lane too
        with (
            closing(OffsetReader(self._flow)) as positions,
            reading_topics(self._flow, self._flow.target) as topics,
        ):
            state, target = FlowState(self._flow, topics), self._task.target
            stood, since_s = -1, time.monotonic()
            while time.monotonic() - since_s < self._flow.limits.transaction_timeout_ms / 1000:
                self._position = max(self._position, self._read_position(target, positions, state))
                if self._position >= self._task.end:
                    return True
                if self._position > stood:
                    stood, since_s = self._position, time.monotonic()
                threading.Event().wait(POSITION_READ_S)
        return False

    def _read_position(self, target: Partition, positions: OffsetReader, state: FlowState) -> int:
        """Read where the position stands under the same generation; -1 when it can't be known now."""
        try:
            check_generation(state.control(), self._plan.generation, self._plan.assignment)
            found = positions.positions([target])[target]
            if isinstance(found, ReplicatorError):
                raise found
        except (Retriable, Unreachable) as error:  # an open transaction in the way: that one is being worked on
            self._log.warning("position_unknown", reason=str(error))
            return -1
        return -1 if found is None else found.offset


def in_bulk(flow: Flow) -> Flow:
    """Return the flow with larger transactions than its own, unless those are larger, and far from their timeout."""
    own = flow.commit
    if flow.delivery is Delivery.AT_MOST_ONCE:
        return flow  # its records are held in memory
    commit = Commit(
        interval_ms=max(own.interval_ms, min(COMMIT.interval_ms, flow.limits.transaction_timeout_ms // 4)),
        records_max=max(own.records_max, COMMIT.records_max),
        bytes_max=max(own.bytes_max, COMMIT.bytes_max),
    )
    return flow.model_copy(update={"commit": commit})


def copy_range(task: RangeTask, failpoint: Failpoint = nothing) -> RangeDone:
    """Copy what is left of a range, in this process and this thread's time. Returns when it is done, or can't be.

    Raises only what is a bug.
    """
    gc.set_threshold(GC_YOUNG_OBJECTS_MAX)
    return _Attempt(task, failpoint).run()
