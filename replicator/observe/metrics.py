"""The views of the flows as Prometheus metrics. Names follow Prometheus' conventions and begin with `eos_`.

`METRICS` has every name with its meaning and labels; docs/operate/monitoring.md is checked against it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from replicator.observe.figures import SECONDS, LaneFigures
from replicator.observe.view import Doing, FlowView, PartitionView

FLOW, LANE, PARTITION = ("flow",), ("flow", "lane"), ("flow", "topic", "partition")


SUFFIXES: Mapping[str, tuple[str, ...]] = {
    "gauge": ("",),
    "counter": ("_total",),
    "info": ("_info",),
    "histogram": ("_bucket", "_sum", "_count"),
}
"""By kind of metric: what the names of its samples have behind its own."""


class Described(NamedTuple):
    """A metric without its values. `kind`: of `SUFFIXES`."""

    kind: str
    labels: tuple[str, ...]
    help: str


METRICS: Mapping[str, Described] = {
    "eos_build": Described("info", (), "The version of eos-replicate."),
    "eos_flow_stage": Described("gauge", FLOW, "0: starting, 1: running, 2: ended and started again, 3: over."),
    "eos_flow_ready": Described("gauge", FLOW, "1 if the flow runs and each of its partitions is copied, else 0."),
    "eos_flow_partitions": Described("gauge", (*FLOW, "state"), "Partitions in this state."),
    "eos_flow_lag_records": Described("gauge", FLOW, "Of all partitions; absent unless it is known of each."),
    "eos_flow_lag_seconds": Described("gauge", FLOW, "The largest of all partitions; absent as above."),
    "eos_flow_records": Described("counter", FLOW, "Records committed on the target since the process began."),
    "eos_flow_bytes": Described("counter", FLOW, "Bytes of keys, values and headers of those records."),
    "eos_flow_partitions_omitted": Described(
        "gauge", FLOW, "Partitions without metrics of their own: they are more than metrics.partitions_max."
    ),
    "eos_partition_state": Described("gauge", PARTITION, "0: undecided, 1: copying, 2: waiting, 3: stopped."),
    "eos_partition_cause": Described("gauge", (*PARTITION, "kind"), "1 for the reason it waits, or its incident."),
    "eos_partition_records": Described("counter", PARTITION, "Records committed since the process began."),
    "eos_partition_bytes": Described("counter", PARTITION, "Bytes of keys, values and headers of those records."),
    "eos_partition_position": Described("gauge", PARTITION, "The next source offset to be copied."),
    "eos_partition_lag_records": Described("gauge", PARTITION, "The source's last stable offset minus the position."),
    "eos_partition_lag_seconds": Described(
        "gauge", PARTITION, "How long ago the source had, as this process saw it, an end that is not copied yet."
    ),
    "eos_partition_held_back_records": Described(
        "gauge", PARTITION, "The source's high watermark minus its last stable offset: held back by open transactions."
    ),
    "eos_partition_last_commit_timestamp_seconds": Described(
        "gauge", PARTITION, "When records were last committed; absent before the first."
    ),
    "eos_lane_transaction_seconds": Described(
        "histogram", LANE, "From a transaction's first record to the end of its commit."
    ),
    "eos_lane_aborts": Described("counter", (*LANE, "kind"), "Aborted transactions by the class of the error."),
    "eos_lane_sessions": Described("counter", LANE, "Producer sessions that have begun to copy."),
    "eos_lane_fenced": Described("counter", LANE, "How often the lane's producer was fenced."),
}


def shown_name(name: str) -> str:
    """Return the name under which a metric is known: that of its samples, where they have only one."""
    suffixes = SUFFIXES[METRICS[name].kind]
    return name + suffixes[0] if len(suffixes) == 1 else name


class FlowsCollector(Collector):
    """Makes the metrics of all flows at each scrape."""

    def __init__(self, flows: Callable[[], Sequence[FlowView]], version: str, partitions_max: int) -> None:
        """`flows`: as they are now. Of a flow with more than `partitions_max` partitions none has metrics of its own:
        the same ones would be missing from one scrape and not from the next."""
        self._flows, self._version, self._partitions_max = flows, version, partitions_max

    def collect(self) -> Iterable[Metric]:
        """See prometheus_client."""
        flows = self._flows()
        build = InfoMetricFamily("eos_build", METRICS["eos_build"].help, value={"version": self._version})
        values: dict[str, list[tuple[Sequence[str], float]]] = {name: [] for name in METRICS}
        for flow in flows:
            for name, labels, value in self._of_flow(flow):
                values[name].append(((flow.name, *labels), value))
        yield build
        for name, described in METRICS.items():
            if described.kind in ("gauge", "counter"):
                family = GaugeMetricFamily if described.kind == "gauge" else CounterMetricFamily
                made = family(name, described.help, labels=described.labels)
                for at, value in values[name]:
                    made.add_metric(at, value)
                yield made
        yield _durations(flows)

    def _of_flow(self, flow: FlowView) -> Iterator[tuple[str, tuple[str, ...], float]]:
        """All gauges and counters: name, labels behind the flow's, value."""
        yield "eos_flow_stage", (), flow.stage
        yield "eos_flow_ready", (), flow.ready
        counts = flow.counts
        for doing in Doing:
            yield "eos_flow_partitions", (doing.name.lower(),), counts[doing]
        if (records := flow.lag_records) is not None:
            yield "eos_flow_lag_records", (), records
        if (seconds := flow.lag_seconds) is not None:
            yield "eos_flow_lag_seconds", (), seconds
        yield "eos_flow_records", (), sum(each.figures.records for each in flow.partitions)
        yield "eos_flow_bytes", (), sum(each.figures.bytes for each in flow.partitions)
        omitted = len(flow.partitions) > self._partitions_max
        yield "eos_flow_partitions_omitted", (), len(flow.partitions) if omitted else 0
        if not omitted:
            for partition in flow.partitions:
                labels = (partition.at.topic, str(partition.at.partition))
                yield from ((name, (*labels, *more), value) for name, more, value in _of_partition(partition))
        for lane, figures in flow.lanes.items():
            yield from ((name, (str(lane), *more), value) for name, more, value in _of_lane(figures))


def _of_partition(partition: PartitionView) -> Iterator[tuple[str, tuple[str, ...], float]]:
    figures, lag = partition.figures, partition.lag
    yield "eos_partition_state", (), partition.doing
    if partition.kind:
        yield "eos_partition_cause", (partition.kind,), 1
    yield "eos_partition_records", (), figures.records
    yield "eos_partition_bytes", (), figures.bytes
    if figures.position is not None:
        yield "eos_partition_position", (), figures.position
    if lag is not None:
        yield "eos_partition_lag_records", (), lag.records
        yield "eos_partition_lag_seconds", (), lag.seconds
        yield "eos_partition_held_back_records", (), lag.held_back
    if figures.committed_ms:
        yield "eos_partition_last_commit_timestamp_seconds", (), figures.committed_ms / 1000


def _of_lane(figures: LaneFigures) -> Iterator[tuple[str, tuple[str, ...], float]]:
    yield "eos_lane_sessions", (), figures.sessions
    yield "eos_lane_fenced", (), figures.fenced
    for kind, times in sorted(figures.aborts.items()):
        yield "eos_lane_aborts", (kind,), times


def _durations(flows: Iterable[FlowView]) -> Metric:
    name = "eos_lane_transaction_seconds"
    made = HistogramMetricFamily(name, METRICS[name].help, labels=METRICS[name].labels)
    for flow in flows:
        for lane, figures in flow.lanes.items():
            until, buckets = 0, []
            for bound, count in zip([*map(str, SECONDS), "+Inf"], figures.took, strict=True):
                until += count
                buckets.append((bound, until))
            made.add_metric((flow.name, str(lane)), buckets, figures.took_s)
    return made


class Metrics:
    """Writes all metrics of the process as Prometheus reads them."""

    def __init__(self, flows: Callable[[], Sequence[FlowView]], version: str, partitions_max: int) -> None:
        """As `FlowsCollector`."""
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        self._registry.register(FlowsCollector(flows, version, partitions_max))

    def text(self) -> bytes:
        """Return them in Prometheus' text format 0.0.4."""
        return generate_latest(self._registry)
