"""What one process knows of its flows while it runs them: what lanes tell, and how far they are behind the source.

It is shown in the log, and where the flow file has `metrics.listen` to whoever asks over HTTP.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial

import structlog

from replicator.clock import RealClock
from replicator.config import Config, Flow
from replicator.flow.restarts import Stage
from replicator.flow.topics import topics_of
from replicator.lane.driver import Observe
from replicator.observe.figures import Figures
from replicator.observe.lag import LagWatch
from replicator.observe.summaries import Summaries
from replicator.observe.view import Views


class Observation:
    """Of one process and the flows that it runs."""

    def __init__(self, config: Config, flows: Sequence[Flow], version: str) -> None:
        """Raises ConfigError where `metrics.listen` can't be listened on: nothing has begun then."""
        self._flows, self._clock = flows, RealClock()
        self._figures = Figures((flow.name for flow in flows), self._clock.now_ms)
        self._lags: Mapping[str, LagWatch] = {
            flow.name: LagWatch(
                partial(topics_of, flow, flow.source, "lag"),
                self._figures.flows[flow.name].partition_positions,
                self._clock,
                config.metrics.lag_interval_ms / 1000,
            )
            for flow in flows
        }
        self._endpoint = None
        if config.metrics.listen:
            from replicator.observe.endpoint import Endpoint  # what it needs takes time to be imported

            self._endpoint = Endpoint(config.metrics, version, self._clock)
        self.observe: Observe = self._figures.lane

    @contextmanager
    def running(self, stages: Callable[[], Mapping[str, Stage]]) -> Iterator[Callable[[], None]]:
        """Show what there is for as long as the block runs; gives what writes the last summaries.

        `stages`: where the daemon says that each flow stands.
        """
        clusters = {flow.name: (flow.source.name, flow.target.name) for flow in self._flows}
        views = Views(clusters, self._figures, self._lags, stages)
        log, ended = structlog.get_logger(), threading.Event()
        summaries = Summaries(views.flows, self._clock, log)
        for name, watch in self._lags.items():
            target = partial(watch.run, ended, log.bind(flow=name))
            threading.Thread(target=target, name=f"{name}.lag", daemon=True).start()
        threading.Thread(target=partial(summaries.run, ended), name="summaries", daemon=True).start()
        with ExitStack() as open_:
            open_.callback(ended.set)
            if self._endpoint is not None:
                open_.enter_context(self._endpoint.serving(views.flows, log))
            yield summaries.write
