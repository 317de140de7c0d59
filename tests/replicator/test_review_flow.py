"""The flow's watch over its lanes: a stop is bounded, and nothing copies unwatched."""

from __future__ import annotations

import time
from typing import cast

import pytest
import structlog

from replicator.config import load_text
from replicator.errors import Unreachable
from replicator.failpoints import nothing
from replicator.flow import FlowWorker
from replicator.generation import Generation, Phase
from replicator.runner import Ended, LaneRunner
from replicator.topics import ControlPlane

GENERATION = Generation(1, Phase.OPEN, 2)


class Stuck:
    """A lane that hears of the stop and hangs in a call all the same."""

    def __init__(self) -> None:
        self.stopped = False
        self.joined = False

    def stop(self) -> None:
        self.stopped = True

    def join(self, timeout_s: float) -> bool:
        self.joined = True
        return False


def worker(lanes: dict[int, Stuck]) -> FlowWorker:
    config = load_text(
        """\
clusters:
  a: {properties: {bootstrap.servers: "a:1"}}
  b: {properties: {bootstrap.servers: "b:1"}}
flows:
  f: {source: a, target: b, topics: ["^t.*"], limits: {stop_timeout_ms: 1000, discovery_interval_ms: 600000}}
""",
        env={},
    )
    made = FlowWorker(config.flows["f"], config, "me", nothing, structlog.get_logger())
    made._runners = cast(dict[int, LaneRunner], lanes)
    return made


def watch(made: FlowWorker) -> None:
    made._watch(cast(ControlPlane, None), GENERATION)


def test_a_lane_that_does_not_end_bounds_the_stop_all_the_same() -> None:
    lane = Stuck()
    made = worker({0: lane})
    began = time.monotonic()
    made.stop()
    with pytest.raises(Unreachable, match="stop_timeout_ms"):
        watch(made)
    assert lane.stopped
    assert 0.9 < time.monotonic() - began < 5


def test_a_second_request_to_stop_does_not_lengthen_the_first() -> None:
    made = worker({0: Stuck()})
    made.stop()
    with pytest.raises(Unreachable):
        watch(made)
    bound = made._stop_by
    made.stop()
    with pytest.raises(Unreachable):
        watch(made)
    assert made._stop_by == bound


def test_a_bug_in_one_lane_stops_the_others() -> None:
    other = Stuck()
    made = worker({0: Stuck(), 1: other})
    made._events.put(Ended(0, ValueError("a bug")))
    with pytest.raises(ValueError, match="a bug"):
        watch(made)
    made._abandon()
    assert other.stopped
    assert other.joined
