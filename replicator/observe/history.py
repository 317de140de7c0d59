"""What a flow's lag and copied records were in the last hours, as far as this process saw them: for the status page.

A sample each `SAMPLE_S`, in memory, bounded: it begins with the process and ends with it. Prometheus keeps longer ones.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import structlog

from replicator.lane.ports import Clock
from replicator.observe.view import FlowView

SAMPLE_S = 10.0
KEPT_S = 6 * 3_600
SAMPLES_MAX = KEPT_S // int(SAMPLE_S)
RATE_S = 20.0
"""Rates are those of the last 20 seconds: of more a flow that has stopped would go on for as long."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A flow at one moment. `at_s`: monotonic seconds; the lag is None where it wasn't known; `records` and `bytes`
    since the process began."""

    at_s: float
    lag_records: int | None
    records: int
    bytes: int


@dataclass(frozen=True, slots=True)
class CopyRate:
    """What a flow copied in a second."""

    records: float
    bytes: float


class History:
    """The samples of all flows of one process. From any thread."""

    def __init__(
        self, flows: Callable[[], Sequence[FlowView]], clock: Clock, log: structlog.stdlib.BoundLogger
    ) -> None:
        """`flows`: as they are now."""
        self._flows, self._clock, self._log = flows, clock, log
        self._lock = threading.Lock()
        self._samples: dict[str, deque[Sample]] = {}

    def run(self, ended: threading.Event) -> None:
        """Take samples until `ended` is set. A bug ends the history, not the copying, and is told."""
        try:
            while not ended.is_set():
                self.take()
                self._clock.wait(ended, SAMPLE_S)
        except BaseException:
            self._log.exception("history_failed")
            raise

    def take(self) -> None:
        """Add a sample of each flow."""
        now_s = self._clock.now_s()
        taken = {flow.name: Sample(now_s, flow.lag_records, flow.records, flow.bytes) for flow in self._flows()}
        with self._lock:
            for name, sample in taken.items():
                self._samples.setdefault(name, deque(maxlen=SAMPLES_MAX)).append(sample)

    def samples(self, flow: str) -> list[Sample]:
        """Return what there is of a flow, the oldest first."""
        with self._lock:
            return list(self._samples.get(flow, ()))


def rates(samples: Sequence[Sample]) -> list[CopyRate]:
    """Return what was copied a second between each two samples. Pure."""
    return [_rate(before, after) for before, after in pairwise(samples)]


def rate_now(samples: Sequence[Sample]) -> CopyRate | None:
    """Return the rate of the last `RATE_S`, or of what there is of it; None with fewer than two samples. Pure."""
    if len(samples) < 2:
        return None
    last = samples[-1]
    first = next(sample for sample in samples if sample.at_s >= last.at_s - RATE_S)
    return _rate(samples[-2] if first is last else first, last)


def _rate(before: Sample, after: Sample) -> CopyRate:
    seconds = after.at_s - before.at_s
    if seconds <= 0:
        return CopyRate(0.0, 0.0)
    return CopyRate((after.records - before.records) / seconds, (after.bytes - before.bytes) / seconds)
