"""The views of the flows as Prometheus metrics. Names follow Prometheus' conventions and begin with `eos_`.

`METRICS` has every name with its meaning and labels; docs/reference/metrics.md is made of it. They are written
here, and not by Prometheus' client, which takes ten times as long for a thousand partitions; it reads them again in
tests, and writes what it knows of the process itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector, generate_latest

from replicator.groups.shown_groups import in_sync
from replicator.observe.figures import SECONDS, GroupFigures, LaneFigures
from replicator.observe.view import Doing, FlowView, PartitionView
from replicator.observe.worker_figures import WorkerFigures
from replicator.state.run_settings import FLOW as ALL
from replicator.state.run_settings import RateLimit
from replicator.workers.lane_stages import LaneStage

FLOW, LANE, PARTITION = ("flow",), ("flow", "lane"), ("flow", "topic", "partition")
CLUSTER, TOPIC = ("flow", "cluster"), ("flow", "topic")

GROUPS_MAX = 1_000


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
    "eos_config_fault": Described(
        "gauge", (), "1 while the process goes on with older settings because the flow file has a fault, else 0."
    ),
    "eos_flow_stage": Described("gauge", FLOW, "0: starting, 1: running, 2: ended and started again, 3: over."),
    "eos_flow_ready": Described(
        "gauge", FLOW, "1 if the flow runs, its clusters answer and each of its partitions is copied or paused, else 0."
    ),
    "eos_flow_cluster_unreachable": Described(
        "gauge",
        CLUSTER,
        "1 from 4 s after the last answer of any of its brokers, or 2.5 s after the flow began to connect in vain, "
        "until the next one, else 0.",
    ),
    "eos_flow_failed_over": Described("gauge", FLOW, "1 while the whole flow is failed over, else 0."),
    "eos_flow_other_settings": Described(
        "gauge", FLOW, "1 while the flow runs with other settings than this process's flow file has, else 0."
    ),
    "eos_flow_rate_limit_records_per_second": Described(
        "gauge", FLOW, "How many records of the flow this process copies at most; absent without such a limit."
    ),
    "eos_flow_rate_limit_bytes_per_second": Described(
        "gauge", FLOW, "How many bytes of keys, values and headers it copies at most; absent as above."
    ),
    "eos_topic_rate_limit_records_per_second": Described(
        "gauge",
        TOPIC,
        "The same for a source topic that has a limit of its own; absent as above, and once the flow file no longer "
        "has the topic.",
    ),
    "eos_topic_rate_limit_bytes_per_second": Described("gauge", TOPIC, "In bytes, as above."),
    "eos_flow_partitions": Described("gauge", (*FLOW, "state"), "Partitions in this state."),
    "eos_flow_lag_records": Described(
        "gauge", FLOW, "Of all partitions; absent unless it is known of each that is copied."
    ),
    "eos_flow_lag_seconds": Described("gauge", FLOW, "The largest of all partitions; absent as above."),
    "eos_flow_records": Described("counter", FLOW, "Records committed on the target since the process began."),
    "eos_flow_bytes": Described("counter", FLOW, "Bytes of keys, values and headers of those records."),
    "eos_flow_lost_records": Described(
        "counter",
        FLOW,
        "Under at_most_once: how many records the target has refused or not acknowledged in time, or could not be "
        "sent; they are not written again. 0 with other deliveries.",
    ),
    "eos_flow_end_to_end_seconds": Described(
        "gauge",
        FLOW,
        "How long the newest heartbeat took until a read_committed reader of the target got it; absent without "
        "`heartbeat`, and before the first.",
    ),
    "eos_flow_heartbeat_timestamp_seconds": Described(
        "gauge", FLOW, "When the newest heartbeat that has arrived at the target was written; absent as above."
    ),
    "eos_flow_groups": Described(
        "gauge",
        (*FLOW, "state"),
        "Consumer groups: in_sync; unknown, if they could not be looked at for three rounds; without_offsets in the "
        "flow's topics; other. Of the process that syncs them.",
    ),
    "eos_flow_share_groups": Described("gauge", FLOW, "How many of them are share groups (KIP-932)."),
    "eos_flow_groups_synced_timestamp_seconds": Described(
        "gauge", FLOW, "When the last round ended; absent where no groups are synced, or not by this process."
    ),
    "eos_group_partitions": Described(
        "gauge", (*FLOW, "group", "verdict"), "Partitions of a consumer group by what became of them in the last round."
    ),
    "eos_flow_schemas_synced_timestamp_seconds": Described(
        "gauge",
        FLOW,
        "When the target's schema registry was last known to have all schemas of the flow; 0: not yet. Absent where "
        "none are synced, or not by this process.",
    ),
    "eos_flow_partitions_omitted": Described(
        "gauge", FLOW, "Partitions without metrics of their own: they are more than metrics.partitions_max."
    ),
    "eos_partition_state": Described(
        "gauge",
        PARTITION,
        "0: undecided, 1: copying, 2: waiting, 3: stopped, 4: gone, 5: paused, 6: failed_over.",
    ),
    "eos_partition_cause": Described("gauge", (*PARTITION, "kind"), "1 for the reason it waits, or its incident."),
    "eos_partition_records": Described("counter", PARTITION, "Records committed since the process began."),
    "eos_partition_bytes": Described("counter", PARTITION, "Bytes of keys, values and headers of those records."),
    "eos_partition_lost_records": Described(
        "counter", PARTITION, "Of eos_flow_lost_records_total, those of this partition; absent before the first."
    ),
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
    "eos_lane_queued_bytes": Described(
        "gauge",
        LANE,
        "Bytes of records that wait for the target's acknowledgement, half a second old; exactly_once only.",
    ),
    "eos_lane_fenced": Described("counter", LANE, "How often the lane's producer was fenced."),
    "eos_lane_held": Described("gauge", LANE, "1 if this process was given the lane and runs it; of shared flows."),
    "eos_lane_outgoing": Described(
        "gauge", LANE, "1 if it copies a lane that isn't its own any more, until another process has taken it over."
    ),
    "eos_flow_rebalances": Described("counter", FLOW, "Assignments of lanes by the flow's group; of shared flows."),
    "eos_flow_handovers": Described("counter", FLOW, "Lanes that this process was given and has begun to run."),
    "eos_flow_handover_seconds": Described(
        "counter", FLOW, "How long that took in all, from the assignment until the lane's predecessor was fenced."
    ),
    "eos_flow_standing_by": Described(
        "gauge",
        FLOW,
        "1 while this process runs nothing of the flow and waits: `standing_by` in the log says for what.",
    ),
}


def shown_name(name: str) -> str:
    """Return the name under which a metric is known: that of its samples, where they have only one."""
    suffixes = SUFFIXES[METRICS[name].kind]
    return name + suffixes[0] if len(suffixes) == 1 else name


Sample = tuple[str, str, float]
"""Name, labels as they are written, value."""


class Metrics:
    """Writes all metrics of the process as Prometheus reads them."""

    def __init__(
        self,
        flows: Callable[[], Sequence[FlowView]],
        version: str,
        partitions_max: int,
        config_fault: Callable[[], str] = lambda: "",
    ) -> None:
        """`flows`: as they are now. Of a flow with more than `partitions_max` partitions none has metrics of its own:
        the same ones would be missing from one scrape and not from the next. `config_fault`: as of `Endpoint`."""
        self._flows, self._version, self._partitions_max = flows, version, partitions_max
        self._config_fault = config_fault
        self._process = CollectorRegistry()
        ProcessCollector(registry=self._process)
        PlatformCollector(registry=self._process)

    def text(self) -> bytes:
        """Return them in Prometheus' text format 0.0.4."""
        lines: dict[str, list[str]] = {name: [] for name in METRICS}
        lines["eos_build"].append(f"eos_build_info{{{_labels(version=self._version)}}} 1\n")
        lines["eos_config_fault"].append(f"eos_config_fault {int(bool(self._config_fault()))}\n")
        for flow in self._flows():
            for name, labels, value in self._of_flow(flow):
                lines[name].append(f"{_SAMPLES[name]}{{{labels}}} {_number(value)}\n")
            for lane, figures in flow.lanes.items():
                lines[DURATIONS] += _durations(_labels(flow=flow.name, lane=str(lane)), figures)
        written = "".join(text for name in METRICS for text in (_HEADERS[name], *lines[name]))
        return generate_latest(self._process) + written.encode()

    def _of_flow(self, flow: FlowView) -> Iterator[Sample]:
        """Yield all gauges and counters of a flow."""
        labels = _labels(flow=flow.name)
        yield "eos_flow_stage", labels, flow.stage
        yield "eos_flow_ready", labels, flow.ready
        for cluster in dict.fromkeys((flow.source, flow.target)):
            away = cluster in flow.conditions.unreachable_ms
            yield "eos_flow_cluster_unreachable", f"{labels},{_labels(cluster=cluster)}", away
        yield "eos_flow_failed_over", labels, bool(flow.conditions.failed_over)
        yield "eos_flow_other_settings", labels, bool(flow.conditions.other_settings)
        yield from _of_rates(labels, {at: it for at, it in flow.rates.items() if at not in flow.taken_out})
        counts = flow.counts
        for doing in Doing:
            yield "eos_flow_partitions", f"{labels},{_labels(state=doing.name.lower())}", counts[doing]
        if (records := flow.lag_records) is not None:
            yield "eos_flow_lag_records", labels, records
        if (seconds := flow.lag_seconds) is not None:
            yield "eos_flow_lag_seconds", labels, seconds
        yield "eos_flow_records", labels, flow.records
        yield "eos_flow_bytes", labels, flow.bytes
        yield "eos_flow_lost_records", labels, flow.lost_records
        if flow.heartbeat is not None:
            yield "eos_flow_end_to_end_seconds", labels, flow.heartbeat.took_s
            yield "eos_flow_heartbeat_timestamp_seconds", labels, flow.heartbeat.written_ms / 1000
        if flow.worker is not None:
            yield from _of_worker(labels, flow.worker)
        if flow.groups is not None:
            yield from _of_groups(labels, flow.groups)
        if flow.schemas is not None:
            yield "eos_flow_schemas_synced_timestamp_seconds", labels, flow.schemas.synced_ms / 1000
        omitted = len(flow.partitions) > self._partitions_max
        yield "eos_flow_partitions_omitted", labels, len(flow.partitions) if omitted else 0
        if not omitted:
            for partition in flow.partitions:
                at = partition.at
                of_it = _labels(topic=at.topic, partition=str(at.partition))
                yield from _of_partition(f"{labels},{of_it}", partition)
        for lane, figures in flow.lanes.items():
            yield from _of_lane(f"{labels},{_labels(lane=str(lane))}", figures)


def _of_rates(labels: str, rates: Mapping[str, RateLimit]) -> Iterator[Sample]:
    for topic, limit in rates.items():
        of, at = ("flow", labels) if topic == ALL else ("topic", f"{labels},{_labels(topic=topic)}")
        if limit.records_per_s is not None:
            yield f"eos_{of}_rate_limit_records_per_second", at, limit.records_per_s
        if limit.bytes_per_s is not None:
            yield f"eos_{of}_rate_limit_bytes_per_second", at, limit.bytes_per_s


def _of_groups(labels: str, figures: GroupFigures) -> Iterator[Sample]:
    """Yield gauges of groups, of the first `GROUPS_MAX` each verdict."""
    synced = in_sync(figures.groups)
    yield "eos_flow_groups", f"{labels},{_labels(state='in_sync')}", synced
    unknown = sum(bool(it.unknown) for it in figures.groups)
    without = sum(it.without_offsets for it in figures.groups)
    yield "eos_flow_groups", f"{labels},{_labels(state='unknown')}", unknown
    yield "eos_flow_groups", f"{labels},{_labels(state='without_offsets')}", without
    yield "eos_flow_groups", f"{labels},{_labels(state='other')}", len(figures.groups) - synced - unknown - without
    yield "eos_flow_share_groups", labels, sum(it.kind == "share" for it in figures.groups)
    yield "eos_flow_groups_synced_timestamp_seconds", labels, figures.synced_ms / 1000
    for it in figures.groups[:GROUPS_MAX]:
        for verdict, partitions in it.counts.items():
            yield "eos_group_partitions", f"{labels},{_labels(group=it.group, verdict=verdict.value)}", partitions


def _of_worker(labels: str, worker: WorkerFigures) -> Iterator[Sample]:
    yield "eos_flow_rebalances", labels, worker.rebalances
    yield "eos_flow_handovers", labels, worker.handovers
    yield "eos_flow_handover_seconds", labels, worker.handover_s
    yield "eos_flow_standing_by", labels, bool(worker.standing_by)
    for lane, stage in worker.stages.items():
        of_lane = f"{labels},{_labels(lane=str(lane))}"
        yield "eos_lane_held", of_lane, stage is LaneStage.RUNNING
        yield "eos_lane_outgoing", of_lane, stage.copies and not stage.assigned


def _of_partition(labels: str, partition: PartitionView) -> Iterator[Sample]:
    figures, lag = partition.figures, partition.lag
    yield "eos_partition_state", labels, partition.doing
    if partition.kind:
        yield "eos_partition_cause", f"{labels},{_labels(kind=partition.kind)}", 1
    yield "eos_partition_records", labels, figures.records
    yield "eos_partition_bytes", labels, figures.bytes
    if figures.lost_records:
        yield "eos_partition_lost_records", labels, figures.lost_records
    if figures.position is not None:
        yield "eos_partition_position", labels, figures.position
    if lag is not None:
        yield "eos_partition_lag_records", labels, lag.records
        yield "eos_partition_lag_seconds", labels, lag.seconds
        yield "eos_partition_held_back_records", labels, lag.held_back
    if figures.committed_ms:
        yield "eos_partition_last_commit_timestamp_seconds", labels, figures.committed_ms / 1000


def _of_lane(labels: str, figures: LaneFigures) -> Iterator[Sample]:
    yield "eos_lane_sessions", labels, figures.sessions
    yield "eos_lane_fenced", labels, figures.fenced
    if figures.queued_bytes is not None:
        yield "eos_lane_queued_bytes", labels, figures.queued_bytes
    for kind, times in sorted(figures.aborts.items()):
        yield "eos_lane_aborts", f"{labels},{_labels(kind=kind)}", times


def _durations(labels: str, figures: LaneFigures) -> Iterator[str]:
    until = 0
    for bound, count in zip([*map(str, SECONDS), "+Inf"], figures.took, strict=True):
        until += count
        yield f'{DURATIONS}_bucket{{{labels},le="{bound}"}} {until}\n'
    yield f"{DURATIONS}_count{{{labels}}} {until}\n"
    yield f"{DURATIONS}_sum{{{labels}}} {_number(figures.took_s)}\n"


_ESCAPED = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


def _labels(**values: str) -> str:
    return ",".join(f'{name}="{value.translate(_ESCAPED)}"' for name, value in values.items())


def _number(value: float) -> str:
    return repr(value) if isinstance(value, float) else str(int(value))


DURATIONS = "eos_lane_transaction_seconds"
_SAMPLES = {name: name + SUFFIXES[described.kind][0] for name, described in METRICS.items()}
_HEADERS = {
    name: f"# HELP {shown_name(name)} {described.help}\n"
    f"# TYPE {shown_name(name)} {'gauge' if described.kind == 'info' else described.kind}\n"
    for name, described in METRICS.items()
}
