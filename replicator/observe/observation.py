"""Puts together what a process shows of itself over HTTP: figures of its lanes, and the lag behind its sources.

Called by `eos-replicate run` where the flow file has `metrics.listen`; otherwise lanes tell nobody.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

import structlog

from replicator.clock import RealClock
from replicator.config import Flow, MetricsSection
from replicator.flow.restarts import Stage
from replicator.flow.topics import topics_of
from replicator.lane.driver import Observe
from replicator.observe import serving
from replicator.observe.figures import Figures
from replicator.observe.lag import LagWatch
from replicator.observe.metrics import Metrics
from replicator.observe.view import Views
from replicator.observe.web import Web


class Observation:
    """Of one process and the flows that it runs."""

    def __init__(self, section: MetricsSection, flows: Sequence[Flow], version: str) -> None:
        """Raises ConfigError where `metrics.listen` can't be listened on: nothing has begun then."""
        self._section, self._version, self._flows = section, version, flows
        clock = RealClock()
        self._figures = Figures((flow.name for flow in flows), clock.now_ms)
        self._lags: Mapping[str, LagWatch] = {
            flow.name: LagWatch(
                partial(topics_of, flow, flow.source, "lag"),
                self._figures.flows[flow.name].partition_positions,
                clock,
                section.lag_interval_ms / 1000,
            )
            for flow in flows
        }
        host, _, port = section.listen.rpartition(":")
        self._listening = serving.bound(host.strip("[]"), int(port))
        self.observe: Observe = self._figures.lane

    @contextmanager
    def serving(self, stages: Callable[[], Mapping[str, Stage]]) -> Iterator[None]:
        """Answer for as long as the block runs. `stages`: where the daemon says that each flow stands."""
        clusters = {flow.name: (flow.source.name, flow.target.name) for flow in self._flows}
        views = Views(clusters, self._figures, self._lags, stages)
        metrics = Metrics(views.flows, self._version, self._section.partitions_max)
        web, log, ended = Web(views.flows, metrics, self._section.token), structlog.get_logger(), threading.Event()
        for name, watch in self._lags.items():
            target = partial(watch.run, ended, log.bind(flow=name))
            threading.Thread(target=target, name=f"{name}.lag", daemon=True).start()
        with serving.serving(self._listening, web, log):
            try:
                yield
            finally:
                ended.set()
