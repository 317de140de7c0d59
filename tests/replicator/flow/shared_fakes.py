"""A lane, and the membership in a group, as a worker that shares its flow sees them."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from replicator.kafka.group_events import GroupEnded, GroupEvent, LanesAssigned, LanesRevoked, ProofAnswered
from replicator.lane.driver import CountsChanged, LaneEnded
from replicator.lane.partitions import PartitionCounts
from replicator.lane.permit import FencePermit
from replicator.lane.plan import LanePlan
from replicator.workers.proofs import ProofAnswer


@dataclass
class FakeLane:
    """Initialises its id as soon as it may, then copies until it is stopped or ended."""

    plan: LanePlan
    events: queue.SimpleQueue[Any]
    permit: FencePermit
    asked: threading.Event = field(default_factory=threading.Event)
    fenced: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)
    forgotten: threading.Event = field(default_factory=threading.Event)
    told: threading.Event = field(default_factory=threading.Event)
    stopped: int = 0
    """Partitions that incidents stop."""
    ends_by: BaseException | None = None
    """Why it can't end cleanly when it is stopped."""

    def start(self) -> None:
        threading.Thread(target=self._session, daemon=True).start()

    def _session(self) -> None:
        if self.permit.ask(self.asked):
            self.fenced.set()
            self.permit.initialised()
            if self.plan.routes:  # numbers that stay what they were are not told
                counts = PartitionCounts(len(self.plan.routes) - self.stopped, 0, self.stopped)
                self.events.put(CountsChanged(self.plan.lane, counts, self.plan))
            self.told.set()
        elif self.asked.is_set():
            self.end(None)

    def stop(self) -> None:
        self.asked.set()
        self.permit.wake()
        if self.fenced.is_set():
            self.end(self.ends_by)

    def join(self, timeout_s: float) -> bool:
        return True

    def reassign(self, plan: LanePlan) -> None:
        self.plan = plan

    def forget(self) -> None:
        self.forgotten.set()

    def end(self, error: BaseException | None) -> None:
        if not self.over.is_set():
            self.over.set()
            self.events.put(LaneEnded(self.plan.lane, error))


class FakeGroup:
    """The group's consumer: the test says what the group does. A proof is answered at once."""

    def __init__(self, tell: Callable[[GroupEvent], None]) -> None:
        self.tell, self.held, self.error = tell, frozenset[int](), ""
        self.proofs_asked: queue.SimpleQueue[int] = queue.SimpleQueue()
        self.subscribed, self.left, self.proved = threading.Event(), threading.Event(), threading.Event()

    def subscribe(self) -> None:
        self.subscribed.set()

    def unsubscribe(self) -> None:
        self.held = frozenset()
        self.left.set()

    def prove(self, lane: int, number: int, metadata: str) -> None:
        assert '"generation":' in metadata
        self.proofs_asked.put(lane)
        answer = ProofAnswer(
            lane=lane,
            number=number,
            error=self.error,
            member_before="m",
            member_after="m",
            in_assignment=lane in self.held,
        )
        self.tell(ProofAnswered(answer))
        self.proved.set()

    def holds(self, lane: int) -> bool:
        return lane in self.held

    def close(self, timeout_s: float) -> bool:
        self.tell(GroupEnded(None))
        return True

    def assign(self, *lanes: int) -> None:
        self.held = frozenset(lanes)
        self.tell(LanesAssigned(self.held))

    def revoke(self, *lanes: int) -> None:
        self.held -= frozenset(lanes)
        self.tell(LanesRevoked(frozenset(lanes)))
