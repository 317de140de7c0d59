"""The log's summary of each flow: one line every 30 s in which something has changed, and one an hour if nothing has.

So a day of one flow that copies all the time is 2,880 lines, whatever it copies.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import structlog

from replicator.flow.restarts import Stage
from replicator.lane.ports import Clock
from replicator.observe.view import Doing, FlowView

SUMMARY_S = 30.0
UNCHANGED_S = 3_600.0
_COUNTED = (Doing.COPYING, Doing.WAITING, Doing.STOPPED, Doing.PAUSED, Doing.FAILED_OVER)
"""For so long a flow of which nothing changes is not summed up."""


@dataclass(frozen=True, slots=True)
class _Summary:
    """Sums at the time of a flow's last summary, and what else it said."""

    at_s: float
    records: int = 0
    bytes: int = 0
    commits: int = 0
    lag_records: int | None = None
    counts: tuple[int, ...] = ()

    def changed(self, since: _Summary) -> bool:
        """Return whether there is anything to say."""
        if self.records != since.records or self.commits != since.commits:
            return True
        return (self.lag_records, self.counts) != (since.lag_records, since.counts)


class Summaries:
    """Writes the summaries of all flows of one process."""

    def __init__(
        self, flows: Callable[[], Sequence[FlowView]], clock: Clock, log: structlog.stdlib.BoundLogger
    ) -> None:
        """`flows`: as they are now."""
        self._flows, self._clock, self._log = flows, clock, log
        self._lock = threading.Lock()
        self._told: dict[str, _Summary] = {}
        self._looked_s = self._clock.now_s()

    def run(self, ended: threading.Event) -> None:
        """Write them every 30 s until `ended` is set. A bug ends the summaries, not the copying, and is told."""
        try:
            while not self._clock.wait(ended, SUMMARY_S):
                self.write()
        except BaseException:
            self._log.exception("summary_failed")
            raise

    def write(self) -> None:
        """Write a line for each flow of which there is something to say. From any thread."""
        with self._lock:
            now_s = self._clock.now_s()
            for flow in self._flows():
                self._write(flow, now_s)
            self._looked_s = now_s

    def _write(self, flow: FlowView, now_s: float) -> None:
        before = self._told.get(flow.name) or _Summary(self._looked_s)
        counts = flow.counts
        now = _Summary(
            now_s,
            flow.records,
            flow.bytes,
            sum(sum(lane.took) for lane in flow.lanes.values()),
            flow.lag_records,
            tuple(counts[doing] for doing in _COUNTED),
        )
        copied = now.records != before.records
        runs = flow.stage is Stage.RUNNING and counts.total() > 0
        if not (copied or (runs and (now.changed(before) or now_s >= before.at_s + UNCHANGED_S))):
            return
        seconds, lag_seconds = now_s - self._looked_s, flow.lag_seconds
        self._told[flow.name] = now
        self._log.info(
            "summary",
            flow=flow.name,
            records=now.records - before.records,
            bytes=now.bytes - before.bytes,
            records_per_s=round((now.records - before.records) / seconds, 1) if seconds > 0 else 0.0,
            commits=now.commits - before.commits,
            lag_records=now.lag_records,
            lag_seconds=None if lag_seconds is None else round(lag_seconds, 1),
            copying=counts[Doing.COPYING],
            waiting=counts[Doing.WAITING] + counts[Doing.PAUSED] + counts[Doing.FAILED_OVER],
            stopped=counts[Doing.STOPPED],
        )
