"""Samples of a flow's lag and counters, and rates between them."""

from __future__ import annotations

import threading

import structlog

from replicator.flow.restarts import Stage
from replicator.model.partition import Partition
from replicator.observe.figures import PartitionFigures
from replicator.observe.history import SAMPLE_S, SAMPLES_MAX, CopyRate, History, Sample, rate_now, rates
from replicator.observe.lag import Lag
from replicator.observe.view import Doing, FlowView, PartitionView


class Running:
    """A flow that copies ten records a second, and a clock that ends after `until_s`."""

    def __init__(self, until_s: float) -> None:
        self.time_s, self.until_s = 100.0, 100.0 + until_s

    def flows(self) -> list[FlowView]:
        records = int(self.time_s - 100) * 10
        figures, lag = PartitionFigures(records, 3 * records, records), Lag(7, 1.0, 0)
        return [
            FlowView(
                "f",
                "a",
                "b",
                Stage.RUNNING,
                (PartitionView(Partition("t", 0), Doing.COPYING, "", "", figures, lag),),
                {},
            )
        ]

    def now_s(self) -> float:
        return self.time_s

    def now_ms(self) -> int:
        return int(self.time_s * 1000)

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        self.time_s += timeout_s
        if self.time_s > self.until_s:
            event.set()
        return event.is_set()


def sampled(seconds: float) -> History:
    flow = Running(seconds)
    history = History(flow.flows, flow, structlog.get_logger())
    history.run(threading.Event())
    return history


def test_a_sample_at_each_interval() -> None:
    found = sampled(3 * SAMPLE_S).samples("f")
    assert [sample.at_s for sample in found] == [100 + number * SAMPLE_S for number in range(4)]
    assert {sample.lag_records for sample in found} == {7}
    assert rates(found) == [CopyRate(10.0, 30.0)] * 3
    assert rate_now(found) == CopyRate(10.0, 30.0)


def test_what_is_kept_is_bounded() -> None:
    found = sampled((SAMPLES_MAX + 50) * SAMPLE_S).samples("f")
    assert len(found) == SAMPLES_MAX
    assert found[-1].records == int((SAMPLES_MAX + 50) * SAMPLE_S) * 10


def test_no_rate_without_two_samples_and_none_of_another_flow() -> None:
    history = sampled(0)
    assert rate_now(history.samples("f")) is None
    assert history.samples("g") == []


def test_the_rate_is_that_of_the_last_twenty_seconds() -> None:
    samples = [
        Sample(0, 0, 0, 0),
        Sample(1_000, 0, 10**6, 0),
        Sample(1_010, 0, 10**6, 0),
        Sample(1_020, 0, 10**6, 0),
        Sample(1_030, 0, 10**6 + 20, 20),
    ]
    assert rate_now(samples) == CopyRate(1.0, 1.0)
    assert rate_now(samples[:2]) == CopyRate(1_000.0, 0.0), "after a pause: since the sample before"
