"""A worker that shares its flow, between two generations of it, while a cluster is away."""

from __future__ import annotations

import threading
import time

import pytest
from structlog.testing import capture_logs

from replicator.flow.parts import Failed, Silence
from replicator.flow.topics import Answers, Waits
from replicator.model.errors import TakenOver, Unreachable
from tests.replicator.flow.fakes import opened
from tests.replicator.flow.shared_fakes import FakeGroup
from tests.replicator.flow.shared_run import WAIT_S, Run, lanes_topic

__all__ = ["lanes_topic"]


class Clusters:
    """In the place of what asks them: both answer, until the source is `away`. It notes what the worker does."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.away, self.known_away, self.tried = False, threading.Event(), threading.Event()
        self.target_asked = threading.Semaphore(0)
        self.undone = False  # a failover, when the target is asked next
        self.ended: list[threading.Event] = []
        self.failed: Failed | None = None
        self.run = Run(frozen=self._frozen, clusters=self._watch)
        self._connect = self.run.plane.connect
        self.run.plane.connect = self._connected  # type: ignore[assignment, method-assign]

    def _connected(self, waits: Waits, answers: Answers) -> object:
        self.done.append("connect")
        if self.away:
            self.tried.set()
            answers(self.run.flow.target)
            raise Unreachable("the source is away")
        return self._connect(waits, answers)

    def _frozen(self, *_: object) -> bool:
        self.done.append("frozen")
        self.target_asked.release()
        undone, self.undone = self.undone, False
        return undone

    def _silent(self) -> list[Silence]:
        return [Silence("a", 3_600.4, "no broker answers")] if self.known_away.is_set() else []

    def _watch(self, flow: object, ended: threading.Event, failed: Failed, told: dict[str, float]) -> object:
        self.ended.append(ended)
        self.failed = failed
        return self._silent

    def next_generation(self, group: FakeGroup) -> None:
        """End the one that runs, with a lane."""
        group.assign(0)
        lane = self.run.lane()
        assert lane.fenced.wait(WAIT_S)
        self.run.plane.state.control_topic = opened(2, before=self.run.plane.state.control_topic)
        self.done.clear()
        lane.end(TakenOver.of_generation("generation 2 (live) has taken over from 1"))


def test_a_first_start_ends_and_a_flow_that_has_run_waits() -> None:
    clusters = Clusters()
    clusters.away = True
    first = clusters.run
    first.begin()
    assert isinstance(first.end(), Unreachable)

    clusters = Clusters()
    group = clusters.run.start()
    clusters.away = True
    with capture_logs() as logs:
        clusters.next_generation(group)
        assert clusters.tried.wait(WAIT_S)
        clusters.tried.clear()
        assert clusters.tried.wait(WAIT_S), "again"
        clusters.away = False
        group = clusters.run.group()
        assert clusters.done[0] == "frozen", "the target is asked before the source"
    assert [it["reason"] for it in logs if it["event"] == "setup_tried_again"] == ["the source is away"]
    assert len(clusters.ended) == 1, "one watch for all generations"
    assert not clusters.ended[0].is_set()
    group.assign(0)
    assert clusters.run.lane().plan.generation == 2
    assert clusters.run.stop() == 0
    assert clusters.ended[0].is_set()


@pytest.mark.parametrize("how", ["answers", "stop", "bug"])
def test_a_cluster_that_is_known_to_be_away_is_not_connected_to(how: str) -> None:
    """The target is asked again and again whether the flow is failed over, and a stop is not held up."""
    clusters = Clusters()
    group = clusters.run.start()
    clusters.known_away.set()
    clusters.next_generation(group)
    for _ in range(3):
        assert clusters.target_asked.acquire(timeout=WAIT_S)
    assert "connect" not in clusters.done
    if how == "answers":
        clusters.known_away.clear()
        clusters.run.group()
        assert clusters.run.stop() == 0
    elif how == "stop":
        assert clusters.run.stop() == 0
    else:
        assert clusters.failed is not None
        clusters.failed(ZeroDivisionError())
        assert isinstance(clusters.run.end(), ZeroDivisionError)
    assert ("connect" in clusters.done) == (how == "answers")


def test_once_a_failover_is_undone_it_is_said_again_which_cluster_is_away_and_since_when() -> None:
    clusters = Clusters()
    group = clusters.run.start()
    clusters.known_away.set()
    clusters.undone = True
    with capture_logs() as logs:
        clusters.next_generation(group)
        until_s = time.monotonic() + WAIT_S
        while not any(it["event"] == "unreachable" for it in logs):  # by another thread than the one that asks
            assert clusters.target_asked.acquire(timeout=WAIT_S)
            assert time.monotonic() < until_s, logs
        for _ in range(3):
            assert clusters.target_asked.acquire(timeout=WAIT_S)
        assert clusters.run.stop() == 0
    told = [it for it in logs if it["event"] == "unreachable"]
    assert [(it["cluster"], it["unreachable_s"], it["log_level"]) for it in told] == [("a", 3_600, "error")]
