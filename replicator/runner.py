"""Runs the incarnations of one lane in a thread of its own, and judges what follows the end of each.

An incarnation is one producer from fence to first doubt. Invariant 10: being fenced is no retry loop.
"""

from __future__ import annotations

import queue
import random
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

import structlog

from replicator import checkpoint
from replicator.checkpoint import NOBODY
from replicator.errors import Incident, ReplicatorError, Retriable, Superseded, Unreachable
from replicator.failpoints import Reach
from replicator.lane import Lane, Next, after
from replicator.ledger import Ledger
from replicator.opening import LanePlan, Opening, check_generation
from replicator.planes.contract import Committed, Partition
from replicator.planes.records import look
from replicator.planes.records.plane import RecordsPlane
from replicator.planes.records.reading import Reader

BACKOFF_S_MAX = 5.0
# Records come and go by reference count, thousands a poll: Python's default of 700 spends a tenth of the CPU on looking
# for cycles among them. Cycles are made by clients only, a few at each restart of a lane.
GC_YOUNG_OBJECTS_MAX = 50_000
# How long a successor gets to write its name after it has fenced us: short where a timeout explains the fencing,
# long where nothing but a successor does, because coming back too soon would fence it in the middle of its opening.
OWNER_SETTLES_S, OWNER_SETTLES_S_MAX = 2.0, 20.0


@dataclass(frozen=True, slots=True)
class Ended:
    """A lane has ended: cleanly (`error` None), or by an error that only the flow can judge.

    `incidents` counts partitions that wait for a decision.
    """

    lane: int
    error: BaseException | None
    incidents: int = 0


@dataclass(frozen=True, slots=True)
class Parked:
    """Incidents have stopped every partition of a lane under this plan; it only keeps its positions alive."""

    plan: LanePlan


@dataclass(frozen=True, slots=True)
class Copying:
    """A lane has opened with partitions to copy under this plan."""

    plan: LanePlan


Event = Ended | Parked | Copying | None  # None: a request to stop


class LaneRunner:
    """Runs incarnations of one lane in a thread of its own until the flow stops or an error must leave.

    Invariant 10: being fenced is no retry loop. The owner field of the positions tells a transaction timeout
    (still us: start over) from a successor (somebody new: leave). Before its first claim a lane knows its
    predecessor's name from a look ahead of the fence: that one, when it comes back for a moment, is no successor.
    """

    def __init__(
        self,
        plan: LanePlan,
        events: queue.SimpleQueue[Event],
        reach: Reach,
        log: structlog.stdlib.BoundLogger,
        on_commit: Callable[[int, int], None] | None = None,
    ) -> None:
        self.plan, self._events, self._reach, self._on_commit = plan, events, reach, on_commit
        self._log = log.bind(lane=plan.lane, generation=plan.generation)
        self._stopping, self._pause = threading.Event(), threading.Event()
        self._records_max: int | None = None
        self._failures = 0
        self._opened, self._began_s = False, 0.0
        self._owners: dict[Partition, str] = {}  # by target partition, as this process knows them
        self._known_owners = False
        self._lasting: list[Incident] = []  # what the next incarnation couldn't find out again
        self._doubt: ReplicatorError | None = None  # how the last incarnation ended, if badly
        self.ledger: Ledger | None = None
        self._thread = threading.Thread(target=self._main, name=f"{plan.flow.name}.{plan.lane}", daemon=True)

    def start(self) -> None:
        """Start the lane's thread."""
        self._thread.start()

    def stop(self) -> None:
        """Ask for a clean stop: the open transaction is finished first."""
        self._stopping.set()
        self._pause.set()

    def join(self, timeout_s: float) -> bool:
        """Wait for the thread; whether it has ended."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def reassign(self, plan: LanePlan) -> None:
        """New routes: the lane finishes its transaction and starts over at the fence with them."""
        self.plan = plan
        self._pause.set()

    def _main(self) -> None:
        self._began_s = time.monotonic()
        try:
            while not self._stopping.is_set():
                self._pause.clear()
                if self._stopping.is_set():
                    break
                self._incarnation()
        except BaseException as error:  # noqa: BLE001 - the worker judges every error, bugs too
            self._events.put(Ended(self.plan.lane, error))
            return
        self._events.put(Ended(self.plan.lane, self._doubt, self._incidents()))

    def _incidents(self) -> int:
        return sum(entry.incident is not None for entry in self.ledger.entries.values()) if self.ledger else 0

    def _incarnation(self) -> None:
        plan, digests = self.plan, dict[Partition, str]()
        routes = {route.source: route.target for route in plan.routes}
        until = plan.span.end if plan.span is not None else {}
        plane = RecordsPlane(
            plan.flow, plan.transactional_id, plan.map_partition, routes, digests, self._noise, self._lost, until
        )
        source, target = Reader(plan.flow, plan.flow.source), Reader(plan.flow, plan.flow.target)
        opening = Opening(plan, plane, source, target, self._owners)
        lane = Lane(
            plan,
            plane,
            opening,
            digests,
            self._pause,
            self._log,
            self._reach,
            self._records_max,
            self._committed,
            lambda: self._events.put(Parked(plan)),
            self._lasting,
        )
        try:
            if not self._known_owners:  # once: whoever is there at a later look may be our successor
                self._owners, self._known_owners = self._predecessors(), True
            self.ledger = lane.open()
            self._owners.update(
                {e.route.target: plan.owner for e in self.ledger.entries.values() if e.position is not None}
            )
            self._opened = True
            opening.close()
            if self.ledger.running:
                self._events.put(Copying(plan))
            if lane.run():
                self._stopping.set()  # a bounded lane has reached its end
            self._doubt = None
            if self._stopping.is_set() and plan.span is None:
                self._release(lane)
        except ReplicatorError as error:
            self._doubt, self._records_max = error, lane.records_max
            self._judge(error, plane)
        finally:
            with closing(plane):
                opening.close()

    def _release(self, lane: Lane) -> None:
        """Everything is committed: if this fails, no more is lost than the word that nobody runs the flow."""
        try:
            lane.release()
        except ReplicatorError as error:
            self._log.warning("not_released", reason=str(error), kind=type(error).__name__)

    def _predecessors(self) -> dict[Partition, str]:
        """Owners ahead of the fence; unstable, as a dead predecessor's transaction is open until it is fenced."""
        targets = [route.target for route in self.plan.routes]
        positions = look.positions(self.plan.flow, targets, stable=False)
        return {at: owner_of(committed) for at, committed in positions.items()}

    def _read_owners(self, plane: RecordsPlane) -> dict[Partition, str]:
        positions = plane.committed([route.target for route in self.plan.routes])
        return {at: owner_of(committed) for at, committed in positions.items()}

    def _committed(self, records: int, size: int) -> None:
        self._failures = 0
        if self._on_commit is not None:
            self._on_commit(records, size)

    def _judge(self, error: ReplicatorError, plane: RecordsPlane) -> None:
        step = after(error)
        opening_s_max = self.plan.flow.limits.connect_timeout_ms / 1000
        given_up = not self._opened and time.monotonic() - self._began_s >= opening_s_max
        if step is Next.LEAVE or (isinstance(error, Unreachable) and given_up):
            raise error
        if step is Next.EXAMINE:
            self._examine(error, plane)
        self._failures += 1
        delay_s = min(BACKOFF_S_MAX, 0.05 * 2 ** min(self._failures, 10)) * random.uniform(0.5, 1.0)
        self._log.warning("restarted", reason=str(error), kind=type(error).__name__, delay_ms=round(delay_s * 1000))
        self._pause.wait(delay_s if self._failures > 1 else 0.0)

    def _examine(self, error: ReplicatorError, plane: RecordsPlane) -> None:
        """Read who owns the positions, until a successor had time to say so. Raises Superseded if there is one, or
        another generation."""
        self._log.warning("fenced", reason=str(error))
        soon = plane.overdue() or not self._opened
        deadline = time.monotonic() + (OWNER_SETTLES_S if soon else OWNER_SETTLES_S_MAX)
        while not self._stopping.is_set():
            try:
                with closing(Reader(self.plan.flow, self.plan.flow.target)) as target:
                    check_generation(self.plan, target)
                owners = self._read_owners(plane)
            except (Retriable, Unreachable) as unread:
                self._log.warning("owner_unknown", reason=str(unread))
                owners = {}
            for at, owner in owners.items():
                if owner not in (NOBODY, self.plan.owner, self._owners.get(at, owner)):
                    raise Superseded(
                        f"flow {self.plan.flow.name}: {owner} has taken over {at}; this process was fenced off"
                    ) from error
            if time.monotonic() >= deadline:
                return  # nobody else, or it died before it had a name
            self._stopping.wait(0.1)

    def _noise(self, text: str) -> None:
        self._log.debug("client", detail=text)

    def _lost(self, at: Partition, why: str) -> None:
        self._log.error("records_lost", topic=at.topic, partition=at.partition, detail=why)


def owner_of(committed: Committed | None) -> str:
    """Who wrote a position; unreadable metadata stands for whoever wrote it."""
    if committed is None:
        return NOBODY
    try:
        return checkpoint.decode(committed.metadata).owner
    except checkpoint.BadMetadata:
        return f"unreadable: {committed.metadata}"
