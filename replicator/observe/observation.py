"""What one process knows of its flows while it runs them: what lanes tell, and how far they are behind the source.

It is shown in the log, and where the flow file has `metrics.listen` to whoever asks over HTTP.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial

import structlog

from replicator.clock import RealClock
from replicator.config import Config, Flow
from replicator.config.routing import selects
from replicator.flow.restarts import Stage
from replicator.flow.topics import topics_of
from replicator.lane.driver import Observe
from replicator.observe.figures import Figures
from replicator.observe.lag import LagWatch
from replicator.observe.summaries import Summaries
from replicator.observe.view import Views


@dataclass(frozen=True, slots=True)
class _Watch:
    """Of one flow: what asks for its lag, until `ended`."""

    flow: Flow
    lag: LagWatch
    ended: threading.Event


class Observation:
    """Of one process and the flows that it runs."""

    def __init__(self, config: Config, flows: Sequence[Flow], version: str) -> None:
        """Raises ConfigError where `metrics.listen` can't be listened on: nothing has begun then."""
        self._flows, self._clock = flows, RealClock()
        self._figures = Figures((flow.name for flow in flows), self._clock.now_ms)
        self._lag_interval_s = config.metrics.lag_interval_ms / 1000
        self._watches: dict[str, _Watch] = {}
        self._views: Views | None = None
        self._endpoint = None
        if config.metrics.listen:
            from replicator.observe.endpoint import Endpoint  # what it needs takes time to be imported

            self._endpoint = Endpoint(config.metrics, version, self._clock)
        self.observe: Observe = self._figures.lane
        self.heartbeats, self.worker = self._figures.heartbeats, self._figures.worker
        self.groups, self.schemas = self._figures.groups, self._figures.schemas
        self.conditions, self.throttled = self._figures.conditions, self._figures.throttled
        self.lost = self._figures.lost

    @contextmanager
    def running(
        self,
        stages: Callable[[], Mapping[str, Stage]],
        causes: Callable[[], Mapping[str, str]],
        config_fault: Callable[[], str],
    ) -> Iterator[Callable[[], None]]:
        """Show what there is for as long as the block runs; gives what writes the last summaries.

        `stages`: where the daemon says that each flow stands. `causes`: why flows don't run. `config_fault`: why it
        goes on with older settings.
        """
        views = self._views = Views({}, self._figures, {}, stages, causes)
        log, ended = structlog.get_logger(), threading.Event()
        summaries = Summaries(views.flows, self._clock, log)
        self.take(self._flows)
        threading.Thread(target=partial(summaries.run, ended), name="summaries", daemon=True).start()
        with ExitStack() as open_:
            open_.callback(ended.set)
            open_.callback(self.take, ())
            if self._endpoint is not None:
                open_.enter_context(self._endpoint.serving(views.flows, config_fault, log))
            yield summaries.write

    def take(self, flows: Sequence[Flow]) -> None:
        """Show these flows from now on. Whose source is reached in another way is asked anew how far it is."""
        assert self._views is not None, "it isn't running"
        self._figures.add(flow.name for flow in flows)
        wanted = {flow.name: flow for flow in flows}
        for name, watch in list(self._watches.items()):
            if name not in wanted or wanted[name].source != watch.flow.source:
                watch.ended.set()
                del self._watches[name]
        for name, flow in wanted.items():
            if name not in self._watches:
                self._watches[name] = self._watch(flow)
        clusters = {name: (flow.source.name, flow.target.name) for name, flow in wanted.items()}
        self._views.take(clusters, {name: self._watches[name].lag for name in wanted}, partial(_selects, wanted))

    def _watch(self, flow: Flow) -> _Watch:
        lag = LagWatch(
            partial(topics_of, flow, flow.source, "lag"),
            self._figures.flows[flow.name].partition_positions,
            self._clock,
            self._lag_interval_s,
        )
        ended = threading.Event()
        target = partial(lag.run, ended, structlog.get_logger().bind(flow=flow.name))
        threading.Thread(target=target, name=f"{flow.name}.lag", daemon=True).start()
        return _Watch(flow, lag, ended)


def _selects(flows: Mapping[str, Flow], name: str, topic: str) -> bool:
    return selects(flows[name], topic)
