"""Runs a worker that shares its flow, with fakes of its lanes and its group."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest
import structlog

from replicator.flow.group_watch import GroupWatch
from replicator.flow.parts import Parts, Unwatched, WorkerObserver
from replicator.flow.shared_flow import SharedFlow
from replicator.flow.topics import ControlPlane
from replicator.kafka.group_events import (
    GroupEvent,
)
from replicator.lane.permit import FencePermit
from replicator.lane.plan import LanePlan
from replicator.model.errors import Fenced
from tests.replicator.flow.fakes import FakePlane, config, run_before, topic
from tests.replicator.flow.shared_fakes import FakeGroup, FakeLane

WAIT_S = 10.0


class Run:
    """One worker in a thread, with its lanes and its group."""

    def __init__(
        self,
        settings: str = "lanes: 2",
        members: Callable[[], list[str]] = lambda: ["other"],
        observer: WorkerObserver | None = None,
        stopped: int = 0,
        exit_on_incident: bool = False,
        take_over: bool = False,
        **parts_: Any,
    ) -> None:
        """`stopped`: partitions of each lane that incidents stop; `parts_`: more of the worker's parts."""
        self._stopped = stopped
        observes = observer or Unwatched()
        whole = config(settings)
        self.flow = whole.flows["f"]
        self.plane = run_before(FakePlane(self.flow, {"t1": topic("t1", 8)}))
        self.lanes: queue.SimpleQueue[FakeLane] = queue.SimpleQueue()
        self.made: list[FakeLane] = []
        self.groups: queue.SimpleQueue[FakeGroup] = queue.SimpleQueue()
        self.duties: queue.SimpleQueue[threading.Event] = queue.SimpleQueue()
        parts = Parts(
            plane=lambda flow: cast(ControlPlane, self.plane),
            lane=self._lane,
            duties=lambda flow, ended, failed: self.duties.put(ended),
            group=self._group,
            members=lambda plane: members(),
            observe=lambda flow: observes,
            **parts_,
        )
        log = structlog.get_logger()
        self.worker = SharedFlow(self.flow, whole, parts, log, take_over=take_over, exit_on_incident=exit_on_incident)
        self.result: int | BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _lane(self, plan: LanePlan, events: queue.SimpleQueue[Any], permit: FencePermit) -> FakeLane:
        made = FakeLane(plan, events, permit, stopped=self._stopped)
        self.lanes.put(made)
        self.made.append(made)
        return made

    def _group(self, flow: object, lanes: int, client_id: str, tell: Callable[[GroupEvent], None]) -> FakeGroup:
        made = FakeGroup(tell)
        self.groups.put(made)
        return made

    def _run(self) -> None:
        try:
            self.result = self.worker.run()
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            self.result = error

    def begin(self) -> None:
        self._thread.start()

    def start(self) -> FakeGroup:
        self.begin()
        return self.group()

    def group(self) -> FakeGroup:
        found = self.groups.get(timeout=WAIT_S)
        assert found.subscribed.wait(WAIT_S)
        return found

    def lane(self) -> FakeLane:
        return self.lanes.get(timeout=WAIT_S)

    def stop(self) -> int | BaseException | None:
        """Stop it, and let its successors fence its lanes."""
        self.worker.stop()
        for lane in self.made:
            lane.end(Fenced("by a successor"))
        return self.end()

    def end(self) -> int | BaseException | None:
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()
        return self.result


@pytest.fixture(autouse=True)
def lanes_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lanes topic is there, and nobody else is in the group."""
    monkeypatch.setattr(GroupWatch, "look", lambda self: [])
    monkeypatch.setattr(FakePlane, "make_lanes_topic", lambda self, lanes: None, raising=False)


@contextmanager
def running(**how: Any) -> Iterator[tuple[Run, FakeGroup]]:
    run = Run(**how)
    yield run, run.start()
    run.stop()
