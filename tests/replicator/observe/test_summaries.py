"""The log's summaries: only what has changed, each record once, and a day of a flow in 1.5 MB."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import pytest
import structlog
from structlog.testing import capture_logs

from replicator import logs
from replicator.flow.restarts import Stage
from replicator.lane.partition import Copying, PartitionState, Reason, Waiting
from replicator.model.partition import Partition
from replicator.observe.figures import Figures
from replicator.observe.lag import Lag
from replicator.observe.summaries import SUMMARY_S, UNCHANGED_S, Summaries
from replicator.observe.view import FlowView, Views
from replicator.planes.contract import Copied
from tests.replicator.observe.made import plan, position
from tests.replicator.observe.test_page import flow, partition

A, B = Partition("t", 0), Partition("t", 1)
WAITS = Waiting(Reason.NO_ANSWER, "away", 0.0, 0.0)
DAY_S, DAY_BYTES_MAX = 86_400, 1_500_000


class Process:
    """A process with one flow and one lane, at a time that is set; it stops when `until_s` is over."""

    def __init__(self) -> None:
        self.time_s = self.until_s = 0.0
        self.at_each: Callable[[], None] = lambda: None
        self.stage = Stage.RUNNING
        self.states: dict[Partition, PartitionState] = {A: Copying(), B: Copying()}
        self.figures = Figures(["f"], self.now_ms)
        self.lane = self.figures.lane(plan(0, "one"), self.states_now)
        self.views = Views({"f": ("a", "b")}, self.figures, {}, lambda: {"f": self.stage})
        self.summaries = Summaries(self.views.flows, self, structlog.get_logger())

    def states_now(self) -> Mapping[Partition, PartitionState]:
        return self.states

    def now_s(self) -> float:
        return self.time_s

    def now_ms(self) -> int:
        return round(self.time_s * 1000)

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        if self.time_s + timeout_s > self.until_s:
            return True
        self.time_s += timeout_s
        self.at_each()
        return False

    def copy(self, records: int, offset: int = 1) -> None:
        self.lane.on_committed({A: Copied(offset, records=records, bytes=records * 10)}, {A: position(offset)}, 0.01)

    def run(self, for_s: float, at_each: Callable[[], None] = lambda: None) -> None:
        self.until_s, self.at_each = self.time_s + for_s, at_each
        self.summaries.run(threading.Event())


@pytest.fixture
def process() -> Process:
    return Process()


@pytest.fixture
def configured() -> Iterator[io.StringIO]:
    before, file = structlog.get_config(), io.StringIO()
    logs.configure("json", "info", file)
    yield file
    structlog.configure(**before)


def test_it_says_what_was_copied_since_the_last_one(process: Process) -> None:
    process.copy(30)
    with capture_logs() as told:
        process.run(SUMMARY_S)
        process.copy(15)
        process.copy(45)
        process.run(SUMMARY_S)
    one, other = ({key: line[key] for key in ("records", "bytes", "records_per_s", "commits")} for line in told)
    assert one == {"records": 30, "bytes": 300, "records_per_s": 1.0, "commits": 1}
    assert other == {"records": 60, "bytes": 600, "records_per_s": 2.0, "commits": 2}
    assert {line["flow"] for line in told} == {"f"}
    assert (told[0]["copying"], told[0]["waiting"], told[0]["stopped"]) == (2, 0, 0)


def test_only_what_has_changed_is_told_and_once_an_hour_that_nothing_has(process: Process) -> None:
    with capture_logs() as told:
        process.run(SUMMARY_S)
        assert len(told) == 1, "that it has begun to copy"
        process.run(UNCHANGED_S - SUMMARY_S)
        assert len(told) == 1
        process.run(SUMMARY_S)
        assert len(told) == 2
        process.states[B] = WAITS
        process.run(SUMMARY_S)
    assert [(line["copying"], line["waiting"]) for line in told] == [(2, 0), (2, 0), (1, 1)]


def test_it_says_how_far_the_flow_is_behind(process: Process) -> None:
    """Records and seconds as metrics and `top` have them, and neither while the lag of a partition is unknown."""
    one, other = partition("t", 0, lag=Lag(40, 2.0, 0)), partition("t", 1, lag=Lag(7, 12.34, 3))
    views: list[FlowView] = []
    summaries = Summaries(lambda: views, process, structlog.get_logger())
    with capture_logs() as told:
        for partitions in ((one, other), (one, replace(other, lag=None)), (replace(one, lag=Lag(0, 0.0, 0)),)):
            views[:] = [flow(*partitions)]
            summaries.write()
    assert [(line["lag_records"], line["lag_seconds"]) for line in told] == [(47, 12.3), (None, None), (0, 0.0)]


def test_after_a_quiet_time_the_rate_is_of_the_last_interval(process: Process) -> None:
    process.run(10 * SUMMARY_S)
    process.copy(60)
    with capture_logs() as told:
        process.run(SUMMARY_S)
    assert told[0]["records_per_s"] == 2.0


def test_of_a_flow_that_has_ended_the_rest_is_told(process: Process) -> None:
    process.run(SUMMARY_S)
    process.copy(7)
    process.stage = Stage.OVER
    with capture_logs() as told:
        process.summaries.write()
        process.summaries.write()
        process.run(2 * UNCHANGED_S)
    assert [line["records"] for line in told] == [7]


def test_a_bug_is_told(process: Process) -> None:
    def broken() -> None:
        raise ValueError("no view")

    process.views.flows = broken  # type: ignore[method-assign,assignment]
    process.summaries = Summaries(process.views.flows, process, structlog.get_logger())
    with capture_logs() as told, pytest.raises(ValueError, match="no view"):
        process.run(SUMMARY_S)
    assert [line["event"] for line in told] == ["summary_failed"]


@pytest.mark.tier("default")
def test_a_day_at_100_records_a_second_is_at_most_one_and_a_half_megabytes(configured: io.StringIO) -> None:
    """Beside them there is a line an hour of a lane, `recommitted`, while all is well."""
    process, offset = Process(), 10**12

    def copy() -> None:
        nonlocal offset
        offset += 3_000
        process.copy(3_000, offset)

    process.run(DAY_S, copy)
    lines = configured.getvalue().splitlines()
    assert len(lines) == DAY_S / SUMMARY_S
    assert max(map(len, lines)) * len(lines) <= DAY_BYTES_MAX / 2
