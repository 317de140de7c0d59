"""Records that a target would refuse for their timestamps, found before a flow comes to them. Called by `planning`.

A partition's records aren't sorted by time, and only two of them are asked for: the next one to copy, which is mostly
the oldest, and the one with the latest time. `run` looks at each record before it is written (`planes.records`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from replicator.config import Flow
from replicator.flow.topics import reading_topics
from replicator.kafka.admin import ClusterAdmin
from replicator.kafka.topic_questions import TopicInfo
from replicator.model.errors import Incident
from replicator.model.partition import LogEnds, Partition
from replicator.model.timestamps import TimestampBounds


def bounds_of(target: TopicInfo | None, created_with: Mapping[str, str], broker: Mapping[str, str]) -> TimestampBounds:
    """Return the timestamps that a target topic takes: by its configs; of one that is to be created, by those that it
    is created with and else by the target `broker`'s own."""
    if target is not None:
        return TimestampBounds.of(target.configs)
    return TimestampBounds.of({**broker, **{f"log.{key}": value for key, value in created_with.items()}}, "log.")


def refused_timestamps(
    flow: Flow,
    source: ClusterAdmin,
    positions: Mapping[Partition, int | None],
    logs: Mapping[Partition, LogEnds],
    targets: Mapping[str, tuple[str, TimestampBounds]],
    now_ms: int,
) -> Iterator[Incident]:
    """Yield an incident for each source topic that holds a record which its target refuses now.

    Args:
        positions: of source partitions, None where there is none yet. One that begins at its end, or at a time, is
            left out.
        logs: ends of source partitions; one whose ends aren't known is left out.
        targets: name and bounds of the target topic, by source topic.
    """
    earliest = flow.start.kind == "earliest"
    asked = {at: offset for at, offset in positions.items() if at in logs and (earliest or offset is not None)}
    starts = {at: max(logs[at].start, offset or 0) for at, offset in asked.items()}
    starts = {at: start for at, start in starts.items() if start <= logs[at].end}  # others are told as truncated
    latest = source.latest_records(starts)
    told: set[str] = set()
    with reading_topics(flow, flow.source) as reader:
        first = reader.first_records(starts)
    for at, start in sorted(starts.items()):
        name, bounds = targets[at.topic]
        for offset, timestamp_ms in (first.get(at, (-1, -1)), latest[at]):
            why = bounds.refusal(timestamp_ms, now_ms, name) if offset >= start else ""
            if why and at.topic not in told:
                told.add(at.topic)
                yield Incident("target_timestamp_bounds", why, topic=at.topic, partition=at.partition, offset=offset)
