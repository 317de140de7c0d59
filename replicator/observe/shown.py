"""What the status page and `eos-replicate top` show of the flows: bounded, the gravest first. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

from replicator.groups.shown_groups import GroupShown, in_sync
from replicator.observe.figures import LaneFigures
from replicator.observe.history import CopyRate, Sample, rate_now, rates
from replicator.observe.plot import Plot, plot
from replicator.observe.view import Doing, FlowView, PartitionView
from replicator.state.run_settings import Paused, RateLimit

TOPICS_SHOWN, PARTITIONS_SHOWN, LANES_SHOWN, WORKERS_SHOWN, GROUPS_SHOWN = 200, 50, 32, 50, 100
"""Of one flow: rows of its topics, of partitions that are not copied, of lanes, of processes that share it, and of
consumer groups."""
SETTINGS_SHOWN = 20
"""Of its topics that operators have paused, and of those that have a limit of their own."""
GRAVITY = (
    Doing.STOPPED,
    Doing.WAITING,
    Doing.UNDECIDED,
    Doing.PAUSED,
    Doing.FAILED_OVER,
    Doing.GONE,
    Doing.COPYING,
)
"""What a partition does, the gravest first."""


@dataclass(frozen=True, slots=True)
class Process:
    """Who runs what is shown. `started_ms`: wall clock."""

    host: str
    pid: int
    version: str
    started_ms: int


@dataclass(frozen=True, slots=True)
class TopicRow:
    """One source topic. Its lag is None unless it is known of each partition that has a position."""

    name: str
    counts: Counter[Doing]
    records: int
    lag_records: int | None
    lag_seconds: float | None


@dataclass(frozen=True, slots=True)
class ShownFlow:
    """What is shown of one flow. `kept`: partitions that are not copied, the gravest first, as many as are shown;
    `kept_count`: how many there are. `topics` are those shown of `topic_count`, `lanes` likewise."""

    view: FlowView
    rate: CopyRate | None
    lag_plot: Plot | None
    rate_plot: Plot | None
    topics: list[TopicRow]
    topic_count: int
    kept: list[PartitionView]
    kept_count: int
    lanes: list[tuple[int, LaneFigures]]
    groups: list[GroupShown]


def shown_of(view: FlowView, samples: Sequence[Sample]) -> ShownFlow:
    """Choose what is shown of a flow. Pure."""
    times = [sample.at_s for sample in samples]
    per_s = [rate.records for rate in rates(samples)]
    topics = sorted(_topics(view), key=lambda row: (min(map(GRAVITY.index, row.counts)), row.name))
    kept = [each for each in view.partitions if not each.excluded and each.doing not in (Doing.COPYING, Doing.GONE)]
    kept.sort(key=lambda each: (GRAVITY.index(each.doing), each.at))
    return ShownFlow(
        view,
        rate_now(samples),
        plot(times, [sample.lag_records for sample in samples]),
        plot(times[1:], per_s),
        topics[:TOPICS_SHOWN],
        len(topics),
        kept[:PARTITIONS_SHOWN],
        len(kept),
        sorted(view.lanes.items())[:LANES_SHOWN],
        _groups(view)[:GROUPS_SHOWN],
    )


def _topics(view: FlowView) -> Iterator[TopicRow]:
    listed = [each for each in view.partitions if not each.excluded]
    for name, partitions in groupby(listed, key=lambda each: each.at.topic):
        of_topic = FlowView(view.name, view.source, view.target, view.stage, tuple(partitions), {})
        yield TopicRow(name, of_topic.counts, of_topic.records, of_topic.lag_records, of_topic.lag_seconds)


def as_json(process: Process, sections: Sequence[ShownFlow], config_fault: str = "") -> dict[str, Any]:
    """Return the same for programs; plots are left out. `None` is what isn't known. `config_fault`: as of
    `Endpoint`."""
    flows = [_flow_as_json(each) for each in sections]
    return {"process": asdict(process), "config_fault": config_fault, "flows": flows}


def _flow_as_json(shown: ShownFlow) -> dict[str, Any]:
    view, rate = shown.view, shown.rate
    return {
        "name": view.name,
        "source": view.source,
        "target": view.target,
        "stage": view.stage.name.lower(),
        "ready": view.ready,
        "cause": view.cause,
        "unreachable_since_ms": dict(view.conditions.unreachable_ms),
        "failed_over": view.conditions.failed_over,
        "being_failed_over": view.conditions.being_failed_over,
        "other_settings": view.conditions.other_settings,
        "paused": _settings(view.paused),
        "paused_count": len(view.paused),
        "rates": _settings(view.rates),
        "rate_count": len(view.rates),
        "taken_out": [at for at in view.taken_out if at in {**_settings(view.paused), **_settings(view.rates)}],
        "partitions": _counts(view.counts),
        "lag_records": view.lag_records,
        "lag_seconds": view.lag_seconds,
        "end_to_end_s": None if view.heartbeat is None else view.heartbeat.took_s,
        "heartbeat_ms": None if view.heartbeat is None else view.heartbeat.written_ms,
        "records_per_s": None if rate is None else rate.records,
        "bytes_per_s": None if rate is None else rate.bytes,
        "records": view.records,
        "bytes": view.bytes,
        "lanes": len(view.lanes),
        "workers": None if view.workers is None else asdict(view.workers),
        "groups": None
        if view.groups is None
        else {
            "synced_ms": view.groups.synced_ms,
            "groups": len(view.groups.groups),
            "in_sync": in_sync(view.groups.groups),
            "shown": [
                {
                    "group": it.group,
                    "target_group": it.target_group,
                    "kind": it.kind or "consumer",
                    "partitions": {verdict.value: number for verdict, number in it.counts.items()},
                    "again": it.again,
                    "again_unknown": it.again_unknown,
                    "detail": it.detail,
                    "looked_ms": it.looked_ms,
                    "unknown": it.unknown,
                }
                for it in shown.groups
            ],
        },
        "schemas": None if view.schemas is None else view.schemas.as_json(),
        "topic_count": shown.topic_count,
        "topics": [asdict(row) | {"counts": _counts(row.counts)} for row in shown.topics],
        "not_copied_count": shown.kept_count,
        "not_copied": [
            {
                "topic": each.at.topic,
                "partition": each.at.partition,
                "state": each.doing.name.lower(),
                "kind": each.kind,
                "detail": each.detail,
                "position": each.figures.position,
            }
            for each in shown.kept
        ],
    }


def _settings(found: Mapping[str, Paused | RateLimit]) -> dict[str, dict[str, Any]]:
    """Return settings by topic, that of the flow first, as `status` has them."""
    return {at: asdict(it) for at, it in sorted(found.items())[:SETTINGS_SHOWN]}


def _groups(view: FlowView) -> list[GroupShown]:
    """List groups, those that aren't in sync first."""
    groups = () if view.groups is None else view.groups.groups
    return sorted(groups, key=lambda it: (in_sync((it,)), it.group))


def _counts(counts: Mapping[Doing, int]) -> dict[str, int]:
    return {doing.name.lower(): counts[doing] for doing in GRAVITY if counts[doing]}
