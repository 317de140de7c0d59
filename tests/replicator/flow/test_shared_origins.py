"""Many lanes look for other flows' claims at once: few reads, and none that began before its lane had asked."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping

import pytest

from replicator.clock import RealClock
from replicator.flow.shared_origins import SharedOrigins
from replicator.model.errors import ReplicatorError, Retriable
from replicator.model.origins import Origin
from replicator.state.origins import OriginsById
from tests.replicator.flow.fakes import flow

LANES = 50


class Ticks(RealClock):
    """Time passes with each look at the clock."""

    def __init__(self) -> None:
        self._ticks = itertools.count()
        self.looked = 0
        self.changed = threading.Condition()

    def now_s(self) -> float:
        with self.changed:
            self.looked += 1
            self.changed.notify_all()
            return float(next(self._ticks))


class Reads(SharedOrigins):
    """Counts what is read; each read says when it began, and lasts until it is let go."""

    def __init__(self) -> None:
        self.ticks = Ticks()
        super().__init__(flow(), self.ticks)
        self.reads = 0
        self.go = threading.Event()
        self.failing = False

    def _read(self) -> tuple[OriginsById, Mapping[str, ReplicatorError]]:
        self.reads += 1
        assert self.go.wait(10)
        if self.failing:
            raise Retriable("no answer")
        return {("t", "id"): frozenset({Origin("A", f"read {self.reads}", "g")})}, {}

    def wait_asked(self, looks: int) -> None:
        """Until the clock was looked at so often: by each lane that asks, and once by each read that begins."""
        with self.ticks.changed:
            assert self.ticks.changed.wait_for(lambda: self.ticks.looked >= looks, 10)


def test_lanes_share_a_read_that_began_after_they_had_asked() -> None:
    shared, answers = Reads(), list[str]()

    def lane() -> None:
        (hop,) = shared.origins({"t": "id"}).origins["t"]
        answers.append(hop.topic)

    threads = [threading.Thread(target=lane) for _ in range(LANES)]
    threads[0].start()
    shared.wait_asked(2)
    for thread in threads[1:]:
        thread.start()
    shared.wait_asked(LANES + 1)
    shared.go.set()
    for thread in threads:
        thread.join(10)
    assert sorted(answers) == ["read 1", *["read 2"] * (LANES - 1)], "the first one began before the others asked"


def test_a_read_that_failed_is_nobody_elses_answer() -> None:
    shared = Reads()
    shared.go.set()
    shared.failing = True
    with pytest.raises(Retriable):
        shared.origins({})
    shared.failing = False
    assert shared.origins({"t": "id"}).origins.keys() == {"t"}
    assert shared.reads == 2
