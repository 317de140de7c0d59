"""Drives one lane in a thread of its own: producer sessions one after the other, and what follows the end of each.

The same driver runs live lanes, bounded attempts and repairs; a `Policy` says what distinguishes them. It is started by
`flow.worker` and by jobs, which hear of it through a queue.

Invariants
- A lane never dies in a living process: what ended a session is tried again with back-off, or told to the owner of the
  lane, who ends the flow.
- Invariant 10: being fenced is no retry loop. The owner field of the positions tells a transaction timeout (still
  this process: start over) from a successor (another process: leave). Before its first fence a lane reads who owned the
  positions: that predecessor, when it comes back for a moment, is no successor.
"""

from __future__ import annotations

import queue
import random
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from enum import Enum, auto

import structlog

from replicator.backoff import Backoff
from replicator.config import Flow
from replicator.failpoints import Failpoint
from replicator.lane.flow_decisions import FlowDecisions
from replicator.lane.memory import Memory, SessionContext
from replicator.lane.owners import check_owners, owner_of, targets_of
from replicator.lane.pace import Rate
from replicator.lane.partition import PartitionState, Reason, Wait, reason_of
from replicator.lane.partitions import PartitionCounts, Partitions
from replicator.lane.permit import UNASKED, FencePermit
from replicator.lane.plan import LanePlan
from replicator.lane.policy import Policy
from replicator.lane.ports import Clock, Connections, LaneObserver, Unobserved
from replicator.lane.refused_records import RefusedRecords
from replicator.lane.reports import Reports
from replicator.lane.session import ProducerSession
from replicator.lane.size import TransactionSize
from replicator.lane.throttle import FlowThrottle
from replicator.model.checkpoint import NOBODY, Stored
from replicator.model.delivery import Delivery
from replicator.model.errors import (
    Abortable,
    Fenced,
    Incident,
    NotAllowed,
    ReplicatorError,
    Retriable,
    TakenOver,
    UnknownOutcome,
    Unreachable,
)
from replicator.model.partition import Partition
from replicator.planes.contract import Plane
from replicator.state.control_topic import check_generation

BACKOFF_S, BACKOFF_S_MAX = 0.05, 5.0
STEADY_S = 30.0  # a session in which all went well for so long has ended a series of failures
WAITING_AFTER = 4  # failed sessions in a row after which the partitions are said to wait
# How long a successor gets to write its name after it has fenced us: short where a timeout explains the fencing,
# long where nothing but a successor does, because coming back too soon would fence it in the middle of its start.
OWNER_SETTLES_S, OWNER_SETTLES_S_MAX = 2.0, 20.0
OWNER_POLL_S = 0.1


class Next(Enum):
    """What a lane does after an error that ended its producer session."""

    RESTART = auto()  # a new producer session, with back-off
    EXAMINE = auto()  # read the owner of the positions: restart if it is still us, otherwise leave
    LEAVE = auto()  # the error goes to the lane's owner


AFTER: tuple[tuple[type[ReplicatorError], Next], ...] = (
    (TakenOver, Next.LEAVE),
    (Fenced, Next.EXAMINE),
    (Abortable, Next.RESTART),
    (UnknownOutcome, Next.RESTART),
    (Retriable, Next.RESTART),
    (Unreachable, Next.RESTART),
    (NotAllowed, Next.RESTART),
    (ReplicatorError, Next.LEAVE),  # an Incident of the whole flow, Fatal, ConfigError
)


def after(error: ReplicatorError) -> Next:
    """Return the row of `AFTER` for `error`: the first class that fits."""
    return next(step for kind, step in AFTER if isinstance(error, kind))


@dataclass(frozen=True, slots=True)
class LaneEnded:
    """A lane's thread has ended: cleanly (`error` None), or by an error that only the lane's owner can classify."""

    lane: int
    error: BaseException | None


@dataclass(frozen=True, slots=True)
class CountsChanged:
    """How many of a lane's partitions are in which state, under this plan; reported whenever these numbers change."""

    lane: int
    counts: PartitionCounts
    plan: LanePlan


DriverEvent = LaneEnded | CountsChanged | None  # None: a request to stop


States = Callable[[], Mapping[Partition, PartitionState | None]]
"""What each partition of a lane is doing; None until that is known. Asked from any thread."""
QueuedBytes = Callable[[], int | None]
"""See `Plane.queued_bytes`; None while there is no producer. Asked from any thread."""
Observe = Callable[[LanePlan, States, QueuedBytes], LaneObserver]


def unobserved(plan: LanePlan, states: States, queued_bytes: QueuedBytes) -> LaneObserver:
    """Return what is told of a lane that nobody watches."""
    return Unobserved()


@dataclass(frozen=True, slots=True)
class Services:
    """What lanes are given from outside.

    `connect` opens what one producer session works with; the event is set when the lane shall stop. `cluster_away` as
    of `Partitions`. `observe` makes what is told of a lane, which also gets to ask what each of its partitions does and
    how much waits to be written. `throttle`: what operators have paused and limited of a flow;
    `decisions`: what they have decided while it runs.
    """

    connect: Callable[[LanePlan, Policy, threading.Event], Connections]
    clock: Clock
    failpoint: Failpoint
    log: structlog.stdlib.BoundLogger
    cluster_away: Callable[[], bool] = lambda: False
    jitter: Callable[[], float] = random.random
    observe: Observe = unobserved
    throttle: Callable[[Flow], FlowThrottle] = lambda flow: FlowThrottle()
    decisions: Callable[[Flow], FlowDecisions] = lambda flow: FlowDecisions()


class LaneDriver:
    """Runs one lane until it is stopped, its policy is done, or an error must leave."""

    def __init__(
        self,
        plan: LanePlan,
        policy: Policy,
        services: Services,
        events: queue.SimpleQueue[DriverEvent],
        permit: FencePermit = UNASKED,
    ) -> None:
        """`permit`: asked before each InitProducerId."""
        self._permit = permit
        self.plan, self._policy, self._services, self._events = plan, policy, services, events
        self._clock = services.clock
        self._log = services.log.bind(lane=plan.lane, generation=plan.generation)
        self._stopping, self._pause = threading.Event(), threading.Event()
        self._backoff = Backoff(BACKOFF_S, BACKOFF_S_MAX, services.jitter)
        partitions = Partitions(self._log, self._clock.now_s, self._changed, services.cluster_away)
        commit = plan.flow.commit
        records_max = Rate(policy.rate_max).records(commit.records_max, commit.interval_ms / 1000)
        size = TransactionSize(records_max, commit.bytes_max, small=policy.copies_live)
        self._memory = Memory(partitions, RefusedRecords(partitions), size, Reports(partitions))
        self._memory.throttle, self._memory.decisions = services.throttle(plan.flow), services.decisions(plan.flow)
        self._observer = services.observe(plan, self._all_states, self._queued_bytes)
        self._opened, self._began_s = False, 0.0
        self._opened_s: float | None = None  # since when the session has copied; None before
        self._owners_read = False
        self._predecessors: Counter[str | None] = Counter()  # whose positions it takes over, until that is told
        self.ended_by: ReplicatorError | None = None  # how the last session ended, if badly
        self.session: ProducerSession | None = None
        self._plane: Plane | None = None  # of that session
        self._thread = threading.Thread(target=self._main, name=f"{plan.flow.name}.{plan.lane}", daemon=True)

    @property
    def states(self) -> dict[Partition, PartitionState]:
        """What each partition of the lane is doing now. From any thread."""
        return self._memory.partitions.told()

    def _all_states(self) -> dict[Partition, PartitionState | None]:
        """List those that the lane was made with, and those of deleted topics, of which it has found the positions."""
        return {**dict.fromkeys(route.source for route in self.plan.routes), **self.states}

    def _queued_bytes(self) -> int | None:
        plane = self._plane
        return None if plane is None else plane.queued_bytes()

    def start(self) -> None:
        """Start the lane's thread."""
        self._thread.start()

    def stop(self) -> None:
        """Ask for a clean stop: the open transaction is finished first."""
        self._stopping.set()
        self._pause.set()
        self._permit.wake()

    def join(self, timeout_s: float) -> bool:
        """Wait for the thread; return whether it has ended."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def reassign(self, plan: LanePlan) -> None:
        """Give the lane new routes: it finishes its transaction and starts over at the fence with them."""
        self.plan = plan
        self._pause.set()
        self._permit.wake()

    def forget(self) -> None:
        """Let nobody see any more what its partitions are doing. Called once it has ended."""
        self._memory.throttle.ended(self.plan)
        self._observer.over()

    def _changed(self, counts: PartitionCounts) -> None:
        plan = self.plan
        self._events.put(CountsChanged(plan.lane, counts, plan))

    def _main(self) -> None:
        try:
            self.drive()
        except BaseException as error:  # noqa: BLE001 - the owner classifies every error, bugs too
            self._events.put(LaneEnded(self.plan.lane, error))
            return
        self._events.put(LaneEnded(self.plan.lane, self.ended_by))

    def drive(self) -> None:
        """Run producer sessions in the calling thread until the lane ends. Raises what must leave."""
        self._began_s = self._clock.now_s()
        while not self._stopping.is_set():
            self._pause.clear()
            if self._stopping.is_set():
                break
            self._run_session()

    def _run_session(self) -> None:
        plan, self._opened_s = replace(self.plan, compress=self._memory.refusals.compress), None
        try:
            to = self._services.connect(plan, self._policy, self._pause)
        except ReplicatorError as error:
            self._failed(error)
            return
        with closing(to):
            self._plane = to.plane
            try:
                self.ended_by = self._session(plan, to)
            except ReplicatorError as error:
                self.ended_by = error
                if self._ends_clean(error):
                    self._release(to)
                self._failed(error, to)
            finally:
                self._plane = None

    def _ends_clean(self, error: ReplicatorError) -> bool:
        """Tell whether a session that ends by `error` may release its positions: at a stop, or where an incident of the
        flow ends the lane after its session was open. The producer is still the one that was fenced under the open
        generation then: whoever has opened another one has shut it out."""
        if isinstance(error, Incident):
            return self._opened_s is not None
        return self._stopping.is_set() and isinstance(error, Retriable | Unreachable)

    def _session(self, plan: LanePlan, to: Connections) -> ReplicatorError | None:
        """Run one session; return what a stop had to give up. Raises what ended it."""
        if not self._owners_read:  # once: an owner that is read later may be our successor
            targets = [route.target for route in plan.routes]
            before = to.last_positions(targets)
            read = {at: owner_of(found) for at, found in before.items()}
            self._memory.owners.update({at: owner for at, owner in read.items() if owner is not None})
            self._predecessors = Counter(owner for owner in read.values() if owner not in (None, NOBODY, plan.owner))
            self._owners_read = True
        context = SessionContext(
            self._pause,
            self._clock,
            self._services.failpoint,
            self._log,
            self._services.jitter,
            self._observer,
            self._permit.initialised,
        )
        if not self._permit.ask(self._pause):
            return self.ended_by  # nothing has settled what the session before has left behind
        if self._predecessors and plan.flow.delivery is Delivery.EXACTLY_ONCE:
            self._fence_at_once(to)
        self.session = session = ProducerSession(plan, self._policy, to, self._memory, context)
        session.open()
        self._memory.throttle.runs(plan)
        self._opened, self._opened_s = True, self._clock.now_s()
        for owner, partitions in self._predecessors.items():
            self._log.info("took_over", owner=owner, partitions=partitions)
        self._predecessors.clear()
        if session.run():
            self._stopping.set()  # a lane with an end has reached it
        if not self._stopping.is_set():
            return None
        self._release(to)
        return None if session.given_up is None else _given_up(session.given_up)

    def _fence_at_once(self, to: Connections) -> None:
        """End a predecessor that may be in the middle of a transaction. The producer fences it again, and at once:
        librdkafka (2.16) looks only every 500 ms whether the coordinator has aborted that transaction."""
        try:
            to.transactions.fence(self.plan.transactional_id, self.plan.flow.limits.transaction_timeout_ms)
        except ReplicatorError as error:  # the producer meets the same, and says it
            self._log.debug("not_fenced_at_once", reason=str(error))

    def _release(self, to: Connections) -> None:
        """Release the positions at a clean end, as they stand, whether or not the source answers.

        Nothing depends on it: if the target doesn't take it, the positions keep this owner, the next start says that it
        took over from it, and the exit code stays what it is.
        """
        if not self._policy.copies_live or self.session is None:
            return
        try:
            to.plane.abort()
            self.session.release()
        except ReplicatorError as error:
            if self._permit.shared and isinstance(error, Fenced):  # how a lane learns that another worker has it
                self._log.debug("not_released", reason=str(error), kind=type(error).__name__)
            else:
                self._log.warning("not_released", reason=str(error), kind=type(error).__name__)

    def _failed(self, error: ReplicatorError, to: Connections | None = None) -> None:
        """Do what follows the end of a session. Raises what must leave."""
        step = after(error)
        if step is Next.EXAMINE and self._permit.shared:
            self._log.info("fenced", reason=str(error))
            self._observer.fenced()
            raise error
        if step is Next.LEAVE or self._gives_up(error):
            raise error
        if step is Next.EXAMINE and to is not None:
            self._examine(error, to)
            # No successor: the target has timed the transaction out. A stop before it is copied again gives it up.
            self.ended_by = _given_up(error)
            if self._stopping.is_set():
                return
        if self._went_well():
            self._backoff.reset()
        delay_s = self._backoff.next_s()
        self._log.warning("restarted", reason=str(error), kind=type(error).__name__, delay_ms=round(delay_s * 1000))
        if self._backoff.failures >= WAITING_AFTER:
            # A topic that is missing is no partition's then: the flow's own, on the target.
            reason = reason_of(error, Reason.NO_ANSWER)
            self._memory.partitions.wait_all(self.plan.routes, Wait(reason, str(error)))
        if self._backoff.failures > 1:
            self._clock.wait(self._pause, delay_s)

    def _went_well(self) -> bool:
        """Tell whether the session that has ended had committed, or, without anything to copy, run for long."""
        if self._opened_s is None or self.session is None:
            return False
        return self.session.has_committed or self.session.well_s - self._opened_s >= STEADY_S

    def _gives_up(self, error: ReplicatorError) -> bool:
        """Tell whether it is tried no more: before its first start a lane tries as long as a cluster may take to
        answer; a job isn't kept waiting for rights."""
        if isinstance(error, NotAllowed) and not self._policy.waits:
            return True
        if self._opened or not isinstance(error, Unreachable | NotAllowed):
            return False
        return self._clock.now_s() - self._began_s >= self.plan.flow.limits.connect_timeout_ms / 1000

    def _examine(self, error: ReplicatorError, to: Connections) -> None:
        """Read who owns the positions, until a successor had time to say so. Raises TakenOver if there is one, or
        another generation."""
        self._log.warning("fenced", reason=str(error))
        self._observer.fenced()
        soon = to.plane.written().overdue or not self._opened
        deadline = self._clock.now_s() + (OWNER_SETTLES_S if soon else OWNER_SETTLES_S_MAX)
        owners: Mapping[Partition, Stored | ReplicatorError | None]
        while True:
            try:
                control = to.state.control()
                check_generation(control, self.plan.generation, self.plan.assignment)
                # Of all of them: another process of this flow's name may have a file with other topics.
                claims = to.state.claims(control.claims_partition(self.plan.lane))
                owners = to.plane.positions(targets_of(self.plan, claims))
            except (Retriable, Unreachable) as unread:
                self._log.warning("owner_unknown", reason=str(unread))
                owners = {}
            check_owners(self.plan, self._memory.owners, owners, fenced=True)
            if self._clock.now_s() >= deadline or self._stopping.is_set():
                return  # no successor, or it died before it committed its name; a stop waits for none
            self._clock.wait(self._stopping, OWNER_POLL_S)


def _given_up(why: ReplicatorError) -> UnknownOutcome:
    """Return what a lane ends by whose stop left records of its open transaction behind; the next start copies them."""
    return UnknownOutcome(f"the open transaction was given up: {why}")
