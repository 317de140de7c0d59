"""Runs one lane for one partition to its end, in the caller's time. Used by `jobs.range_copy` and `jobs.repair`.

The lane runs in a thread of its own (`lane.driver`) and tries again what may pass, without an end. A job has one: when
nothing was committed for `patience_s`, `run` raises Retriable. Whatever that thread waits for, `run` returns soon after
another generation was opened: while nothing is committed it asks, see `check_open`.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from replicator.config import Limits
from replicator.incidents import tell_incident
from replicator.lane.driver import CountsChanged, DriverEvent, LaneDriver, LaneEnded, Services
from replicator.lane.partition import Stopped
from replicator.lane.plan import LanePlan
from replicator.lane.policy import Policy
from replicator.lane.ports import Unobserved
from replicator.model.checkpoint import Position
from replicator.model.errors import Incident, Retriable
from replicator.model.partition import Partition
from replicator.planes.contract import Copied

PROGRESS_CHECKED_S = 5.0
TIMEOUTS_OUTLASTED = 3


def patience_s(limits: Limits) -> float:
    """Return how long nothing may be committed: whatever should end by itself has ended by then, and been tried
    again.
    """
    return TIMEOUTS_OUTLASTED * (limits.transaction_timeout_ms + limits.request_timeout_ms) / 1000


class LaneProgress(Unobserved):
    """What a lane has committed, and when it last did. Written by the lane's thread."""

    def __init__(self) -> None:
        self.records = self.bytes = 0
        self.moved_s = time.monotonic()

    def on_committed(
        self, copied: Mapping[Partition, Copied], positions: Mapping[Partition, Position], took_s: float
    ) -> None:
        """See `LaneObserver`."""
        self.records += sum(part.records for part in copied.values())
        self.bytes += sum(part.bytes for part in copied.values())
        self.moved_s = time.monotonic()


class BoundedLane:
    """One lane with an end. `stop` may be called from any thread or signal handler."""

    def __init__(
        self,
        plan: LanePlan,
        policy: Policy,
        services: Services,
        at: Partition,
        patience_s: float,
        check_open: Callable[[], None] = lambda: None,
    ) -> None:
        """`at` is the source partition that the lane is there for; others are only kept alive. `check_open` is called
        every few seconds in which nothing is committed, and raises TakenOver when the lane's generation has ended."""
        self._plan, self._at, self._patience_s = plan, at, patience_s
        self._events: queue.SimpleQueue[DriverEvent] = queue.SimpleQueue()
        self._log = services.log
        self.progress = LaneProgress()
        services = replace(services, observe=lambda plan, states, queued_bytes: self.progress)
        self._driver = LaneDriver(plan, policy, services, self._events)
        self._check_open = check_open
        self._checked_s = time.monotonic()

    @property
    def position(self) -> int:
        """The source offset that the partition has reached; -1 when none is known."""
        session = self._driver.session
        entry = session.positions.entries.get(self._at) if session is not None else None
        return -1 if entry is None or entry.position is None else entry.position.offset

    def progressed(self) -> None:
        """Note that something other than a commit shows that the lane gets on: so it isn't given up. From any
        thread.
        """
        self.progress.moved_s = time.monotonic()

    def stop(self) -> None:
        """Ask for a clean stop after the transaction under way."""
        self._events.put(None)

    def run(self, until_s: float | None = None) -> None:
        """Run until the lane's policy is done, somebody asks it to stop, or `until_s` (monotonic) is reached.

        Raises what ended the lane, the incident that stopped its partition, and Retriable when nothing was committed
        for too long.
        """
        self.progress.moved_s = self._checked_s = time.monotonic()
        self._driver.start()
        try:
            ended = self._ended(until_s)
        finally:
            self._driver.stop()
            self._driver.join(self._plan.flow.limits.stop_timeout_ms / 1000)
        if isinstance(ended.error, Incident):
            tell_incident(self._log, ended.error)
        if ended.error is not None:
            raise ended.error
        state = self._driver.states.get(self._at)
        if isinstance(state, Stopped):
            raise state.incident

    def _ended(self, until_s: float | None) -> LaneEnded:
        while True:
            now_s = time.monotonic()
            if until_s is not None and now_s >= until_s:
                self._driver.stop()
                until_s = None
            if now_s >= self._checked_s + PROGRESS_CHECKED_S:
                self._check_progress()
            wait_s = max(0.0, self._checked_s + PROGRESS_CHECKED_S - now_s)
            try:
                event = self._events.get(timeout=wait_s if until_s is None else min(wait_s, until_s - now_s))
            except queue.Empty:
                continue
            if isinstance(event, LaneEnded):
                return event
            if event is None or (isinstance(event, CountsChanged) and self._stopped()):
                self._driver.stop()

    def _check_progress(self) -> None:
        """Raise Retriable after too long without a commit, and what `check_open` does."""
        idle_s = time.monotonic() - self.progress.moved_s
        if idle_s > self._patience_s:
            raise Retriable(f"{self._at}: no commit for {self._patience_s:.0f} s")
        if idle_s >= PROGRESS_CHECKED_S:
            self._check_open()
        self._checked_s = time.monotonic()

    def _stopped(self) -> bool:
        return isinstance(self._driver.states.get(self._at), Stopped)
