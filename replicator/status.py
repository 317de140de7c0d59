"""Where a flow stands, read from the target's positions and the source's ends. Nothing is changed.

Lag in records is a distance of offsets: on the source it also counts markers, aborted and compacted records.
Lag in seconds is the age of the oldest record that is not copied yet, by its own timestamp. Records of an open source
transaction, and all behind it, are no lag of the flow's: they are shown by themselves, with the time since when.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from replicator import checkpoint, names, routing
from replicator.admin import TopicInfo
from replicator.checkpoint import BadMetadata, Evidence
from replicator.config import Flow
from replicator.planes.contract import Committed, Partition
from replicator.planes.records import look
from replicator.topics import ControlPlane

TIMES_WAIT_S = 5.0
STALLED_MS_MIN = 60_000

State = Literal[
    "in_sync",  # nothing to copy
    "behind",  # copying
    "source_waits",  # an open transaction at the source has held back records for long: does it hang?
    "stalled",  # something to copy, and no commit for long: is the daemon running?
    "not_started",  # no position yet
    "topic_missing",  # the source topic does not exist
    "records_lost",  # the source deleted records before they were copied
    "source_truncated",  # the source ends before the position
    "source_recreated",  # the source topic is another one than the position was written for
    "foreign_position",  # the position was not written by this program
]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStatus:
    """One source partition. None where nothing is known: offsets without a position, seconds without a record."""

    source_topic: str
    partition: int
    target_topic: str
    position: int | None = None
    source_end: int | None = None
    lag_records: int | None = None
    lag_seconds: float | None = None
    last_commit_ms: int | None = None
    generation: int | None = None
    owner: str | None = None
    records_copied: int | None = None
    held_back_records: int = 0
    held_back_since_ms: int | None = None
    state: State


@dataclass(frozen=True, slots=True)
class FlowStatus:
    """All partitions of one flow."""

    flow: str
    source: str
    target: str
    delivery: str
    partitions: tuple[PartitionStatus, ...]


@dataclass(frozen=True, slots=True)
class Seen:
    """What both clusters say about one source partition. `oldest_ms` is the time of the first record not copied
    (None: no such record); `oldest_known` is False when it could not be read in time. `high_watermark` is above `end`,
    the last stable offset, while a transaction is open at the source; its first record was written at `open_ms`."""

    topic: TopicInfo
    partition: int
    target_topic: str
    committed: Committed | None
    start: int
    end: int
    oldest_ms: int | None = None
    oldest_known: bool = True
    high_watermark: int = -1
    open_ms: int | None = None


def status(flow: Flow, *, now_ms: int, connect_timeout_ms: int) -> FlowStatus:
    """Asks both clusters.

    Args:
        now_ms: wall clock, for ages.
        connect_timeout_ms: how long to wait for each cluster.

    Raises:
        Unreachable, NotAllowed, Retriable: the cluster's name and the missing right are in the message.
    """
    with ControlPlane(flow, connect_timeout_ms=connect_timeout_ms) as clusters:
        clusters.connect()
        selected = {name for name in clusters.source.topic_names() if routing.selects(flow, name)}
        named = {name for name in routing.literals(flow) if routing.selects(flow, name)}
        sources = clusters.source.topics(selected | named)
        targets = clusters.list_target(sources)
        clusters.target.group_rights(names.position_group(flow.name))  # NotAllowed now, not a time-out below
        partitions = [Partition(name, n) for name, info in sources.items() for n in range(info.partitions)]
        starts = clusters.source.offsets(partitions, end=False)
        ends = clusters.source.offsets(partitions, end=True, committed_only=True)
        marks = clusters.source.offsets(partitions, end=True)
    committed = _positions(flow, partitions, targets)
    behind = {
        at: position.offset
        for at, position in committed.items()
        if position is not None and starts[at] <= position.offset < ends[at]
    }
    times = look.times_at(flow.source, flow, behind, TIMES_WAIT_S)
    held = {at: ends[at] for at in partitions if marks[at] > ends[at]}
    opened = look.times_at(flow.source, flow, held, TIMES_WAIT_S, committed=False)
    rows = [
        describe(
            flow,
            Seen(
                topic=sources[at.topic],
                partition=at.partition,
                target_topic=routing.target_topic(flow, at.topic),
                committed=committed[at],
                start=starts[at],
                end=ends[at],
                oldest_ms=times.get(at),
                oldest_known=at in times or at not in behind,
                high_watermark=marks[at],
                open_ms=opened.get(at),
            ),
            now_ms,
        )
        for at in partitions
    ]
    rows += [_missing(flow, name) for name in named - sources.keys()]
    rows.sort(key=lambda row: (row.source_topic, row.partition))
    return FlowStatus(flow.name, flow.source.name, flow.target.name, flow.delivery.value, tuple(rows))


def describe(flow: Flow, seen: Seen, now_ms: int) -> PartitionStatus:
    """One partition's status. Pure."""
    base = {
        "source_topic": seen.topic.name,
        "partition": seen.partition,
        "target_topic": seen.target_topic,
        "source_end": seen.end,
        "held_back_records": max(0, seen.high_watermark - seen.end),
        "held_back_since_ms": seen.open_ms,
    }
    if seen.committed is None:
        waiting = seen.end - seen.start
        return PartitionStatus(**base, lag_records=waiting, state="not_started")  # type: ignore[arg-type]
    position = seen.committed.offset
    try:
        evidence = checkpoint.decode(seen.committed.metadata)
    except BadMetadata:
        return PartitionStatus(**base, position=position, state="foreign_position")  # type: ignore[arg-type]
    nothing_left = seen.oldest_known and seen.oldest_ms is None
    lag_records = 0 if nothing_left else max(0, seen.end - position)
    lag_seconds = _age_s(seen, now_ms, lag_records)
    return PartitionStatus(
        **base,  # type: ignore[arg-type]
        position=position,
        lag_records=lag_records,
        lag_seconds=lag_seconds,
        last_commit_ms=evidence.committed_ms or None,
        generation=evidence.generation,
        owner=evidence.owner or None,
        records_copied=evidence.count,
        state=_state(flow, seen, evidence, now_ms, lag_records, lag_seconds),
    )


def _age_s(seen: Seen, now_ms: int, lag_records: int) -> float | None:
    if lag_records == 0:
        return 0.0
    if seen.oldest_ms is None or seen.oldest_ms < 0:
        return None
    return max(0.0, (now_ms - seen.oldest_ms) / 1000)


def _state(
    flow: Flow, seen: Seen, evidence: Evidence, now_ms: int, lag_records: int, lag_seconds: float | None
) -> State:
    """The first that holds; what needs a decision comes before what only takes time."""
    assert seen.committed is not None
    position = seen.committed.offset
    if evidence.source_topic_id and evidence.source_topic_id != seen.topic.topic_id:
        return "source_recreated"
    if position < seen.start:
        return "records_lost"
    if position > seen.end:
        return "source_truncated"
    limit_ms = max(STALLED_MS_MIN, 2 * flow.limits.transaction_timeout_ms, 10 * flow.commit.interval_ms)
    if lag_records == 0:
        hangs = seen.open_ms is not None and now_ms - seen.open_ms > limit_ms
        return "source_waits" if hangs else "in_sync"
    quiet_ms = now_ms - evidence.committed_ms
    waited_long = lag_seconds is None or lag_seconds * 1000 > limit_ms
    return "stalled" if quiet_ms > limit_ms and waited_long else "behind"


def _positions(
    flow: Flow, partitions: Iterable[Partition], targets: Mapping[str, TopicInfo]
) -> dict[Partition, Committed | None]:
    """Positions by source partition; None also where the target does not have the partition yet."""
    keys = {at: Partition(routing.target_topic(flow, at.topic), at.partition) for at in partitions}
    there = [key for key in keys.values() if key.topic in targets and key.partition < targets[key.topic].partitions]
    found = look.positions(flow, there)
    return {at: found.get(key) for at, key in keys.items()}


def _missing(flow: Flow, name: str) -> PartitionStatus:
    target = routing.target_topic(flow, name)
    return PartitionStatus(source_topic=name, partition=-1, target_topic=target, state="topic_missing")
